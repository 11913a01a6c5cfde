# mpi.bash -- what the tests of runs in several processes share; sources lib.bash, or skips.
. "$(dirname "${BASH_SOURCE[0]}")/lib.bash"

command -v mpirun >/dev/null || { echo "skipped: no mpirun here (Debian: openmpi-bin)" && exit 77; }
"$forerun" info | grep -q '^  mpi ' || { echo "skipped: built without MPI" && exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_orte_execute_quiet=1 # as -q, which Open MPI 5 refuses
launcher=(timeout -k 5 100 mpirun --oversubscribe --bind-to none)

# mpi RANKS CODE ARGUMENT...: as `run`, in so many processes.
mpi() {
    local n=$1 wanted=$2 code=0
    shift 2
    "${launcher[@]}" -n "$n" "$forerun" "$@" >out 2>err </dev/null || code=$?
    [ $code = "$wanted" ] || fail "$n x forerun $*: exit code $code, expected $wanted"
}

# rank_pid PID RANK: the process of a rank, somewhere below PID; nothing if there is none.
rank_pid() {
    local child
    for child in $(pgrep -P "$1"); do
        if { tr '\0' '\n' <"/proc/$child/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$2"; } 2>/dev/null; then
            echo "$child"
        else
            rank_pid "$child" "$2"
        fi
    done
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
