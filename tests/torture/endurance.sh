#!/bin/bash
# endurance.sh -- a day's worth of updates: memory, descriptors and threads stay as they were, and so do
# the numbers.
#
#   tests/torture/endurance.sh FORERUN [UPDATES (200000)]
#
# Two stages x two replicas in four processes, 40 checkpoints, 10 evaluations. While it runs, resident
# memory, open files and threads of every rank are looked at; after the first tenth of the run memory
# may grow by less than 1 %, the others not at all. In the end the folder holds what it should and no
# more, and weights and losses are those of the same config in threads, and of one worker. Some
# minutes on two cores.
# shellcheck disable=SC1091,SC2154,SC2011,SC2012
forerun=$(realpath "${1:?usage: endurance.sh FORERUN [UPDATES]}")
steps=${2:-200000}
set -- "$forerun" "$(realpath "$(dirname "$0")/../..")"
. "$(dirname "${BASH_SOURCE[0]}")/../cli/mpi.bash"
[ $((steps % 40)) = 0 ] || fail "$steps updates: give a multiple of 40"

cat >net.yaml <<YAML
model: {name: mlp, inputs: 8, depth: 2, width: 16, classes: 4}
data: {name: synthetic, n: 256, n_eval: 64}
train: {batch: 8, micro: 4, steps: $steps, seed: 3, exact_sum: true, clip_norm: 1,
        optimizer: {name: adam, lr: 0.001}}
parallel: {threads: 1, pin: false}
run: {trace: 0, checkpoint_every: $((steps / 40)), eval_every: $((steps / 10)), keep: 2}
YAML
hybrid=(--set parallel.method=1f1b --set parallel.stages=2 --set parallel.replicas=2)

# look RANK PID: a line of the file `seen`: updates, rank, kB resident, open files, threads.
look() {
    local step kb threads files
    step=$(tail -n 1 ranks/metrics.jsonl 2>/dev/null | sed -n 's/^{"step": \([0-9]*\),.*}$/\1/p')
    kb=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$2/status" 2>/dev/null)
    threads=$(sed -n 's/^Threads:[^0-9]*//p' "/proc/$2/status" 2>/dev/null)
    files=$(ls "/proc/$2/fd" 2>/dev/null | wc -l)
    [ -z "$step" ] || [ -z "$kb" ] || echo "$step $1 $kb $files $threads" >>seen
}

"${mpirun[@]}" -n 4 "$forerun" train net.yaml --out ranks "${hybrid[@]}" \
    --quiet >out 2>err </dev/null &
job=$!
trap 'kill -TERM $job 2>/dev/null; rm -rf "$work"' EXIT
ready() { [ -s ranks/metrics.jsonl ] || ! kill -0 $job 2>/dev/null; }
wait_for ready
for rank in 0 1 2 3; do pid[rank]=$(rank_pid $job $rank); done
while kill -0 $job 2>/dev/null; do
    for rank in 0 1 2 3; do look $rank "${pid[rank]}"; done
    sleep 0.2
done
code=0
wait $job || code=$?
[ $code = 0 ] || fail "exit code $code"
seconds=$SECONDS

# Of each rank, after a tenth of the run: memory at first and at most; the least open files and
# threads in the first and in the second half, for a checkpoint in the making has some of its own.
awk -v steps="$steps" '
    function least(list, rank, value) {
        if (!(rank in list) || value < list[rank]) list[rank] = value
    }
    $1 >= steps / 10 {
        n[$2]++
        if (!($2 in kb)) kb[$2] = $3
        if ($3 > most[$2]) most[$2] = $3
        if ($1 < steps / 2) { least(files, $2, $4); least(threads, $2, $5) }
        else if ($1 < steps) { least(files_later, $2, $4); least(threads_later, $2, $5) }
    }
    END {
        bad = 0
        for (rank = 0; rank < 4; rank++) {
            growth = 100 * (most[rank] - kb[rank]) / kb[rank]
            printf "rank %d: %d kB, at most %d (%.2f %%); files %d, later %d; threads %d, later %d; " \
                "%d looks\n", rank, kb[rank], most[rank], growth, files[rank], files_later[rank],
                threads[rank], threads_later[rank], n[rank]
            if (n[rank] < 10 || growth >= 1 || files_later[rank] > files[rank] ||
                threads_later[rank] > threads[rank]) bad = 1
        }
        exit bad
    }' seen >growth || fail "something grew: $(cat growth)"

same "$(ls -A ranks | xargs)" "checkpoint config.yaml metrics.jsonl summary.json" "the folder"
same "$(ls -A ranks/checkpoint | xargs)" "step-$((steps - steps / 40)) step-$steps" "checkpoints"
same "$(ls -A "ranks/checkpoint/step-$steps" | xargs)" \
    "model.safetensors optimizer.safetensors state.json" "the checkpoint"
same "$(wc -l <ranks/metrics.jsonl)" "$steps" "lines of metrics"
same "$(grep -c eval_loss ranks/metrics.jsonl)" 10 "evaluations"

numbers() { sed 's/ "samples_per_s": [^,]*, "elapsed_s": [^,}]*,\{0,1\}//' "$1/metrics.jsonl"; }
run 0 train net.yaml --out threads "${hybrid[@]}" --quiet
run 0 train net.yaml --out single --quiet
for other in threads single; do
    same "$(field ranks/summary.json weights_sha256)" "$(field $other/summary.json weights_sha256)" \
        "weights of ranks and $other"
    cmp <(numbers ranks) <(numbers $other) || fail "losses of ranks and $other"
    cmp "ranks/checkpoint/step-$steps/optimizer.safetensors" \
        "$other/checkpoint/step-$steps/optimizer.safetensors" || fail "optimizer state of $other"
done
sed 's/^/  /' growth
echo "ok: $steps updates in $seconds s"
