# lib.bash -- what the command line tests share. Sourced with the arguments: BINARY SOURCE_DIR.
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

# field FILE KEY: a number or text of a JSON file with a key a line.
field() {
    sed -n "s/^ *\"$2\": \"\\{0,1\\}\\([^\",]*\\)\"\\{0,1\\},\\{0,1\\}\$/\\1/p" "$1"
}

same() { [ "$1" = "$2" ] || fail "$3: '$1' and '$2' differ"; }

# A net that trains in a blink.
cat >net.yaml <<YAML
model: {name: mlp, inputs: 12, depth: 2, width: 16, classes: 4}
data: {name: synthetic, n: 100, n_eval: 50}
train: {batch: 8, micro: 2, steps: 40, seed: 3, optimizer: {name: sgd, lr: 0.1, momentum: 0.9}}
parallel: {threads: 1}
run: {out: run}
YAML
