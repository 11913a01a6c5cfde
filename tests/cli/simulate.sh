# Forecasts before a run, simulated runs, emulated clusters.
# shellcheck shell=bash disable=SC1091,SC2154,SC2086
. "$(dirname "$0")/lib.bash"

cat >net.yaml <<YAML
model: {name: mlp, inputs: 12, depth: 4, width: 16, classes: 4}
data: {name: synthetic, n: 100, n_eval: 50}
train: {batch: 16, micro: 4, steps: 12, seed: 3, optimizer: {name: sgd, lr: 0.01, momentum: 0.9}}
parallel: {threads: 1}
YAML
cat >pair.yaml <<YAML
name: a pair
device: {name: fast, speed: 1, memory: 1 GB}
topology: {bandwidth: 100 MB/s, latency: 100 us, devices: 2}
YAML
sed 's/1 GB/10 kB/; s/a pair/small/' pair.yaml >small.yaml
sha() { field "$1/summary.json" weights_sha256; }
two="parallel={threads: 1, method: 1f1b, stages: 2}"

# --- every run prints a forecast, unless it is switched off ---
run 0 train net.yaml --out plain --set "$two"
grep -q 'forecast: .* per mini-batch' err || fail "no forecast before the run"
grep -q 'a mini-batch took .*, forecast ' err || fail "no forecast beside the measured time"
[ "$(field plain/summary.json predicted_s_per_batch)" != null ] || fail "no forecast kept"
[ "$(field plain/summary.json prediction_error)" != null ] || fail "no error kept"
run 0 train net.yaml --out silent --set "$two" --set run.predict=false
! grep -q "forecast: " err || fail "a forecast that was switched off"
same "$(field silent/summary.json predicted_s_per_batch)" null "forecast not made"
same "$(sha silent)" "$(sha plain)" "weights with and without a forecast"

# --- emulated: marked everywhere, the same weights ---
run 0 train net.yaml --out emulated --set "$two" --set parallel.cluster=pair.yaml
grep -q 'EMULATED on a pair' err || fail "an emulated run must say so"
grep -q '(emulated)' err || fail "an emulated time must say so"
grep -q '"emulated"' emulated/summary.json || fail "summary: not marked as emulated"
same "$(sha emulated)" "$(sha plain)" "weights of an emulated run"
run 0 train emulated/config.yaml --out again # the saved config finds the cluster
same "$(sha again)" "$(sha plain)" "weights of the saved config"

# --- refusals ---
run 2 train net.yaml --out x --set "$two" --set parallel.cluster=small.yaml
grep -q 'device fast.* of .*small.yaml has' err || fail "memory of a device: $(cat err)"
run 2 train net.yaml --out x --set parallel.method=1f1b --set parallel.stages=3 --set parallel.cluster=pair.yaml
grep -q 'the run has 3 workers, .* has 2 devices' err || fail "too few devices: $(cat err)"
run 2 train net.yaml --out x --set "$two" --set parallel.cluster=pair.yaml --set 'parallel.devices=[0, 0]'
grep -q 'device 0 has two workers' err || fail "one device twice: $(cat err)"
run 2 train net.yaml --out x --set "$two" --set 'parallel.devices=[0, 1]'
grep -q 'set parallel.cluster too' err || fail "devices of nothing: $(cat err)"
run 2 train net.yaml --out x --set "$two" --set 'parallel.recompute=[2]'
grep -q 'there is no stage 2' err || fail "recompute of nothing: $(cat err)"
run 2 train net.yaml --out x --set "$two" --set 'parallel.recompute=[1, fc.2.rellu]'
grep -q "parallel.recompute=.*: no node of the model is called 'fc.2.rellu'; the nearest is 'fc.2.relu'" err ||
    fail "recompute of a name that is nearly one: $(cat err)"
