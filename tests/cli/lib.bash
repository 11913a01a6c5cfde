# lib.bash -- shared by the command line tests. Sourced with the arguments: BINARY SOURCE_DIR.
set -uo pipefail
forerun=$1
source_dir=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export OMP_WAIT_POLICY=passive # tests share their cores

fail() {
    echo "FAILED: $*"
    [ ! -f out ] || sed 's/^/  stdout: /' out
    [ ! -f err ] || sed 's/^/  stderr: /' err
    exit 1
}

# run CODE ARGUMENT...: forerun must end with that exit code; its output goes to files out and err.
run() {
    local wanted=$1 code=0
    shift
    "$forerun" "$@" >out 2>err || code=$?
    [ $code = "$wanted" ] || fail "forerun $*: exit code $code, expected $wanted"
}

# says TEXT...: the error of the last run is one line that holds each text.
says() {
    [ "$(wc -l <err)" = 1 ] || fail "expected one line of error"
    for text in "$@"; do
        grep -qF -- "$text" err || fail "the error does not say '$text'"
    done
}

# begin ARGUMENT...: forerun in the background, as $pid, its output in out and err. It does not
# outlive this script, not even one that is killed.
begin() {
    setpriv --pdeathsig KILL -- "$forerun" "$@" >out 2>err </dev/null &
    pid=$!
}

# Waits have no time limit of their own; ctest alone limits the time.
# wait_for COMMAND...: until it succeeds. wait_while PID COMMAND...: or until that process ends.
wait_for() {
    until "$@"; do sleep 0.02; done
}
wait_while() {
    local process=$1
    shift
    until "$@"; do
        kill -0 "$process" 2>/dev/null || "$@" || fail "the process has ended; in vain: $*"
        sleep 0.02
    done
}

# ends CODE WHAT: $pid ends with that exit code.
ends() {
    local code=0
    wait "$pid" 2>/dev/null || code=$?
    same $code "$1" "exit code $2"
}

# An endless run that makes few steps, so that no signal comes too late, and starts without a
# forecast, which would measure for a second. It can be resumed with another number of steps, and
# without the fault.
# shellcheck disable=SC2034
endless=(--set train.steps=100000000 --set run.eval_every=-1 --set run.predict=false
    --set "run.fault='slow:worker=0,ms=5'")

# newest OUT: the step of its last checkpoint; nothing if there is none.
newest() { find "$1/checkpoint" -maxdepth 1 -name 'step-*' 2>/dev/null | sed 's/.*-//' | sort -n | tail -n 1; }
has_saved() { # OUT [STEP (0)]: there is a checkpoint of a later step
    local step
    step=$(newest "$1")
    [ "${step:-0}" -gt "${2:-0}" ]
}

# skipped WHAT WHY: a check that this machine or build cannot make; `make test` counts and lists
# these lines (scripts/list-skipped.sh). skip_all WHY: the whole script.
skipped() { echo "SKIPPED: $1: $2"; }
skip_all() {
    skipped "all of it" "$1"
    exit 77
}

# field FILE KEY: a number or text of a JSON file with one key per line.
field() {
    sed -n "s/^ *\"$2\": \"\\{0,1\\}\\([^\",]*\\)\"\\{0,1\\},\\{0,1\\}\$/\\1/p" "$1"
}

same() { [ "$1" = "$2" ] || fail "$3: '$1' and '$2' differ"; }

# A net that trains very fast.
cat >net.yaml <<YAML
model: {name: mlp, inputs: 12, depth: 2, width: 16, classes: 4}
data: {name: synthetic, n: 100, n_eval: 50}
train: {batch: 8, micro: 2, steps: 40, seed: 3, optimizer: {name: sgd, lr: 0.1, momentum: 0.9}}
parallel: {threads: 1}
run: {out: run}
YAML
