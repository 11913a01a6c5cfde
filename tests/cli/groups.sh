# train.groups: what is frozen stays, in any layout and after a resume; the table; refusals.
# shellcheck shell=bash disable=SC1091,SC2154,SC2086
. "$(dirname "$0")/lib.bash"

cat >net.yaml <<YAML
model: {name: gpt, layers: 2, width: 16, heads: 2, context: 12, vocab: 50}
data: {name: synthetic, n: 100, n_eval: 10}
train:
  batch: 8
  micro: 4
  steps: 6
  clip_norm: 0.5
  optimizer: {name: adamw, lr: 0.01, weight_decay: 0.1}
  groups:
  - {match: embed.*, freeze: true, lr_factor: 0.1}
  - {match: "*.ln_?.*", weight_decay: 0}
  - {match: h.0.*, freeze: true}
  - {match: h.1.mlp.*, lr_factor: 0.5}
parallel: {threads: 1}
run: {eval_every: -1, predict: false, trace: 0, report: false, csv: false, tensorboard: false}
YAML
sha() { field "$1/summary.json" weights_sha256; }

# --- the table ---
run 0 train net.yaml --out one
grep -q 'group embed.\*: [12] parameters*, .* weights, frozen' err || fail "table: $(cat err)"
grep -q 'group \*.ln_?.\*: 8 parameters, 128 weights, weight_decay 0' err || fail "table: $(cat err)"
grep -q 'group h.1.mlp.\*: 4 parameters, .* weights, lr x 0.5' err || fail "table: $(cat err)"
grep -q '"match": "h.0.\*"' one/summary.json || fail "no groups in the summary"

# --- the same weights in any layout, with bf16 messages or not, and resumed ---
for layout in "method: 1f1b, stages: 2" "method: zb-h1, stages: 3" "method: gpipe, stages: 4, recompute: true"; do
    run 0 train net.yaml --out other --quiet --set "parallel={$layout, threads: 1}"
    same "$(sha other)" "$(sha one)" "weights with $layout"
    rm -r other
done
for layout in "method: 1f1b, stages: 2" "method: spectrain, stages: 3" "method: pipedream-2bw, stages: 2"; do
    for precision in fp32 bf16; do
        some=(--quiet --set "parallel={$layout, threads: 1}" --set train.precision=$precision)
        some+=(--set run.checkpoint_every=3)
        run 0 train net.yaml --out whole "${some[@]}"
        cp -r whole cut
        rm -r cut/checkpoint/step-6
        run 0 train net.yaml --out cut "${some[@]}" --resume
        same "$(sha cut)" "$(sha whole)" "resumed, $layout, $precision"
        for file in model optimizer; do
            cmp whole/checkpoint/step-6/$file.safetensors cut/checkpoint/step-6/$file.safetensors ||
                fail "$file of the resumed run, $layout, $precision"
        done
        rm -r whole cut
    done
done

# --- one stage with nothing to train, a forecast, and a run of replicas ---
run 0 train net.yaml --out far --quiet --set run.predict=true --set 'parallel={method: 1f1b, cuts: [h.1.ln_1], threads: 1}'
same "$(sha far)" "$(sha one)" "weights where a stage is frozen"
exact=(--quiet --set train.exact_sum=true)
run 0 train net.yaml --out sum-1 "${exact[@]}" --set parallel.backend=ref
run 0 train net.yaml --out sum-2 "${exact[@]}" --set 'parallel={method: dp, replicas: 2, threads: 1, backend: ref}'
same "$(sha sum-2)" "$(sha sum-1)" "weights of two replicas"

# --- refusals ---
refused() { # GROUPS TEXT
    run 2 train net.yaml --out x --set "train.groups=$1"
    grep -q "$2" err || fail "$1: $(cat err)"
    [ "$(wc -l <err)" = 1 ] || fail "$1: more than a line: $(cat err)"
}
refused '[{match: h.1.mpl.up.weight}]' "no parameter of the model matches 'h.1.mpl.up.weight'; the nearest is h.1.mlp.up.weight"
refused '[{match: "*", freeze: true}]' 'every parameter is frozen: nothing to train'
refused '[{match: "*", lr_factor: -1}]' 'lr_factor.*-1'
refused '[{match: "*", weight_deacy: 0}]' 'weight_deacy.*unknown.*weight_decay'
refused '[{freeze: true}]' 'match is missing'
refused '{match: "*"}' 'expected a list'
[ ! -e x ] || fail "a refused run left a folder"
echo ok
