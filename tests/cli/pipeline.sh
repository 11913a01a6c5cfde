# Pipelines from the command line: the same weights with any schedule, a ledger, faults that end a
# run in time with a message that names the worker, and Ctrl-C during a run.
. "$(dirname "$0")/lib.bash"

cat >pipe.yaml <<YAML
model: {name: mlp, inputs: 12, depth: 6, width: 16, classes: 4}
data: {name: synthetic, n: 100, n_eval: 50}
train: {batch: 8, micro: 4, steps: 30, seed: 3, optimizer: {name: adam, lr: 0.01}}
parallel: {threads: 1}
YAML
four=(--set parallel.stages=4)

# --- one set of weights ---
run 0 train pipe.yaml --out single
sha=$(field single/summary.json weights_sha256)
same "${#sha}" 64 "length of the hash"
printf '%s\n' 0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3 1F0,1F1,1F2,1B0,1F3,1B1,1B2,1B3 \
    2F0,2F1,2B0,2F2,2B1,2F3,2B2,2B3 3F0,3B0,3F1,3B1,3F2,3B2,3F3,3B3 >by-hand.csv
for method in naive-mp gpipe 1f1b interleaved zb-h1; do
    run 0 train pipe.yaml --out $method "${four[@]}" --set parallel.method=$method
    same "$(field $method/summary.json weights_sha256)" "$sha" $method
    same "$(field $method/summary.json eval_accuracy)" \
        "$(field single/summary.json eval_accuracy)" "accuracy of $method"
    same "$(field $method/summary.json method)" $method "method in the summary"
done
run 0 train pipe.yaml --out by-hand "${four[@]}" --set parallel.schedule_file=by-hand.csv
same "$(field by-hand/summary.json weights_sha256)" "$sha" "schedule written by hand"
run 0 train pipe.yaml --out by-file --set parallel.schedule_file=by-hand.csv
same "$(field by-file/summary.json n_workers)" 4 "stages as the file has them"
same "$(field by-file/summary.json weights_sha256)" "$sha" "stages as the file has them"
run 2 train pipe.yaml --out other --set parallel.schedule_file=by-hand.csv --set parallel.stages=3
says "parallel.stages=3" "by-hand.csv is a schedule of 4 stages" "cut into 3"
[ -e other ] && fail "a refused run left a folder"
(cd by-hand && run 0 train config.yaml --out ../again) || exit 1 # the file is found from anywhere
same "$(field again/summary.json weights_sha256)" "$sha" "resolved config with a schedule file"
run 0 train pipe.yaml --out named --set parallel.method=1f1b --set 'parallel.cuts=[fc.1, fc.2, fc.5]'
grep -q 'cut before fc.1, fc.2, fc.5' err || fail "no word about the cuts"
same "$(field named/summary.json weights_sha256)" "$sha" "cuts by name"
same "$(field named/summary.json n_workers)" 4 "workers"
run 0 train pipe.yaml --out jitter "${four[@]}" --set parallel.method=1f1b --set "run.fault='jitter:ms=2,seed=1'"
same "$(field jitter/summary.json weights_sha256)" "$sha" "random sleeps"
# Another number of stages continues a stopped run.
run 0 train pipe.yaml --out cut "${four[@]}" --set parallel.method=zb-h1 --set train.steps=15
run 0 train pipe.yaml --out cut --set parallel.method=gpipe --set parallel.stages=2 --resume
same "$(field cut/summary.json weights_sha256)" "$sha" "resumed with other stages"
run 0 eval pipe.yaml --checkpoint cut --json
grep -q "\"weights_sha256\": \"$sha\"" out || fail "eval reads other weights"

# --- muon needs whole matrices: any cut, replicas, threads and stages of a resumed run ---
cat >muon.yaml <<YAML
model:
  nodes:
    - {name: input, op: input, shape: [12]}
    - {name: l0, op: linear, out: 40}
    - {name: l1, op: linear, out: 40}
    - {name: r1, op: relu}
    - {name: l2, op: linear, out: 40}
    - {name: r2, op: relu}
    - {name: l3, op: linear, out: 90}
    - {name: head, op: linear, out: 5}
  ties: [{param: l2.weight, owner: l1.weight}]
data: {name: synthetic, n: 50, n_eval: 10}
train: {batch: 8, micro: 4, steps: 6, exact_sum: true, optimizer: {name: muon, lr: 0.01}}
parallel: {threads: 1, backend: ref}
run: {predict: false}
YAML
run 0 train muon.yaml --out muon --quiet
by_one=$(field muon/summary.json weights_sha256)
for layout in 'method: 1f1b, stages: 2' 'method: zb-h1, stages: 3' 'method: 1f1b, stages: 5' \
    'method: dp, replicas: 4' 'method: gpipe, replicas: 2, stages: 2'; do
    run 0 train muon.yaml --out muon-other --quiet --set "parallel={$layout, threads: 1, backend: ref}"
    same "$(field muon-other/summary.json weights_sha256)" "$by_one" "muon, $layout"
    rm -r muon-other
done
run 0 train muon.yaml --out muon-cut --quiet --set train.steps=3 --set 'parallel={method: 1f1b, stages: 4, backend: ref}'
run 0 train muon.yaml --out muon-cut --quiet --set 'parallel={method: dp, replicas: 2, backend: ref}' --resume
same "$(field muon-cut/summary.json weights_sha256)" "$by_one" "muon, resumed with other stages"

