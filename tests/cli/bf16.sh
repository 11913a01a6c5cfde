# bf16 in runs. In the precision bf16, flush schedules give the bits of one worker, and checkpoints are
# those of fp32. Messages of bf16 between workers of an fp32 run: half the bytes, nearly the loss, and
# the same numbers with every flush schedule that has the same cuts on as many workers.
. "$(dirname "$0")/lib.bash"

cat >net.yaml <<YAML
model: {name: mlp, inputs: 12, depth: 6, width: 16, classes: 4}
data: {name: synthetic, n: 100, n_eval: 50}
train: {batch: 8, micro: 4, steps: 30, seed: 3, optimizer: {name: adam, lr: 0.01}}
parallel: {method: 1f1b, stages: 4, threads: 1, pin: false}
run: {trace: 0, predict: false}
YAML
short=(--set parallel.messages=bf16 --quiet)

sent() { # RUN DIRECTION: bytes a sample
    sed -n "/\"traffic\"/,/}/s/.*\"$2\": \([0-9]*\).*/\1/p" "$1/summary.json"
}

# --- half the bytes, measured and simulated ---
run 0 train net.yaml --out long --quiet
run 0 train net.yaml --out short "${short[@]}"
for way in forward backward; do
    same "$(sent short $way)" $(($(sent long $way) / 2)) "$way bytes a sample"
done
same "$(field long/summary.json messages)" fp32 "type of messages"
same "$(field short/summary.json messages)" bf16 "type of short messages"
same "$(field short/summary.json precision)" fp32 "precision beside short messages"
bytes() { # ARGUMENT...: of the messages of a simulated mini-batch
    run 0 simulate net.yaml --json "$@"
    sed -n 's/.*"message_bytes": \([0-9]*\).*/\1/p' out
}
per_batch=$((8 * 2 * $(sent long forward)))
run 0 profile net.yaml --format json --out profile.json
for how in "" profile.json; do
    sets=(${how:+--profile $how})
    same "$(bytes "${sets[@]}")" $per_batch "simulated bytes ${how:-as measured}"
    same "$(bytes --set parallel.messages=bf16 "${sets[@]}")" $((per_batch / 2)) \
        "simulated short bytes ${how:-as measured}"
done

# --- nearly the loss; other bits, which are those of any flush schedule with these cuts ---
awk "BEGIN { d = $(field short/summary.json eval_loss) / $(field long/summary.json eval_loss) - 1
    exit !(d < 0.02 && d > -0.02) }" || fail "loss with short messages"
sha=$(field short/summary.json weights_sha256)
[ "$sha" != "$(field long/summary.json weights_sha256)" ] || fail "messages were not rounded"
for method in gpipe zb-h1 zb-h2; do
    run 0 train net.yaml --out $method --set parallel.method=$method "${short[@]}"
    same "$(field $method/summary.json weights_sha256)" "$sha" "short messages of $method"
done

# --- the link inside a worker of a V is not a message ---
cuts=(--set 'parallel.cuts=[fc.2, fc.3, fc.4]')
run 0 train net.yaml --out v-long --set parallel.method=zbv "${cuts[@]}" --quiet
run 0 train net.yaml --out v-short --set parallel.method=zbv "${cuts[@]}" "${short[@]}"
same "$(sent v-short forward)" $(($(sent v-long forward) / 2)) "bytes in a V"

# --- the precision of a run: flush schedules give the losses and the checkpoint of one worker ---
half=(--set train.precision=bf16 --quiet)
losses() { sed 's/ "samples_per_s": [^,]*, "elapsed_s": [^,}]*,\{0,1\}//' "$1/metrics.jsonl"; }
as_one_worker() { # RUN
    cmp <(losses "$1") <(losses one-worker) >&2 || fail "$1: losses"
    for file in model optimizer; do
        cmp "$1/checkpoint/step-30/$file.safetensors" "one-worker/checkpoint/step-30/$file.safetensors" ||
            fail "$1: $file"
    done
}
run 0 train net.yaml --out one-worker --set parallel.method=single --set parallel.stages=1 "${half[@]}"
same "$(losses one-worker | wc -l)" 30 "mini-batches"
for method in gpipe 1f1b zb-h1 zb-h2 zbv interleaved; do
    run 0 train net.yaml --out half-$method --set parallel.method=$method "${half[@]}"
    as_one_worker half-$method
    same "$(field half-$method/summary.json precision)" bf16 "precision of $method"
    same "$(field half-$method/summary.json messages)" bf16 "messages of $method"
