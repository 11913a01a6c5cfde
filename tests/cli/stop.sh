# train.stop and run.keep_best: a run ends after evaluations without a better one, also when it is
# resumed; the checkpoint of the best evaluation is kept.
# shellcheck shell=bash disable=SC1091,SC2154,SC2086
. "$(dirname "$0")/lib.bash"

cat >net.yaml <<YAML
model: {name: mlp, inputs: 12, depth: 2, width: 16, classes: 4}
data: {name: synthetic, n: 64, n_eval: 32}
train: {batch: 16, steps: 40, optimizer: {name: sgd, lr: 0.5, momentum: 0.9}}
parallel: {threads: 1}
run: {eval_every: 2, checkpoint_every: 4, keep: 1, predict: false, trace: 0, report: false, csv: false, tensorboard: false}
YAML
sha() { field "$1/summary.json" weights_sha256; }
# evaluations FOLDER KEY: "STEP VALUE" of each.
evaluations() { sed -n "s/.*\"step\": *\([0-9]*\),.*\"$2\": *\([-0-9.e]*\)[,}].*/\1 \2/p" "$1/metrics.jsonl"; }
steps_of() { (cd "$1/checkpoint" && echo step-*); }
# best FOLDER: "STEP VALUE" by the summary.
best() { sed -n '/"best": {/,/}/p' "$1/summary.json" | sed -n 's/.*"\(value\|step\)": \([^,]*\),\{0,1\}$/\2/p' | paste -sd' ' | awk '{ print $2, $1 }'; }

# --- nothing improves: three evaluations, the first is the best ---
still=(--set train.optimizer.lr=0 --set train.optimizer.momentum=0 --set train.stop.patience=2 --set run.keep_best=true)
run 0 train net.yaml --out still "${still[@]}"
grep -q 'ends early after 6 updates: 2 evaluations without a better loss than' err || fail "no line: $(cat err)"
same "$(field still/summary.json steps)" 6 "updates"
same "$(field still/summary.json status)" done "status"
grep -q '"ended_early": true' still/summary.json || fail "the summary does not say that it ended early"
same "$(steps_of still)" "step-2 step-6" "checkpoints"
run 0 train net.yaml --out still "${still[@]}" --resume # nothing to do
same "$(field still/summary.json steps)" 6 "updates after a resume"
run 0 train net.yaml --out still "${still[@]}" --set train.stop.patience=3 --resume
same "$(field still/summary.json steps)" 8 "updates with more patience"

# A checkpoint whose evaluation was not judged (it was interrupted, or nothing judged) is judged first.
run 0 train net.yaml --out later --set train.optimizer.lr=0 --set train.optimizer.momentum=0 --set train.steps=8 --quiet
run 0 train net.yaml --out later "${still[@]}" --resume --quiet
same "$(field later/summary.json steps) $(best later | cut -d' ' -f1)" "12 8" "updates, and the best"

# --- a run that learns: the best is the least of all evaluations, and is kept ---
run 0 train net.yaml --out whole --set run.keep_best=true --quiet
evaluations whole eval_loss >all
[ "$(wc -l <all)" = 20 ] || fail "$(wc -l <all) evaluations"
least=$(sort -g -k2,2 -s all | head -n 1)
same "$(best whole | cut -d' ' -f1)" "${least% *}" "the step of the best"
[ -d "whole/checkpoint/step-${least% *}" ] || fail "the best is not kept: $(steps_of whole)"
run 0 train net.yaml --out plain --quiet
same "$(sha plain)" "$(sha whole)" "weights beside keep_best"
run 0 eval net.yaml --checkpoint "whole/checkpoint/step-${least% *}" --json
grep -q "\"eval_loss\": $(echo "${least#* }" | cut -c1-7)" out || fail "the checkpoint of the best has another loss than $least"
run 0 train net.yaml --out right --quiet --set train.stop.metric=accuracy --set run.keep_best=true
most=$(evaluations right eval_accuracy | sort -g -k2,2 -r -s | head -n 1)
same "$(best right | cut -d' ' -f1)" "${most% *}" "the step of the best accuracy"

# --- interrupted anywhere, a run ends where an uninterrupted one does, with its weights ---
stop=(--quiet --set train.stop.patience=3 --set train.stop.min_delta=0.01 --set run.keep_best=true --set train.schedule.name=cosine)
run 0 train net.yaml --out one "${stop[@]}" --set run.keep=99
[ "$(field one/summary.json steps)" -lt 40 ] || fail "the run went on: choose another network"
for cut in one/checkpoint/step-*; do
    n=${cut##*-}
    [ "$n" -lt "$(field one/summary.json steps)" ] || continue
    cp -r one cut
    for step in cut/checkpoint/step-*; do
        [ "${step##*-}" -le "$n" ] || rm -r "$step"
    done
    run 0 train net.yaml --out cut "${stop[@]}" --set run.keep=99 --resume
    same "$(field cut/summary.json steps)" "$(field one/summary.json steps)" "updates, resumed at $n"
    same "$(sha cut)" "$(sha one)" "weights, resumed at $n"
    same "$(best cut)" "$(best one)" "the best, resumed at $n"
    same "$(steps_of cut)" "$(steps_of one)" "checkpoints, resumed at $n"
    rm -r cut
done
run 0 train net.yaml --out two "${stop[@]}" --set 'parallel={method: 1f1b, stages: 2, threads: 1}' --set train.micro=4
run 0 train net.yaml --out micro "${stop[@]}" --set train.micro=4
same "$(field two/summary.json steps) $(best two)" "$(field micro/summary.json steps) $(best micro)" "two stages"

# --- refusals ---
run 2 train net.yaml --out x --set train.stop.patience=2 --set run.eval_every=0
says "eval_every" "train.stop.patience needs evaluations during the run"
run 2 train net.yaml --out x --set run.keep_best=true --set run.eval_every=-1
says "run.keep_best needs evaluations during the run"
run 2 train net.yaml --out x --set train.stop.patience=2 --set data.n_eval=0
says "has no evaluation part"
run 2 train net.yaml --out x --set train.stop.metric=acuracy
says "'acuracy' is neither 'loss' nor 'accuracy'"
[ ! -e x ] || fail "a refused run left a folder"
echo ok
