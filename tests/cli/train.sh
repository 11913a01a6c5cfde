# A run from end to end: files, repeatability, resume, evaluation, dump, Ctrl-C.
. "$(dirname "$0")/lib.bash"

run 0 train net.yaml --out a
grep -q 'accuracy' out || fail "no outcome on stdout"
for file in config.yaml metrics.jsonl summary.json checkpoint/step-40/{model,optimizer}.safetensors \
    checkpoint/step-40/state.json; do
    [ -s "a/$file" ] || fail "a/$file is missing"
done
same "$(wc -l <a/metrics.jsonl)" 40 "lines of metrics"
for key in step samples loss lr samples_per_s elapsed_s; do
    same "$(grep -c "\"$key\": " a/metrics.jsonl)" 40 "metrics with $key"
done
sha=$(field a/summary.json weights_sha256)
same "${#sha}" 64 "length of the hash"
[ "$(ls -A a/checkpoint)" = step-40 ] || fail "more than one checkpoint"

# The same seed, twice; another one.
run 0 train net.yaml --out b --quiet
[ ! -s err ] && [ ! -s out ] || fail "--quiet speaks"
same "$(field b/summary.json weights_sha256)" "$sha" "same seed"
run 0 train net.yaml --out c --set train.seed=4
[ "$(field c/summary.json weights_sha256)" != "$sha" ] || fail "another seed, the same weights"

# 40 = 20 + 20, to the byte.
run 0 train net.yaml --out d --set train.steps=20
run 0 train net.yaml --out d --resume
cmp a/checkpoint/step-40/model.safetensors d/checkpoint/step-40/model.safetensors || fail "weights"
cmp a/checkpoint/step-40/optimizer.safetensors d/checkpoint/step-40/optimizer.safetensors ||
    fail "optimizer"
for key in weights_sha256 train_loss eval_loss eval_accuracy samples; do
    same "$(field d/summary.json $key)" "$(field a/summary.json $key)" "resumed $key"
done
cut -d, -f1-4 a/metrics.jsonl >m1
cut -d, -f1-4 d/metrics.jsonl >m2
cmp m1 m2 || fail "metrics of the resumed run"
run 0 train a/config.yaml --out e # the resolved config is the same run
same "$(field e/summary.json weights_sha256)" "$sha" "resolved config"

# --resume without a checkpoint starts from the beginning.
run 0 train net.yaml --out f --resume --json
grep -q 'from the beginning' err || fail "no word about the beginning"
same "$(field out weights_sha256)" "$sha" "--json"

# A used folder is not touched without --resume.
before=$(find a -type f -exec sha256sum {} + | sort)
run 2 train net.yaml --out a
says "a: already holds a run" "--resume" "--out"
same "$(find a -type f -exec sha256sum {} + | sort)" "$before" "files of a"

# Evaluation of the run, of its checkpoint, and by default of run.out.
run 0 eval net.yaml --checkpoint a --json
grep -q "\"weights_sha256\": \"$sha\"" out || fail "eval reads other weights"
run 0 eval net.yaml --checkpoint a/checkpoint/step-40
run 2 eval net.yaml
says "run: no checkpoint"

# A dump does not change the run, and holds the expected tensors.
run 0 train net.yaml --out g --dump-step 3
same "$(field g/summary.json weights_sha256)" "$sha" "dumped run"
for name in input target loss param.fc.0.weight grad.fc.0.weight param_after.fc.0.weight; do
    grep -aqF "\"$name\"" g/step-3.safetensors || fail "the dump has no $name"
done
run 2 train net.yaml --out h --dump-step 41
says "--dump-step 41" "1 to 40"
[ ! -e h ] || fail "a refused run left a folder"

# Ctrl-C: checkpoint, exit code 130, and the resumed run gives the same weights.
for signal in INT TERM; do
    begin train net.yaml --out "cut$signal" "${endless[@]}"
    wait_while $pid test -s "cut$signal/metrics.jsonl"
    kill -$signal $pid
    ends 130 "after SIG$signal"
    grep -q 'continue with --resume' err || fail "no word how to go on"
    same "$(field cut$signal/summary.json status)" interrupted "status"
    n=$(($(newest cut$signal) + 20))
    whole=(--set train.steps=$n --set run.eval_every=-1 --quiet)
    run 0 train net.yaml --out whole$signal "${whole[@]}"
    run 0 train net.yaml --out "cut$signal" "${whole[@]}" --resume
    same "$(field cut$signal/summary.json weights_sha256)" \
        "$(field whole$signal/summary.json weights_sha256)" "stopped by SIG$signal and resumed"
    same "$(wc -l <cut$signal/metrics.jsonl)" $n "lines of metrics after SIG$signal"
done

# Two signals at the same moment, as timeout(1) and launchers send them, are one request.
begin train net.yaml --out cutboth "${endless[@]}"
wait_while $pid test -s cutboth/metrics.jsonl
kill -STOP $pid
kill -INT $pid
kill -TERM $pid
kill -CONT $pid
ends 130 "after two signals at once"
same "$(field cutboth/summary.json status)" interrupted "status after two signals at once"
echo ok
