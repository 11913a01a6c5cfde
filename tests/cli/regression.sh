# Regression: targets of floats from tables and arrays, every loss, pipelines, replicas and processes
# with the bits of one worker, resumed runs, metrics that fit, and clear refusals.
. "$(dirname "$0")/lib.bash"
. "$source_dir/tests/cli/launcher.bash"

"$source_dir/scripts/make-regression-data.sh" .
cp "$source_dir/examples/regression.yaml" .
example=regression.yaml

# The worked example learns: the targets vary by about 1 and 0.3, the noise is 0.02.
run 0 train "$example" --set run.predict=false
grep -q 'mean absolute error' out || fail "no mean absolute error"
! grep -q 'accuracy' out err || fail "a regression has no accuracy"
awk -v x="$(field regression/summary.json eval_mae)" 'BEGIN { exit !(x > 0.005 && x < 0.05) }' ||
    fail "mean absolute error $(field regression/summary.json eval_mae)"
same "$(field regression/summary.json eval_accuracy)" null "accuracy"
grep -q '"eval_mae": ' regression/metrics.jsonl || fail "metrics.jsonl has no eval_mae"
! grep -q eval_accuracy regression/metrics.jsonl || fail "metrics.jsonl has an accuracy"
run 0 eval "$example" --json
grep -qF "\"eval_mae\": $(field regression/summary.json eval_mae)," out || fail "eval: another error"

# One worker, pipelines with a flush, replicas: the same weights and errors, for every loss. NAME OF
# THE RUN, LOSS, SETTINGS...
train() {
    local out=$1 loss=$2
    shift 2
    run 0 train "$example" --quiet --out "$out" --set "model={name: mlp, depth: 4, width: 16, $loss}" \
        --set train.steps=12 --set train.batch=40 --set train.micro=4 --set run.predict=false \
        --set train.exact_sum=true "$@"
    say=$(for key in weights_sha256 train_loss eval_loss eval_mae eval_accuracy; do
        field "$out/summary.json" $key; done)
}
# Targets of bce are in 0..1.
sed 's/$/,0/; 1s/0$/label/' train.csv | awk -F, -v OFS=, 'NR > 1 { $7 = $1 > $3; $5 = $4 > 0 } 1' >shares.csv
one="--set parallel.method=single --set parallel.stages=1"
for loss in mse 'smooth_l1, beta: 0.5' cosine bce; do
    data=()
    [ "$loss" != bce ] || data=(--set "data={name: csv, path: shares.csv, eval_path: shares.csv, targets: [label, price], skip: [rent]}")
    # shellcheck disable=SC2086
    train one "loss: $loss" $one "${data[@]}"
    wanted=$say
    case $loss in
    bce) [ "$(field one/summary.json eval_accuracy)" != null ] || fail "bce: no accuracy" ;;
    *) same "$(field one/summary.json eval_accuracy)" null "$loss: accuracy" ;;
    esac
    for way in gpipe,stages=3 1f1b,stages=4 zb-h1,stages=2 1f1b,stages=2,replicas=2; do
        IFS=, read -r method a b <<<"$way"
        train way "loss: $loss" --set parallel.method="$method" --set parallel."$a" ${b:+--set parallel."$b"} "${data[@]}"
        same "$say" "$wanted" "$loss, $way"
        rm -rf way
    done
    if [ "$loss" = mse ] && [ ${#mpirun[@]} != 0 ]; then
        timeout -k 5 "$patience_s" "${mpirun[@]}" -n 2 "$forerun" train "$example" --quiet --out way \
            --set "model={name: mlp, depth: 4, width: 16, loss: mse}" --set train.steps=12 \
            --set train.batch=40 --set train.micro=4 --set run.predict=false \
            --set train.exact_sum=true >out 2>err </dev/null || fail "mpirun"
        same "$(for key in weights_sha256 train_loss eval_loss eval_mae eval_accuracy; do
            field way/summary.json $key; done)" "$wanted" "mpirun"
        rm -rf way
    fi
    if [ "$loss" = cosine ]; then # a run in two parts
        rm -rf one
        train one "loss: $loss" --set 'train.schedule={name: constant}'
        wanted=$say
        train way "loss: $loss" --set 'train.schedule={name: constant}' --set train.steps=5
        train way "loss: $loss" --set 'train.schedule={name: constant}' --resume
        same "$say" "$wanted" "resumed"
        rm -rf way
    fi
    rm -rf one
done
[ ${#mpirun[@]} != 0 ] || skipped "mpirun" "built without MPI, or no mpirun"

# A missing target does not count: the loss is that of the other rows.
awk -F, -v OFS=, 'NR > 1 && NR <= 501 { $6 = "" } 1' train.csv >holes.csv
{ head -n 1 train.csv; tail -n 500 train.csv; } >half.csv
cat >small.yaml <<YAML
model: {name: mlp, depth: 1, width: 8, loss: mse}
data: {name: csv, path: train.csv, eval_path: half.csv, targets: [rent], skip: [price]}
train: {batch: 50, steps: 4, optimizer: {name: sgd, lr: 0.01}}
parallel: {threads: 1}
run: {out: small, predict: false}
YAML
run 0 train small.yaml --quiet
run 0 eval small.yaml --json
cp out wanted
run 0 eval small.yaml --json --set data.eval_path=holes.csv
grep -qE "\"eval_mae\": $(sed 's/.*"eval_mae": \([0-9.]\{8\}\).*/\1/' wanted)" out || fail "holes"

# Synthetic data, profiles and forecasts have targets of floats too.
run 0 train net.yaml --quiet --set model.loss=bce --set train.steps=3

# Refusals name the place.
bad() { # TEXTS... -- ARGUMENTS...
    local texts=()
    while [ "$1" != -- ]; do texts+=("$1") && shift; done
    shift
    run 2 train small.yaml --quiet --out bad "$@"
    rm -rf bad
    says "${texts[@]}"
}
bad "model.loss=msee" "no loss" mse cosine -- --set model.loss=msee
bad "loss cross_entropy reads classes" "data csv are numbers" "model.loss" -- --set model.loss=cross_entropy
bad "loss mse reads numbers" "data text are classes" -- --set "data={name: text, path: train.csv}" \
    --set "model={name: gpt, layers: 1, width: 8, heads: 1, loss: mse}"
bad "gives numbers (3) to loss mse" "targets ()" -- --set model.classes=3
bad "beta" "smooth_l1" -- --set model.beta=2
bad "label_smoothing" "cross_entropy" -- --set model.label_smoothing=0.1
bad "outside 0 .. 1" "bce" -- --set model.loss=bce
bad "no column 'cost'" "train.csv" -- --set 'data.targets=[cost]'
bad "named twice" -- --set 'data.targets=[price]'
bad "no file nowhere.csv" -- --set data.path=nowhere.csv
printf 'a,b\n1,2\n3\n' >short.csv
bad "short.csv:3" "fewer than the 2 columns" -- --set "data={name: csv, path: short.csv}"
printf 'a,b\n1,2\n3,4,5\n' >long.csv
bad "long.csv:3" "more than the 2 columns" -- --set "data={name: csv, path: long.csv}"
printf 'a,b\n1,2\n3,x\n' >word.csv
bad "word.csv:3" "column b" "'x'" -- --set "data={name: csv, path: word.csv}"
printf 'a,b\n1,2\n,4\n' >hole.csv
bad "hole.csv: row 2" "column a" -- --set "data={name: csv, path: hole.csv}"
printf '1,2\n3,4\n' >bare.csv
bad "bare.csv:1" "names" -- --set "data={name: csv, path: bare.csv}"
echo ok
