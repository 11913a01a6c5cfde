# Runs that diverge immediately, with every method: each ends with exit code 4, a summary, a whole
# checkpoint of finite values and a line that names it, even if weights are already infinite.
# shellcheck shell=bash disable=SC1091,SC2154
. "$(dirname "$0")/lib.bash"
cat >deep.yaml <<YAML
model: {name: mlp, inputs: 12, depth: 8, width: 16, classes: 4}
data: {name: synthetic, n: 100, n_eval: 50}
train: {batch: 8, steps: 50, seed: 3, optimizer: {name: sgd, lr: 0.1}}
parallel: {threads: 1, pin: false}
run: {predict: false, trace: 0, report: false}
YAML
wild=(--set train.optimizer.lr=1e20)

# ends_well OUT STEP: checks the folder of a diverged run.
ends_well() {
    grep -q "warning: .* $1/checkpoint/step-$2; --resume continues from there" err || fail "$1: no word of step-$2"
    same "$(field "$1/summary.json" status)" diverged "$1: status"
    same "$(field "$1/summary.json" checkpoint)" "$1/checkpoint/step-$2" "$1: checkpoint of the summary"
    run 0 checkpoint verify "$1"
    run 0 eval deep.yaml --checkpoint "$1"
    same "$(sed -n 's/.*weights \(.*\)\.\.\.$/\1/p' out)" "$(field "$1/summary.json" weights_sha256 | head -c 16)" "$1: weights"
}

n_spoilt=0
for method in $("$forerun" methods | awk '/^[^ ]/ { is_method = $1 == "parallel.method"; next } is_method && NF { print $1 }'); do
    layout=(--set parallel.method="$method" --set parallel.stages=4)
    case $method in
    single) layout=(--set parallel.method=single) ;;
    dp | model-averaging) layout=(--set parallel.method="$method" --set parallel.replicas=2) ;;
    esac
    n_judged=0
    for micro in 1 4; do
        "$forerun" train deep.yaml --out "$method" "${layout[@]}" --set train.micro=$micro "${wild[@]}" --quiet >out 2>err
        code=$?
        [ $code != 2 ] || continue # not with so few micro-batches
        same $code 4 "$method: exit code"
        n_judged=$((n_judged + 1))
        step=$(field "$method/summary.json" checkpoint)
        ends_well "$method" "${step##*-}"
        [ "$(field "$method/summary.json" steps)" = "${step##*-}" ] || n_spoilt=$((n_spoilt + 1))
        rm -r "$method"
    done
    [ $n_judged != 0 ] || fail "$method: was never trained"
done
[ $n_spoilt -ge 3 ] || fail "only $n_spoilt runs had infinite weights: this tests nothing"

# The starting checkpoint, kept because no later one was saved, equals that of another run.
spoilt=(--set parallel.method=vanilla-async --set parallel.stages=4 --set train.micro=1)
run 4 train deep.yaml --out start "${spoilt[@]}" "${wild[@]}" --quiet
ends_well start 0
run 0 train deep.yaml --out start "${spoilt[@]}" --resume --quiet
run 0 train deep.yaml --out tame "${spoilt[@]}" --quiet
same "$(field start/summary.json weights_sha256)" "$(field tame/summary.json weights_sha256)" "resumed from the start"

# An earlier checkpoint is kept, and named.
run 0 train deep.yaml --out later "${spoilt[@]}" --set train.steps=20 --quiet
run 4 train deep.yaml --out later "${spoilt[@]}" "${wild[@]}" --resume --quiet
ends_well later 20
echo "ok: $n_spoilt runs whose weights were infinite"
