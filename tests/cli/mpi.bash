# mpi.bash -- shared by the tests of runs in several processes; sources lib.bash, or skips.
. "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
. "$source_dir/tests/cli/launcher.bash"

[ ${#mpirun[@]} != 0 ] || skip_all "built without MPI, or no mpirun (Debian: openmpi-bin, mpich)"
launcher=(timeout -k 5 $patience_s "${mpirun[@]}")

# mpi RANKS CODE ARGUMENT...: as `run`, in RANKS processes.
mpi() {
    local n=$1 wanted=$2 code=0
    shift 2
    "${launcher[@]}" -n "$n" "$forerun" "$@" >out 2>err </dev/null || code=$?
    hush err
    [ $code = "$wanted" ] || fail "$n x forerun $*: exit code $code, expected $wanted"
}

cat >pipe.yaml <<YAML
model: {name: mlp, inputs: 12, depth: 6, width: 16, classes: 4}
data: {name: synthetic, n: 100, n_eval: 50}
train: {batch: 8, micro: 4, steps: 30, seed: 3, optimizer: {name: adam, lr: 0.01}}
parallel: {threads: 1, pin: false}
YAML
