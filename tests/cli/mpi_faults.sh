# What goes wrong in runs of several processes: all ranks end in time, with the right exit code and a
# line that names who was lost; and the run goes on from its checkpoint to the same weights.
# shellcheck shell=bash disable=SC1091,SC2046,SC2086,SC2154
. "$(dirname "$0")/mpi.bash"

# Keeps the exit code of each rank, which mpirun does not tell.
cat >rank.sh <<'SH'
trap '' TERM USR1
{ bash -c 'echo $$ >"pid.$OMPI_COMM_WORLD_RANK"; exec "$@"' - "$@" 2>&3; } 3>&2 2>/dev/null
code=$?
echo $code >"code.$OMPI_COMM_WORLD_RANK"
exit $code
SH
slow=(--set train.steps=100000 --set run.eval_every=-1 --set run.checkpoint_every=200
    --set run.stall_timeout=3 --set parallel.stages=3 --quiet)

# start OUT METHOD ARGUMENT...: three ranks in the background, up to their first checkpoint.
start() {
    local out=$1 method=$2
    shift 2
    rm -f pid.* code.*
    "${launcher[@]}" -n 3 bash rank.sh "$forerun" train pipe.yaml --out "$out" "${slow[@]}" \
        --set parallel.method="$method" "$@" >out 2>err </dev/null &
    pid=$!
    wait_for 30 test -d "$out/checkpoint/step-200"
}

# ended CODE SECONDS: the run of `start` ends in that time; every rank but the lost one with CODE.
ended() {
    local wanted=$1 limit=$2 lost=${3:-} begin=$SECONDS
    timeout $((limit + 20)) tail --pid=$pid -f /dev/null || fail "the ranks do not end"
    [ $((SECONDS - begin)) -le "$limit" ] || fail "took $((SECONDS - begin)) s to end"
    wait $pid
    for r in 0 1 2; do
        [ "$r" = "$lost" ] || same "$(cat code.$r)" "$wanted" "exit code of rank $r"
    done
}

# tells TEXT...: somebody does, once.
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
    ended 3 6 $lost
    if [ $lost = 0 ]; then says "forerun: rank 1: " "rank 0 ("; else tells "rank $lost (" "--resume"; fi
    run 0 eval pipe.yaml --checkpoint "killed$lost"
done
# --- a rank falls silent ---
start stopped 1f1b
kill -STOP "$(cat pid.2)"
sleep 3
ended 3 8 2
tells "rank 2 (" "--resume"
# --- a worker fails, hangs, gets NaN ---
# fault CODE METHOD WHAT TEXT...
fault() {
    local code=$1 method=$2 what=$3
    shift 3
    mpi 3 "$code" train pipe.yaml --out "${what%%:*}" "${slow[@]}" --set run.stall_timeout=1.5 \
        --set run.checkpoint_every=0 --set parallel.method="$method" --set "run.fault='$what'"
    for text in "$@"; do grep -qF -- "$text" err || fail "$what: no word of '$text'"; done
}
fault 3 spectrain error:worker=1,step=5 "worker 1 (stage 1), mini-batch 5"
fault 3 1f1b hang:worker=2,step=4 "worker 2 (stage 2), mini-batch 4" "no sign of life"
fault 4 1f1b nan:worker=2,step=6 "mini-batch 6" "--resume"
same "$(field nan/summary.json status)" diverged "status"
run 0 eval pipe.yaml --checkpoint nan

# --- Ctrl-C: a checkpoint, and on to the same weights ---
few=(--set train.steps=1500 --set run.eval_every=-1 --set parallel.stages=3
    --set parallel.method=1f1b --quiet)
run 0 train pipe.yaml --out whole "${few[@]}"
sha=$(field whole/summary.json weights_sha256)
"${launcher[@]}" -n 3 "$forerun" train pipe.yaml --out interrupted "${few[@]}" >out 2>err </dev/null &
pid=$!
wait_for 30 test -s interrupted/metrics.jsonl
pkill -USR1 -P $pid mpirun
code=0
wait $pid || code=$?
same $code 130 "exit code after SIGUSR1"
grep -q 'continue with --resume' err || fail "no word how to go on"
same "$(grep -c 'continue with --resume' err)" 1 "ranks that say so"
same "$(field interrupted/summary.json status)" interrupted "status"
[ -d interrupted/checkpoint/step-1500 ] && fail "the signal came too late to test anything"
mpi 3 0 train pipe.yaml --out interrupted "${few[@]}" --resume
same "$(field interrupted/summary.json weights_sha256)" "$sha" "stopped and resumed"

find_victim() {
    victim=$(rank_pid $pid "$1")
    [ -n "$victim" ]
}
# --- launch: killed twice, and not a bit of difference ---
"$forerun" launch pipe.yaml --out launched "${few[@]}" --set run.checkpoint_every=100 --set run.keep=20 \
    >out 2>err </dev/null &
pid=$!
for step in 200 500; do
    wait_for 60 test -e launched/checkpoint/step-$step
    wait_for 30 find_victim $((step % 3))
    kill -9 "$victim"
    wait_for 10 test ! -e "/proc/$victim"
done
code=0
wait $pid || code=$?
same $code 0 "exit code of launch"
same "$(grep -c 'forerun launch: run ended by a fault .*, resuming from launched/checkpoint/step-' err)" \
    2 "restarts"
same "$(field launched/summary.json weights_sha256)" "$sha" "killed twice"
same "$(wc -l <launched/metrics.jsonl)" 1500 "lines of metrics"
# Ctrl-C on launch.
"$forerun" launch pipe.yaml --out asked "${few[@]}" >out 2>err </dev/null &
pid=$!
wait_for 30 test -s asked/metrics.jsonl
kill -INT $pid
code=0
wait $pid || code=$?
same $code 130 "exit code of launch after SIGINT"
same "$(field asked/summary.json status)" interrupted "status"

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
    echo "skipped: a full disk (this user may not mount a tmpfs)"
fi
echo ok
