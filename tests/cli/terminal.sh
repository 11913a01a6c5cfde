# Output to a terminal and to a log: a status line that is overwritten and never wider than the
# window, with log lines above it; control characters and colours for terminals only, subject to
# NO_COLOR, CLICOLOR_FORCE and TERM=dumb.
. "$(dirname "$0")/lib.bash"
command -v script >/dev/null || skip_all "no script (package bsdutils)"
unset NO_COLOR CLICOLOR_FORCE COLUMNS
export TERM=xterm LC_ALL=C.UTF-8
escape=$'\033'

# on_terminal COLUMNS COMMAND: writes its output to a window of that width to the file `screen`.
on_terminal() {
    script -qec "stty cols $1; $2" /dev/null >screen </dev/null || fail "$2"
}
# The status lines drawn, one per line, without colours: each from its return to its clearing.
drawn() {
    tr '\r' '\n' <screen | grep "$escape\[K\$" | sed "s/$escape\[[0-9;]*[mK]//g"
}
has() { grep -qF -- "$1" screen || fail "$2: $(cat -v screen)"; }
has_not() { ! grep -qF -- "$1" screen || fail "$2: $(cat -v screen)"; }

long="train net.yaml --set train.steps=4000 --set run.eval_every=2000 --set run.predict=false"
for columns in 100 60 30; do
    rm -rf run
    on_terminal $columns "$forerun $long"
    [ "$(drawn | grep -c '^step [0-9]*/4000')" -ge 1 ] || fail "no status line: $(cat -v screen)"
    [ "$(drawn | wc -L)" -lt $columns ] || fail "a status line is wider than $columns: $(drawn)"
    tr '\r' '\n' <screen | sed "s/^$escape\[K//" | grep -q '^step 2000/4000  loss .*accuracy' ||
        fail "the evaluation has no line of its own: $(cat -v screen)"
    tr '\r' '\n' <screen | sed "s/^$escape\[K//" | grep -q '^step 4000/4000  ' ||
        fail "the last step has no line of its own"
done
rm -rf run
on_terminal 120 "$forerun $long"
has "${escape}[32m" "no colour in the bar"
has "─" "no bar"
rm -rf run
on_terminal 120 "NO_COLOR=1 LC_ALL=C $forerun $long"
has_not "${escape}[3" "colours though NO_COLOR"
has_not "─" "other characters than the locale has"
has "---" "no bar"

# A warning during a run appears above the status line.
rm -rf run
script -qec "stty cols 120; $forerun train net.yaml --set train.steps=4000 --set run.predict=false \
    --set run.fault=\'nan:worker=0,step=3000\'" /dev/null >screen </dev/null
tr '\r' '\n' <screen | grep -q "^$escape\[K$escape\[33mforerun: warning: the last good weights" ||
    fail "a torn warning: $(cat -v screen)"
[ "$(tail -c 2 screen)" = $'\r' ] || [ -z "$(tail -c 1 screen)" ] || fail "the last line has no end"

# A dumb terminal, and no terminal.
rm -rf run
on_terminal 80 "TERM=dumb $forerun $long"
has_not "$escape" "control characters on a dumb terminal"
[ "$(tr -d '\n' <screen | tr '\r' '\n' | wc -l)" -le "$(wc -l <screen)" ] || fail "returns"
rm -rf run
run 0 $long
! grep -q "[$escape$(printf '\r')]" err out || fail "control characters in a log"
# At most one line each 2 seconds: within the limit of a test not nearly one for each step.
[ "$(grep -c '^step ' err)" -lt 1000 ] || fail "a log of every step"

# Colours of the grid.
on_terminal 80 "$forerun schedule 1f1b --stages 2 --micro 2"
has "${escape}[" "no colours in the grid"
on_terminal 80 "NO_COLOR=1 $forerun schedule 1f1b --stages 2 --micro 2"
has_not "$escape" "a coloured grid though NO_COLOR"
on_terminal 80 "TERM=dumb $forerun schedule 1f1b --stages 2 --micro 2"
has_not "$escape" "a coloured grid on a dumb terminal"
run 0 schedule 1f1b --stages 2 --micro 2
! grep -q "$escape" out || fail "a coloured grid in a pipe"
CLICOLOR_FORCE=1 run 0 schedule 1f1b --stages 2 --micro 2
grep -q "$escape" out || fail "no colours though CLICOLOR_FORCE"
NO_COLOR=1 CLICOLOR_FORCE=1 run 0 schedule 1f1b --stages 2 --micro 2
! grep -q "$escape" out || fail "NO_COLOR does not win"
exit 0