run 2 train net.yaml --out x --set "$two" --set 'parallel.recompute=["h.*.ln"]'
grep -q "no node of the model is called 'h.\*.ln'" err || fail "a pattern of nothing: $(cat err)"
[ ! -e x ] || fail "a refused run left a folder"

# --- recompute: of stages or nodes, the same weights, memory as forecast ---
for nodes in true '[1]' '["fc.*.relu"]' '[0, fc.3, "fc.2.*"]'; do
    run 0 train net.yaml --out again2 --set "$two" --set "parallel.recompute=$nodes"
    same "$(sha again2)" "$(sha plain)" "weights with recompute: $nodes"
    same "$(grep -o '"peak_bytes": [0-9]*' again2/summary.json | cut -d' ' -f2)" \
        "$(grep -o '"predicted_peak_bytes": [0-9]*' again2/summary.json | cut -d' ' -f2)" \
        "bytes with recompute: $nodes"
    run 0 train again2/config.yaml --out again3 # the saved config has the same entries
    same "$(sha again3)" "$(sha plain)" "weights of the saved config"
    rm -r again2 again3
done

# --- simulate ---
run 0 simulate net.yaml --set "$two" --cluster pair.yaml --trace t.json
grep -q '^simulated: a mini-batch takes' out || fail "no time"
grep -q SIMULATED t.json || fail "a trace of a simulation must say so"
run 0 simulate net.yaml --set "$two" --cluster small.yaml
grep -q 'does NOT fit' out || fail "does not fit"
run 0 simulate net.yaml --set "$two" --cluster pair.yaml --json
grep -q '"simulated": true' out || fail "JSON"
run 2 simulate
run 2 simulate net.yaml --cluster nowhere.yaml

# --- which devices, on a cluster that only --cluster names ---
cat >mixed.yaml <<YAML
name: mixed
topology:
  bandwidth: 1 GB/s
  devices: [{name: slow, speed: 1, count: 2}, {name: fast, speed: 4, count: 2}]
YAML
run 0 profile net.yaml --batch 4 --seconds 0.1 --out cost.json
per_batch() { run 0 simulate net.yaml --set "$two" --cluster "$1" --profile cost.json --json "${@:2}"; sed -n 's/.*"s_per_batch": \([0-9.e+-]*\),.*/\1/p' out; }
first=$(per_batch mixed.yaml)
slow=$(per_batch mixed.yaml --set 'parallel.devices=[0, 1]')
fast=$(per_batch mixed.yaml --set 'parallel.devices=[3, 2]')
[ -n "$first" ] || fail "no time in the JSON"
same "$slow" "$first" "the first devices, by name and by default"
awk -v a="$fast" -v b="$slow" 'BEGIN { exit !(a < b / 2) }' || fail "fast devices: $fast s, slow ones: $slow s"
mkdir -p "it's here" && cp mixed.yaml "it's here"
same "$(per_batch "it's here/mixed.yaml")" "$first" "a cluster file with a quote in its path"
run 2 simulate net.yaml --set "$two" --cluster mixed.yaml --set 'parallel.devices=[0, 4]'
says "no device 4" "0 to 3"
run 2 simulate net.yaml --set "$two" --set 'parallel.devices=[0, 1]'
says "parallel.cluster"

# --- the plan takes the fast devices, and names them ---
run 0 plan net.yaml --cluster mixed.yaml --profile cost.json --devices 2 --methods 1f1b --json
grep -q '"devices": \[[23], [23]\]' out || fail "not the fast devices: $(cat out)"
run 0 plan net.yaml --cluster mixed.yaml --profile cost.json --devices 2 --planner exact --stages 2 --out plan.yaml
grep -q 'devices: \[[23], [23]\]' plan.yaml || fail "exact: not the fast devices"
for planner in pipedream dapple bapipe; do
    run 0 plan net.yaml --cluster mixed.yaml --profile cost.json --devices 2 --planner $planner --json
    ! grep -o '"devices": \[[^]]*\]' out | grep -q '[01]' || fail "$planner: a slow device"
done
