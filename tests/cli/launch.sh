# The supervisor: what it starts, when it restarts, how it ends. Most tests use an mpirun that
# executes one line of the file `play` at each start; mpi.sh uses the real one.
. "$(dirname "$0")/lib.bash"
. "$source_dir/tests/cli/launcher.bash"

# Options of this build's launcher: required, forbidden, and its package.
words='--host a,b:3|--oversubscribe' foreign='--hosts' package=openmpi-bin nine="mpirun's exit code 9"
[[ $library != MPICH* ]] || words='--hosts a,b:3' foreign='--oversubscribe|--allow-run-as-root' \
    package='(Debian: mpich)' nine='a process was killed by signal 9'

cat >mpirun <<'SH'
#!/bin/bash
n=$(($(cat starts 2>/dev/null) + 1))
echo $n >starts
echo "$*" >command.$n
! read -r line || echo "somebody speaks on stdin" >&2
play=$(sed -n ${n}p play)
case $play in
kill) kill -9 $$ ;;
step*) mkdir -p new/checkpoint/$play && exit 137 ;;
0) mkdir -p new/checkpoint/step-40 ;; # as after a finished run
cut) exit 0 ;;
wait*)
    trap 'echo USR1 >>signals; [ $play = wait-once ] && exit 130' USR1
    trap 'echo TERM >>signals; [ $play = wait-deaf ] || exit 1' TERM
    echo $$ >waiting
    while sleep 0.1; do :; done ;;
*) exit $play ;;
esac
SH
chmod +x mpirun