done
for way in forward backward; do
    same "$(sent half-1f1b $way)" "$(sent short $way)" "$way bytes a sample in bf16"
done
run 0 train net.yaml --out recomputed --set parallel.recompute=true "${half[@]}"
as_one_worker recomputed
sha=$(field one-worker/summary.json weights_sha256)
run 0 train net.yaml --out again --set parallel.method=single --set parallel.stages=1 --quiet
[ "$sha" != "$(field again/summary.json weights_sha256)" ] || fail "nothing was rounded"
awk "BEGIN { d = $(field one-worker/summary.json eval_loss) / $(field again/summary.json eval_loss) - 1
    exit !(d < 0.05 && d > -0.05) }" || fail "loss in bf16"
same "$(stat -c %s one-worker/checkpoint/step-30/*.safetensors)" "$(stat -c %s again/checkpoint/step-30/*.safetensors)" \
    "bytes of checkpoints"

# --- asynchronous methods: the same numbers every time, near those of fp32 ---
for method in spectrain xpipe forerun; do
    run 0 train net.yaml --out long-$method --set parallel.method=$method --quiet
    for n in 1 2; do
        run 0 train net.yaml --out half-$method-$n --set parallel.method=$method "${half[@]}"
    done
    cmp <(losses half-$method-1) <(losses half-$method-2) || fail "$method does not repeat its losses"
    same "$(field half-$method-1/summary.json weights_sha256)" "$(field half-$method-2/summary.json weights_sha256)" \
        "weights of $method"
    awk "BEGIN { d = $(field half-$method-1/summary.json eval_loss) / $(field long-$method/summary.json eval_loss) - 1
        exit !(d < 0.1 && d > -0.1) }" || fail "loss of $method in bf16"
done

# --- memory is what was forecast; messages are what was simulated, also on a cluster ---
for made in half-1f1b half-zb-h1 half-spectrain-1 half-xpipe-1 half-forerun-1 one-worker short; do
    field $made/summary.json peak_bytes >taken
    field $made/summary.json predicted_peak_bytes >forecast
    [ -s taken ] || fail "$made: no memory"
    cmp taken forecast || fail "$made: memory"
done
same "$(bytes --set train.precision=bf16)" $((per_batch / 2)) "simulated bytes in bf16"
cat >four.yaml <<YAML
name: four
device: {speed: 1, memory: 1 GB}
topology: {bandwidth: 1 GB/s, latency: 10 us, devices: 4}
YAML
run 0 train net.yaml --out emulated --set parallel.cluster=four.yaml "${half[@]}"
as_one_worker emulated
same "$(sent emulated forward)" "$(sent half-1f1b forward)" "bytes of an emulated run"
for precision in fp32 bf16; do
    run 0 profile net.yaml --format json --out $precision.json --set train.precision=$precision
    run 0 plan net.yaml --cluster four.yaml --profile $precision.json --methods 1f1b --out plan-$precision.yaml \
        --set train.precision=$precision
    grep -q "precision: $precision" plan-$precision.yaml || fail "plan forgets the precision"
    run 0 train plan-$precision.yaml --out planned-$precision --quiet
    same "$(field planned-$precision/summary.json precision)" $precision "precision of a plan"
done

