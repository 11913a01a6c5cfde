# Models that fit: recompute chosen by plan, and at the start of a run (recompute: auto).
# shellcheck shell=bash disable=SC1091,SC2154,SC2086
. "$(dirname "$0")/lib.bash"

cat >net.yaml <<YAML
model: {name: gpt, layers: 4, width: 32, heads: 2, context: 32, vocab: 50, dropout: 0.1}
data: {name: synthetic, n: 100, n_eval: 10}
train: {batch: 32, micro: 8, steps: 3, seed: 3, optimizer: {name: sgd, lr: 0.01}}
parallel: {threads: 1, method: 1f1b, stages: 4}
run: {eval_every: -1}
YAML
sha() { field "$1/summary.json" weights_sha256; }
bytes() { sed 's/"memory_bytes"/\n&/g' "$1" | sed -n 's/^"memory_bytes": \([0-9]*\).*/\1/p'; }
most() { bytes "$1" | sort -n | tail -n 1; }
run 0 profile net.yaml --seconds 0.05 --workers 1 --out profile.json
run 0 simulate net.yaml --profile profile.json --json
plain=$(most out)
run 0 simulate net.yaml --profile profile.json --set parallel.recompute=true --json
whole=$(most out)
[ "$whole" -lt "$plain" ] || fail "recompute frees nothing: $whole, $plain"

# --- auto: within the budget, by the sizes of the engine; the same weights ---
auto="--set parallel.profile=profile.json --set parallel.recompute=auto"
run 0 train net.yaml --out plain
for part in 1 2 3; do
    budget=$((whole + (plain - whole) * part / 4))
    run 0 train net.yaml --out auto$part $auto --set parallel.memory=$budget
    grep -q 'recompute: auto: [0-9]* of [0-9]* nodes, .* % of the forward: ' err || fail "auto says nothing"
    same "$(sha auto$part)" "$(sha plain)" "weights with recompute: auto"
    grep -q '"auto": true' auto$part/summary.json || fail "summary: no auto"
    for what in predicted_peak_bytes peak_bytes; do
        sed -n "s/.*\"$what\": \([0-9]*\).*/\1/p" auto$part/summary.json >$what
    done
    [ -s peak_bytes ] || fail "no sizes in the summary"
    cmp -s predicted_peak_bytes peak_bytes || fail "predicted is not allocated"
    while read -r n; do
        [ "$n" -le $budget ] || fail "a worker took $n bytes of $budget"
    done <peak_bytes
done
n_nodes() { sed -n '/"recompute": {/,/\]/p' "$1/summary.json" | grep -c '^ *"[^"]*",\{0,1\}$'; }
[ "$(n_nodes auto1)" -gt "$(n_nodes auto3)" ] || fail "less memory, no more nodes"
run 0 train net.yaml --out all $auto --set parallel.memory=$plain
grep -q 'every worker fits, nothing is recomputed' err || fail "recompute without need"
run 0 train auto2/config.yaml --out again # the saved config chooses again
same "$(sha again)" "$(sha plain)" "weights of the saved config"

# --- refusals ---
run 2 train net.yaml --out x $auto
grep -q 'auto needs the memory of a worker: set parallel.memory' err || fail "no budget: $(cat err)"
run 2 train net.yaml --out x $auto --set parallel.memory=$((whole / 2))
grep -q 'auto: no set of nodes is enough: with all of them recomputed worker . needs .*, and it has ' err || fail "too small: $(cat err)"
run 2 train net.yaml --out x --set parallel.memory=$((plain - 1))
grep -q 'worker 0 needs .*, parallel.memory allows .* parallel.recompute: auto' err || fail "the limit: $(cat err)"
run 2 train net.yaml --out x --set parallel.recompute=atuo
grep -q 'recompute' err || fail "a word that is none: $(cat err)"
[ ! -e x ] || fail "a refused run left a folder"

# --- plan: nodes by name, and the config runs within the memory of the devices ---
run 0 profile net.yaml --set train.batch=8 --seconds 0.05 --workers 1 --sizes all --out small.json
# The same times on every machine; nodes without a time of their own keep it so.
sed -i -E 's/"(forward|backward)_s": [0-9.e-]*[1-9][0-9.e-]*/"\1_s": 0.001/g' small.json
small="--profile small.json --set train.batch=8" # micro-batches of one sample: none are smaller
run 0 simulate net.yaml $small --json
plain=$(most out)
run 0 simulate net.yaml $small --set parallel.recompute=true --json
whole=$(most out)
cat >four.yaml <<YAML
name: four
device: {speed: 1, memory: $((whole + (plain - whole) / 2))}
topology: {bandwidth: 10 GB/s, latency: 1 us, devices: 4}
YAML
run 0 plan net.yaml --cluster four.yaml $small --methods 1f1b --all --out plan.yaml
grep -q 'recomputes .* of [0-9]* nodes, .* % of the forward' out || fail "the plan does not say: $(cat out)"
grep -q 'recompute: *\[' plan.yaml || grep -A1 'recompute:' plan.yaml | grep -q -- '- ' || fail "no nodes: $(cat plan.yaml)"
run 0 simulate plan.yaml --json
grep -q '"fits": true' out || fail "the plan does not fit: $(cat out)"