# play CODE LINE... -- ARGUMENT...: launch two processes with that mpirun, which executes the lines.
play() {
    local code=$1 lines=()
    shift
    while [ "$1" != -- ]; do
        lines+=("$1")
        shift
    done
    shift
    rm -rf new starts signals waiting command.*
    printf '%s\n' "${lines[@]}" >play
    run "$code" launch net.yaml -n 2 --mpirun ./mpirun --out new "$@"
    same "$(cat starts)" ${#lines[@]} "starts"
}
lines() { [ "$(wc -l <err)" = "$1" ] || fail "expected $1 lines from launch"; }

# --- hosts are no options of mpirun or ssh ---
for hosts in -oProxyCommand=x a,-b a, ,a :2 'a b' $'a\nb' $'a\x7f'; do
    run 2 launch net.yaml -n 2 --mpirun ./mpirun --out new --hosts "$hosts"
    says "--hosts '" "does not begin with '-'"
done
[ ! -e starts ] || fail "mpirun was started with bad hosts"

# --- ends that are final ---
for code in 0 1 2 4 130; do
    play $code $code --
    lines 0
done

# --- faults ---
play 0 3 0 --
says "forerun launch: run ended by a fault (exit code 3)" "from the beginning" "restart 1 of 3"
grep -q -- '--resume' command.1 && fail "the first start resumes"
grep -q -- '--resume' command.2 || fail "a restart does not resume"
play 0 137 0 --
says "killed by signal 9" "restart 1 of 3"
play 0 kill 0 --
says "killed by signal 9" "restart 1 of 3"
play 3 3 137 3 -- --restarts 2
lines 3
grep -q "2 restarts brought no newer checkpoint: given up" err || fail "no word of giving up"
play 3 3 -- --restarts 0
says "run ended by a fault (exit code 3)"
play 3 213 213 -- --restarts 1
grep -q "mpirun's exit code 213" err || fail "no word of mpirun's own failure"
grep -q "the command was ./mpirun" err || fail "no word how to learn more"
# Misleading exit codes of mpirun: a signal number, or success.
play 0 9 0 --
says "$nine" "restart 1 of 3"
play 0 cut 0 --
says "mpirun ended before the run did" "restart 1 of 3"
# Progress resets the count.
play 3 step-10 step-20 step-30 3 -- --restarts 1
lines 4
grep -q "resuming from new/checkpoint/step-10, restart 1 of 1" err || fail "restart after step 10"
grep -q "resuming from new/checkpoint/step-20, restart 1 of 1" err || fail "restart after step 20"

# --- forwarded options ---
play 0 3 0 -- --set train.seed=5 --set 'train.optimizer={name: sgd, lr: 0.5}' --ledger l.csv \
    --dump-step 3 --quiet --json --hosts a,b:3
IFS='|' read -r -a words <<<"$words"
for word in "${words[@]}" '-n 2' '--bind-to none' '--set train.seed=5' \
    '--set train.optimizer={name: sgd, lr: 0.5}' '--out new' '--ledger l.csv' '--dump-step 3' \
    '--quiet' '--json' '-- net.yaml'; do
    for start in 1 2; do
        grep -qF -- "$word" command.$start || fail "start $start: '$word' is not handed on"
    done
done
grep -qE -- "($foreign) " command.1 && fail "a word of another MPI's launcher"
# A mini-batch before the checkpoint cannot be dumped again.
play 0 step-10 0 -- --dump-step 3
grep -q -- '--dump-step' command.2 && fail "the dump is asked for again"
# Without -n there are as many processes as workers; one needs no mpirun.
play 0 0 -- --set parallel.method=1f1b --set parallel.stages=3 -n 3
rm -rf new starts
printf '0\n' >play
run 0 launch net.yaml --mpirun ./mpirun --out new --set parallel.method=1f1b --set parallel.stages=3
grep -q -- '-n 3 ' command.1 || fail "not as many processes as workers"
rm -f starts
run 0 launch net.yaml --mpirun ./mpirun --out alone --json
[ -e starts ] && fail "one process was started by mpirun"
grep -q weights_sha256 out || fail "no summary on stdout"

# --- bad input is refused before anything starts ---
rm -f starts
run 2 launch net.yaml -n 2 --mpirun ./mpirun --out alone
says "alone: already holds a run"
run 2 launch net.yaml -n 2 --mpirun ./mpirun --out new2 --set train.bathc=3
says "train.bathc"
run 2 launch nosuch.yaml -n 2 --mpirun ./mpirun
says "nosuch.yaml"
run 2 launch
says "no config given"
run 2 launch net.yaml -n 0
says "-n 0: expected 1 to 1000000"
run 2 launch net.yaml --restarts -1
says "--restarts"
run 2 launch net.yaml -n two
says "-n two" "whole number"
[ -e starts ] && fail "mpirun was started for nothing"
run 2 launch net.yaml -n 2 --mpirun ./nosuch --out new2
says "./nosuch" "$package" "--mpirun"

# --- Ctrl-C ---
is_gone() { ! kill -0 "$(cat waiting)" 2>/dev/null; }
has_got() { [ "$(wc -l 2>/dev/null <signals)" = "$1" ] || is_gone; } # the signal that launch forwards
# ask CODE SIGNAL... : send signals to launch while its mpirun waits
ask() {
    local code=$1
    shift
    rm -rf new starts signals waiting
    begin launch net.yaml -n 2 --mpirun ./mpirun --out new
    local n=0
    wait_while $pid test -s waiting
    for signal in "$@"; do
        kill "-$signal" $pid
        n=$((n + 1))
        wait_for has_got $n
    done
    ends "$code" "after $*"
    same "$(cat starts)" 1 "starts after $*"
    is_gone || fail "mpirun outlives launch"
}
echo wait-once >play
for signal in INT TERM HUP USR1; do
    ask 130 $signal
    same "$(cat signals)" USR1 "what mpirun gets for $signal"
done
echo wait >play
ask 130 INT INT
same "$(echo $(cat signals))" "USR1 TERM" "what mpirun gets for two"
echo wait-deaf >play
ask 130 INT INT INT
same "$(echo $(cat signals))" "USR1 TERM" "what a deaf mpirun hears"
# Between two starts launch ends immediately. Its mpirun fails repeatedly.
yes 3 | head -n 100000 >play
rm -rf starts
begin launch net.yaml -n 2 --mpirun ./mpirun --out new --restarts 99999
wait_while $pid grep -qs '[3-9]' starts
kill -INT $pid
ends 130 "after Ctrl-C in a pause"
# If launch is killed, its children end.
echo wait >play
rm -rf new starts signals waiting
begin launch net.yaml -n 2 --mpirun ./mpirun --out new
wait_while $pid test -s waiting
kill -KILL $pid
wait $pid 2>/dev/null
wait_for is_gone

# --- one real process: killed repeatedly, stopped by Ctrl-C, with the weights of an undisturbed run.
# It is endless, so that no signal comes too late; its last update is read afterwards. ---
begin launch net.yaml --out killed "${endless[@]}" --set run.checkpoint_every=20 --quiet
has_said() { [ "$(wc -l <err)" = "$1" ]; }
last=0
for nth in 1 2 3; do
    wait_while $pid has_saved killed $last
    pkill -9 -P $pid
    wait_while $pid has_said $nth
    last=$(newest killed)
done
wait_while $pid has_saved killed "$last"
kill -INT $pid
ends 130 "after SIGINT"
same "$(grep -c 'it was killed by signal 9), resuming from killed/checkpoint/step-.*, restart 1 of 3' err)" \
    3 "restarts"
same "$(field killed/summary.json status)" interrupted "status"
steps=$(($(newest killed) + 20))
finite=(--set train.steps=$steps --set run.eval_every=-1 --quiet)
run 0 launch net.yaml --out killed "${finite[@]}" --resume
run 0 train net.yaml --out whole "${finite[@]}"
same "$(field killed/summary.json weights_sha256)" "$(field whole/summary.json weights_sha256)" weights
same "$(wc -l <killed/metrics.jsonl)" $steps "lines of metrics"
echo ok