# --- a checkpoint goes on in either precision ---
for change in bf16:fp32 fp32:bf16 bf16:bf16; do
    from=${change%:*} to=${change#*:}
    run 0 train net.yaml --out $from-$to --set train.precision=$from --set run.checkpoint_every=15 --quiet
    rm -r $from-$to/checkpoint/step-30
    run 0 train net.yaml --out $from-$to --set train.precision=$to --resume --quiet
    if [ $from = $to ]; then
        as_one_worker $from-$to
    else
        grep -q "train.precision $to (was $from)" err || fail "no word about another precision"
    fi
done
evaluated() { # ARGUMENT...
    run 0 eval net.yaml --checkpoint fp32-bf16 --json --quiet "$@"
    sed -n 's/.*"eval_loss": \([^,]*\),.*/\1/p' out
}
loss=$(field fp32-bf16/summary.json eval_loss)
same "$(evaluated --set train.precision=bf16)" "$loss" "loss of eval in bf16"
[ "$(evaluated)" != "$loss" ] || fail "eval in fp32 was in bf16"

# --- the other commands ---
for _ in $(seq 40); do printf 'one two three four five six seven eight nine ten. '; done >rhyme.txt
cat >gpt.yaml <<YAML
model: {name: gpt, layers: 1, width: 32, heads: 2, context: 16, dropout: 0}
data: {name: text, path: rhyme.txt}
train: {batch: 16, steps: 400, precision: bf16, optimizer: {name: adamw, lr: 0.01}, schedule: {name: cosine}}
parallel: {threads: 1}
run: {out: gpt}
YAML
run 0 train gpt.yaml --quiet
for precision in bf16 fp32; do
    run 0 generate gpt.yaml --prompt 'one two three ' --tokens 40 --temperature 0 --set train.precision=$precision
    same "$(cat out)" 'four five six seven eight nine ten. one ' "text in $precision"
done
run 0 checkpoint verify half-1f1b
run 0 report half-1f1b half-spectrain-1 --out page.html
run 0 compare net.yaml --methods 1f1b,spectrain --out compared "${half[@]}"
same "$(find compared -name summary.json -exec grep -h '"precision"' {} + | sort -u)" '  "precision": "bf16",' \
    "precision of compared runs"

# --- a processor without the instructions says so, once ---
export ONEDNN_MAX_CPU_ISA=AVX2
run 0 train net.yaml --out by-storage --set train.precision=bf16
same "$(grep -c 'no instructions for bf16: values are stored as bf16 and computed in fp32' err)" 1 "words about the fallback"
run 0 train net.yaml --out fp32
! grep -q 'instructions for bf16' err || fail "words about bf16 in an fp32 run"
run 0 info
[ "$(grep -c 'GF/s in fp32, .* GF/s in bf16 (stored as bf16, computed in fp32)' out)" -ge 2 ] || fail "info: no fallback"
unset ONEDNN_MAX_CPU_ISA
run 0 info --json
same "$(field out bf16 | grep -c '^[1-9]')" "$(grep -c '"device"' out)" "rates in bf16"
if grep -q '"device": ".*bf16' out; then
    same "$(field out computes_bf16 | sort -r | tr '\n' ' ')" "true false " "backends that compute in bf16"
    run 0 train net.yaml --out by-instructions --set train.precision=bf16
    ! grep -q 'no instructions' err || fail "words about a fallback that is none"
else
    skipped "bf16 by instructions" "this processor has none"
fi

# --- where it means nothing ---
run 0 train net.yaml --out one --set parallel.method=single --set parallel.stages=1 --set parallel.messages=bf16
grep -q 'parallel.messages has no effect' err || fail "no word about messages of one worker"
run 2 train net.yaml --out both --set parallel.messages=fp32 --set train.precision=bf16 --quiet
says parallel.messages=fp32 "leave parallel.messages out"
run 2 train net.yaml --out odd --set train.precision=fp16 --quiet
says train.precision=fp16 "'fp16' is neither 'fp32' nor 'bf16'"
run 2 train net.yaml --out odd --set parallel.messages=fp8 --quiet
says parallel.messages=fp8 "'fp8' is neither 'fp32' nor 'bf16'"
echo ok
