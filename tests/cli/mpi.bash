# mpi.bash -- what the tests of runs in several processes share; sources lib.bash, or skips.
. "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
. "$source_dir/tests/cli/launcher.bash"

[ ${#mpirun[@]} != 0 ] || { echo "skipped: built without MPI, or no mpirun (Debian: openmpi-bin, mpich)" && exit 77; }
launcher=(timeout -k 5 300 "${mpirun[@]}")

# mpi RANKS CODE ARGUMENT...: as `run`, in so many processes.
mpi() {
    local n=$1 wanted=$2 code=0
    shift 2
    "${launcher[@]}" -n "$n" "$forerun" "$@" >out 2>err </dev/null || code=$?
    hush err
    [ $code = "$wanted" ] || fail "$n x forerun $*: exit code $code, expected $wanted"
}

# wait_for SECONDS COMMAND...: until it succeeds.
wait_for() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || fail "waited in vain for: $*"
        sleep 0.02
    done
}

cat >pipe.yaml <<YAML
model: {name: mlp, inputs: 12, depth: 6, width: 16, classes: 4}
data: {name: synthetic, n: 100, n_eval: 50}
train: {batch: 8, micro: 4, steps: 30, seed: 3, optimizer: {name: adam, lr: 0.01}}
parallel: {threads: 1, pin: false}
YAML
