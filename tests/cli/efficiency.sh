# forerun efficiency: epochs to a quality at each batch, kept between calls, and the time model.
. "$(dirname "$0")/lib.bash"

cat >small.yaml <<YAML
model: {name: mlp, inputs: 12, depth: 2, width: 16, classes: 4}
data: {name: synthetic, n: 512, n_eval: 64}
train: {batch: 8, epochs: 2, seed: 3, optimizer: {name: sgd, lr: 0.02}}
parallel: {threads: 1, pin: false}
YAML

# Every batch gets a line, the smallest one counts as 1.
run 0 efficiency small.yaml --batches 8,32,128 --seeds 2 --max-epochs 12 --out eff
grep -qE '^ +8 +0.02 .* 1.000$' out || fail "no line of batch 8"
grep -qE '^ +128 +0.32 ' out || fail "the rate does not follow the batch"
[ "$(grep -c '^batch' err)" = 7 ] || fail "expected the goal and six trainings"
[ ! -d eff/batch-8-seed-3/checkpoint ] || fail "checkpoints are left"
[ -s eff/batch-8-seed-3/metrics.jsonl ] || fail "no metrics of a trial"
grep -q '"method": "single",' eff/efficiency.json || fail "the file does not name the method"

# Finished trainings are not repeated; another target is answered from their results.
cp -r eff/batch-128-seed-4/metrics.jsonl before
cp out table
run 0 efficiency small.yaml --batches 8,32,128 --seeds 2 --max-epochs 12 --out eff --quiet
cmp -s out table || fail "the second call says something else"
[ ! -s err ] || fail "--quiet"
cmp -s before eff/batch-128-seed-4/metrics.jsonl || fail "a finished training ran again"

# Step times from a file: hybrid wins where the epochs of data parallelism explode.
cat >times.csv <<CSV
devices,dp_s,hybrid_s
1,1.0,
2,1.0,0.6
4,1.1,0.6
16,1.2,0.6
CSV
run 0 efficiency small.yaml --batches 8,32,128 --seeds 2 --max-epochs 12 --out eff --quiet --scaling times.csv
grep -q 'step times as given' out || fail "no second table"
grep -qE '^ +2 .* 2.00x .* 1.67x  dp$' out || fail "two devices"
grep -qE '^hybrid \(2-way pipelines\) (overtakes data parallelism at (4|16) devices|does not overtake)' out ||
    fail "no verdict"
run 0 efficiency small.yaml --batches 8,32,128 --seeds 2 --max-epochs 12 --out eff --quiet --scaling times.csv --json
grep -q '"crossover": ' out || fail "no crossover"
if command -v jq >/dev/null; then
    jq -e 'type == "object"' out >/dev/null || fail "no JSON"
else
    skipped "JSON read by another program" "no jq"
fi

# On the virtual clock, with a measured profile that is kept: one point per number of devices.
cat >three.yaml <<YAML
name: three
device: {speed: 1}
topology: {bandwidth: 1 GB/s, latency: 1 us, devices: 3}
YAML
run 0 efficiency small.yaml --batches 8,32,128 --seeds 2 --max-epochs 12 --out eff --quiet --cluster three.yaml
grep -q 'step times simulated' out || fail "no second table"
[ "$(grep -cE '^ +[123] .*x' out)" = 3 ] || fail "expected 1, 2 and 3 devices"
for file in eff/profile-8.json eff/profile-1.json; do [ -s $file ] || fail "no $file"; done
cp out table
run 0 efficiency small.yaml --batches 8,32,128 --seeds 2 --max-epochs 12 --out eff --quiet --cluster three.yaml
cmp -s out table || fail "the same profile gives other times"
run 0 efficiency small.yaml --batches 8,32,128 --seeds 2 --max-epochs 12 --out eff --quiet --cluster three.yaml --devices 2
[ "$(grep -cE '^ +[123] .*x' out)" = 2 ] || fail "expected 1 and 2 devices"
run 2 efficiency small.yaml --batches 8,32,128 --seeds 2 --max-epochs 12 --out eff --quiet --cluster three.yaml --micro 3 &&
    says "3 equal micro-batches"

# Refusals: one line, exit code 2.
run 2 efficiency small.yaml --batches 8,32 --max-epochs 11 --out eff && says "eff/efficiency.json" "--max-epochs"
run 2 efficiency small.yaml --batches 8,12 --max-epochs 12 --out eff && says "batch 12" "micro-batch"
run 2 efficiency small.yaml --batches 8,x && says "--batches"
run 2 efficiency small.yaml && says "--batches"
run 2 efficiency --batches 8 && says "no config given"
run 2 efficiency small.yaml --batches 8 --target bleu=3 && says "loss=X"
run 2 efficiency small.yaml --batches 8 --scale-lr cubic && says "linear"
run 2 efficiency small.yaml --batches 8 --scaling times.csv --cluster x.yaml && says "not from both"
run 2 efficiency small.yaml --batches 8 --max-epochs 12 --out eff --quiet --scaling none.csv && says "none.csv"
echo '{' >bad.json && mkdir bad && mv bad.json bad/efficiency.json
run 2 efficiency small.yaml --batches 8 --out bad && says "bad/efficiency.json"

# Ctrl-C in the second training: exit code 130; the finished one is kept. If the training ends before
# the signal, it gets more steps.
epochs=25
while :; do
    begin efficiency small.yaml --batches 8,16 --target loss=0 --max-epochs $epochs --out stop
    wait_while $pid test -s stop/batch-16-seed-3/metrics.jsonl
    kill -INT $pid
    code=0
    wait $pid || code=$?
    [ $code = 0 ] || break
    epochs=$((epochs * 4))
    rm -r stop
done
same $code 130 "exit code after Ctrl-C"
grep -q "interrupted; 1 finished" err || fail "it does not say what is kept"
same "$(grep -c '"whole": true' stop/efficiency.json)" 1 "trainings that are kept"
echo ok
