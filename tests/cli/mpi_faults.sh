# Faults in runs of several processes: all ranks end in time, with the right exit code and a line
# that names the lost rank, and the run continues from its checkpoint to the same weights.
# shellcheck shell=bash disable=SC1091,SC2046,SC2086,SC2154
. "$(dirname "$0")/mpi.bash"

# Records the exit code and the output of each rank, which mpirun does not report, and shields a rank
# from mpirun's kill: MPICH's comes immediately, Open MPI's after a moment. SIGTERM is forwarded.
cat >rank.sh <<'SH'
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
trap 'kill -TERM "$(cat pid.$rank)"' TERM
trap '' USR1
setsid bash -c '
    bash -c "echo \$\$ >pid.$0; exec \"\$@\"" - "$@" 2>err.$0
    echo $? >code.tmp.$0 && mv code.tmp.$0 code.$0' "$rank" "$@" 2>/dev/null &
until [ -e code.$rank ]; do wait $! || sleep 0.05; done
exit "$(cat code.$rank)"
SH
trap 'cat pid.* 2>/dev/null | xargs -r kill -9 2>/dev/null; rm -rf "$work"' EXIT
three=(--set parallel.stages=3 --set parallel.method=1f1b --quiet)
finite=(--set run.eval_every=-1 "${three[@]}")

# start OUT METHOD ARGUMENT...: three ranks in the background, up to their first checkpoint.
start() {
    local out=$1 method=$2
    shift 2
    rm -f pid.* code.* err.*
    "${launcher[@]}" -n 3 bash rank.sh "$forerun" train pipe.yaml --out "$out" "${endless[@]}" "${three[@]}" \
        --set run.checkpoint_every=5 --set parallel.method="$method" "$@" >out 2>launcher </dev/null &
    pid=$!
    wait_while $pid has_saved "$out"
}

# ended CODE [LOST]: all processes of `start` end, every rank except the lost one with CODE.
ended() {
    local wanted=$1 lost=${2:-} r
    for r in 0 1 2; do
        [ "$r" = "$lost" ] || wait_for test -e code.$r
    done
    [ -z "$lost" ] || { kill -9 "$(cat pid."$lost")" 2>/dev/null && wait_for test -e code."$lost"; }
    wait $pid
    for r in 0 1 2; do
        [ "$r" = "$lost" ] || same "$(cat code.$r)" "$wanted" "exit code of rank $r"
    done
    cat err.? >err
}

# tells TEXT...: exactly one rank prints it, once.
tells() {
    for text in "$@"; do
        same "$(grep -cF -- "$text" err)" 1 "lines with '$text'"
    done
}

# --- a rank is killed ---
for lost in 2 1 0; do
    method=1f1b
    [ $lost != 1 ] || method=pipedream
    start "killed$lost" $method
    kill -9 "$(cat pid.$lost)"
    ended 3 $lost
    if [ $lost = 0 ]; then says "forerun: rank 1: " "rank 0 ("; else tells "rank $lost (" "--resume"; fi
    run 0 eval pipe.yaml --checkpoint "killed$lost"
done
# --- a rank falls silent ---
start stopped 1f1b --set run.stall_timeout=10
kill -STOP "$(cat pid.2)"
ended 3 2
tells "rank 2 (" "--resume"
# --- a worker fails, hangs, gets NaN ---
# fault CODE METHOD WHAT TEXT... Only a worker that hangs is detected by the stall timeout.
fault() {
    local code=$1 method=$2 what=$3 stall=1000000
    [[ $what != hang* ]] || stall=10
    shift 3
    mpi 3 "$code" train pipe.yaml --out "${what%%:*}" "${endless[@]}" "${three[@]}" \
        --set run.stall_timeout=$stall --set parallel.method="$method" --set "run.fault='$what'"
    for text in "$@"; do grep -qF -- "$text" err || fail "$what: no word of '$text'"; done
}
fault 3 spectrain error:worker=1,step=5 "worker 1 (stage 1), mini-batch 5"
fault 3 1f1b hang:worker=2,step=4 "worker 2 (stage 2), mini-batch 4" "no progress for"
fault 4 1f1b nan:worker=2,step=6 "mini-batch 6" "--resume"
same "$(field nan/summary.json status)" diverged "status"
run 0 eval pipe.yaml --checkpoint nan

# --- Ctrl-C: a checkpoint, and on to the same weights ---
# Runs are endless, so that no signal comes too late. Afterwards the interrupted run continues for 20
# updates, and an undisturbed run in threads makes the same number of updates.
# goes_on OUT COMMAND...: COMMAND resumes it.
goes_on() {
    local out=$1 n
    shift
    same "$(field "$out/summary.json" status)" interrupted "status"
    n=$(($(newest "$out") + 20))
    rm -rf whole
    run 0 train pipe.yaml --out whole "${finite[@]}" --set train.steps=$n
    "$@" pipe.yaml --out "$out" "${finite[@]}" --set train.steps=$n --resume
    same "$(field "$out/summary.json" weights_sha256)" "$(field whole/summary.json weights_sha256)" \
        "$out, stopped and resumed"
    same "$(wc -l <"$out/metrics.jsonl")" $n "lines of metrics"
}
"${launcher[@]}" -n 3 "$forerun" train pipe.yaml --out interrupted "${endless[@]}" "${three[@]}" \
    >out 2>err </dev/null &
pid=$!
wait_while $pid test -s interrupted/metrics.jsonl
pkill -USR1 -P $pid # timeout's only child
ends 130 "after SIGUSR1"
same "$(grep -c 'continue with --resume' err)" 1 "ranks that say how to go on"
goes_on interrupted mpi 3 0 train

find_victim() {
    victim=$(rank_pid $pid "$1")
    [ -n "$victim" ]
}
# --- launch: killed twice, then asked to end, with the same bits ---
begin launch pipe.yaml --out launched "${endless[@]}" "${three[@]}" --set run.checkpoint_every=5
has_restarted() { [ "$(grep -c 'run ended by a fault .*, resuming from launched/checkpoint/step-' err)" = "$1" ]; }
saved=0
for nth in 1 2; do
    wait_while $pid has_saved launched $saved
    wait_while $pid find_victim $nth
    kill -9 "$victim"
    wait_while $pid has_restarted $nth
    saved=$(newest launched)
done
wait_while $pid has_saved launched "$saved"
kill -INT $pid
ends 130 "of launch after SIGINT"
goes_on launched run 0 launch
same "$(find launched/checkpoint -name '.tmp-*' | wc -l)" 0 "checkpoints half written"

# --- the disk is full ---
mkdir disk
if unshare -rm mount -t tmpfs none disk 2>/dev/null; then
    unshare -rm bash -c '
        mount -t tmpfs -o size=1500k none disk || exit 2
        "${@:2}" >out 2>err </dev/null
        [ $? = 1 ] || exit 3
        [ -z "$(find disk/run/checkpoint -name ".tmp-*")" ] || exit 4
        "$1" eval pipe.yaml --checkpoint disk/run --set model.width=128 >eval 2>&1 || exit 5
    ' - "$forerun" "${launcher[@]}" -n 3 "$forerun" train pipe.yaml --out disk/run --quiet \
        --set model.width=128 --set parallel.stages=3 --set parallel.method=1f1b \
        --set run.checkpoint_every=10 --set run.keep=9 --set run.trace=0 ||
        fail "full disk: step $? of the script"
    tells "No space"
else
    skipped "ranks on a full disk" "this user may not mount a tmpfs"
fi
echo ok