# The cpu backend pads rows of 512 weights.
cat >padded.yaml <<YAML
model: {name: mlp, inputs: 512, depth: 3, width: 64, classes: 5}
data: {name: synthetic, n: 64, n_eval: 16}
train: {batch: 16, steps: 6, optimizer: {name: muon, lr: 0.01}}
run: {predict: false}
YAML
for backend in ref cpu; do
    run 0 train padded.yaml --out padded-$backend --quiet --set parallel.backend=$backend
    printf '%.5f\n' "$(field padded-$backend/summary.json eval_loss)" >$backend.loss
done
same "$(cat cpu.loss)" "$(cat ref.loss)" "muon, padded rows"

# --- asynchronous methods: they learn, and the ledger records the weights they used ---
for method in vanilla-async pipedream pipedream-2bw spectrain spectrain-v2 xpipe pipeoptim \
    decay-aware pipemare forerun paci timeprest; do
    run 0 train pipe.yaml --out async-$method "${four[@]}" --set parallel.method=$method \
        --ledger $method.csv --quiet
    same "$(head -n 1 $method.csv)" "stage,replica,micro,pass,version,predict,live" "header"
    same "$(wc -l <$method.csv)" $((1 + 30 * 4 * 4 * 2)) "rows of $method"
done
run 0 train pipe.yaml --out async-t1 "${four[@]}" --set parallel.method=spectrain \
    --set train.micro=1 --ledger ledger.csv
for row in 0,0,0,F,0,3, 0,0,0,B,0,0,0 0,0,20,F,17,3, 0,0,20,B,20,0,20 1,0,20,F,18,2, \
    2,0,20,F,19,2, 2,0,20,B,20,1,20 3,0,20,F,20,1, 3,0,20,B,20,1,20; do
    grep -qx -- "$row" ledger.csv || fail "the ledger of spectrain has no row $row"
done
run 0 train pipe.yaml --out nag "${four[@]}" --set parallel.method=nesterov-async
grep -q 'warning.*nadam' err || fail "nesterov-async without nadam: no warning"
[ "$(ls -- *.tmp 2>/dev/null)" = "" ] || fail "a temporary ledger stayed"
run 2 train pipe.yaml --out no-ledger --ledger nowhere/ledger.csv
says "nowhere/ledger.csv" "No such file"
[ -e no-ledger ] && fail "a run that cannot write its ledger left a folder"

# A method's schedule, written down and read back, is the same run; this one drains every 5 updates.
run 0 schedule spectrain --stages 4 --micro 4 --batches 5 --format text
cp out async.txt
run 0 train pipe.yaml --out async-file "${four[@]}" --set parallel.schedule_file=async.txt \
    --set parallel.weights=spectrain --quiet
run 0 train pipe.yaml --out async-segment "${four[@]}" --set parallel.method=spectrain \
    --set parallel.segment=5 --quiet
same "$(field async-file/summary.json weights_sha256)" \
    "$(field async-segment/summary.json weights_sha256)" "asynchronous schedule from a file"

# --- faults ---
# fault CODE TEXT OUT METHOD. Only a worker that hangs is detected by the stall timeout.
fault() {
    local stall=1000000
    [[ $2 != hang* ]] || stall=5
    run "$1" train pipe.yaml --out "$3" "${four[@]}" --set parallel.method="$4" \
        --set run.stall_timeout=$stall --set "run.fault='$2'" --set run.eval_every=-1 --quiet
}
for method in 1f1b spectrain; do
    fault 3 error:worker=2,step=5 "error-$method" $method
    says "worker 2" "stage 2" "mini-batch 5" "micro-batch" "run.checkpoint_every"
    same "$(field "error-$method/summary.json" status)" failed "status"
    fault 3 hang:worker=1,step=4 "hang-$method" $method
    says "worker 1" "stage 1" "mini-batch 4" "micro-batch" "run.stall_timeout"
    fault 4 nan:worker=3,step=6 "nan-$method" $method
    grep -q 'mini-batch 6,' err || fail "nan: does not say when"
    same "$(field "nan-$method/summary.json" status)" diverged "status"
    run 0 eval pipe.yaml --checkpoint "nan-$method"
    fault 0 slow:worker=2,step=25,ms=1 "slow-$method" $method
done
same "$(field slow-1f1b/summary.json weights_sha256)" "$sha" "one slow worker"

# --- Ctrl-C with four workers: a checkpoint that continues to the same weights ---
begin train pipe.yaml --out stopped "${four[@]}" --set parallel.method=1f1b "${endless[@]}"
wait_while $pid test -s stopped/metrics.jsonl
kill -INT $pid
ends 130 "after SIGINT"
same "$(field stopped/summary.json status)" interrupted "status"
n=$(($(newest stopped) + 20))
whole=("${four[@]}" --set train.steps=$n --set run.eval_every=-1 --set parallel.method=1f1b --quiet)
run 0 train pipe.yaml --out whole "${whole[@]}"
run 0 train pipe.yaml --out stopped "${whole[@]}" --resume
same "$(field stopped/summary.json weights_sha256)" "$(field whole/summary.json weights_sha256)" \
    "stopped and resumed"
same "$(wc -l <stopped/metrics.jsonl)" $n "lines of metrics"
# It ends in the middle of a long run.
for method in 1f1b pipedream; do
    begin train pipe.yaml --out "endless-$method" "${four[@]}" --set train.steps=1000000000 \
        --set train.optimizer.lr=0 --set run.eval_every=-1 --set run.predict=false --set parallel.method=$method
    wait_while $pid test -s "endless-$method/metrics.jsonl"
    kill -INT $pid
    ends 130 "of an endless run"
    grep -q 'continue with --resume' err || fail "no word about how to go on"
done
echo ok
