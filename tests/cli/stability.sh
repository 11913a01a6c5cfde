# forerun methods --stability: the limits of methods, and the warning of train.
. "$(dirname "$0")/lib.bash"

adamw=(--set train.optimizer.name=adamw)

# limit METHOD: its limit in the shared direction, by the last run; near A B: equal to 5 %.
limit() { awk -v name="$1" '$1 == name { print $2 }' out; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0.95 * b && a < 1.05 * b) }'; }

# --- the table -----------------------------------------------------------------------------------
run 0 methods --stability --stages 4 "${adamw[@]}"
grep -q '4 stages, 1 micro-batch per update, optimizer adamw' out || fail "sizes"
same "$(awk '$1 == "single"' out | tr -s ' ')" "single 38 38 0 1" "one worker"
same "$(awk '$1 == "vanilla-async"' out | tr -s ' ')" "vanilla-async 0.705 0.348 0 53.9" "vanilla-async"
same "$(awk '$1 == "pipedream-2bw"' out | tr -s ' ')" "pipedream-2bw - - - -" "a method that is refused"
grep -q '^pipedream-2bw: .*raise train.micro' out || fail "the reason of a refusal"
grep -q '^1f1b ' out && fail "a flush method has the limits of one worker"

run 0 methods --stability --stages 4 --method 1f1b --micro 8
same "$(awk 'NR > 3' out | tr -s ' ')" "$(printf 'single 2 2 0 1\n1f1b 2 2 0 1')" "a flush method"
run 0 methods --stability --method single
same "$(grep -c '^single ' out)" 1 "rows of single"

# From a config: optimizer, stages, micro-batches; options before it.
cat >small.yaml <<'END'
model: {name: nosuch}
train: {batch: 8, micro: 2, optimizer: {name: sgd, momentum: 0.5}}
parallel: {method: 1f1b, stages: 3}
END
run 0 methods --stability small.yaml --format markdown
grep -q '3 stages, 2 micro-batches per update, optimizer sgd' out || fail "the config was not read"
grep -q '^| single | 3 | 3 | 0 | 1 |$' out || fail "momentum of the config"
run 0 methods --stability small.yaml --set parallel.replicas=2
grep -q '3 stages, 1 micro-batch per update' out || fail "replicas share the micro-batches"
run 0 methods --stability small.yaml --stages 5 --micro 1 --set train.optimizer.momentum=0 --json
grep -q '"stages": 5' out && grep -q '"micro": 1' out || fail "options before the config"
grep -A 1 '"name": "single"' out | grep -q '"shared": 2\.0' || fail "momentum by --set"
grep -A 1 '"name": "pipedream-2bw"' out | grep -q '"refused"' || fail "a refusal as JSON"

# --- refusals ------------------------------------------------------------------------------------
run 2 methods --stability --stages 0
says '1 to 1000 stages'
run 2 methods --stability --method nosuch
says "no method is called 'nosuch'"
run 2 methods --stability --method pipedream-2bw
says "raise train.micro"
run 2 methods --stability --set train.optimizer.nosuch=1
says "train.optimizer.nosuch"
run 2 methods --stability nosuch.yaml
says nosuch.yaml
run 2 methods --set train.optimizer.lr=1
says "--stability"
run 0 methods forerun --micro 1
same "$(grep -o '[0-9] predicted' out | paste -sd,)" "4 predicted,3 predicted,2 predicted,1 predicted" "forerun with sgd"
run 0 methods forerun --micro 1 --set 'train.optimizer={name: adamw, beta1: 0.8}'
same "$(grep -o '[0-9] predicted' out | paste -sd,)" "4 predicted,4 predicted,4 predicted,4 predicted" "forerun with adamw"
same "$(tail -4 out | awk '{ print $NF }' | paste -sd,)" "0.95,0.9333,0.9,0.8" "its beta1"
run 2 methods forerun --set train.optimizer.name=nosuch
run 2 methods --stability --stages 1000
says "too many"

# --- the numbers of the documentation ------------------------------------------------------------
n=0
grep -E '^\| shared direction|^\| (one worker|vanilla-async, |pipeoptim, |spectrain|xpipe|forerun).*\| [0-9.]+ \([0-9.]+\) \|$' \
    "$source_dir/docs/methods.md" | tail -n +2 >rows
while IFS='|' read -r _ names four eight sixteen _; do
    for cell in "4 $four" "8 $eight" "16 $sixteen"; do
        read -r stages plain many <<<"$cell"
        for micro in 1 "$stages"; do
            wanted=$plain
            [ "$micro" = 1 ] || wanted=$(tr -d '()' <<<"$many")
            [ -f "limits-$stages-$micro" ] ||
                "$forerun" methods --stability --stages "$stages" --micro "$micro" "${adamw[@]}" >"limits-$stages-$micro"
            cp "limits-$stages-$micro" out
            for name in ${names//,/}; do
                near "$wanted" "$(limit "$name")" || fail "docs/methods.md: $name, $stages stages, $micro micro-batches: $wanted"
                n=$((n + 1))
            done
        done
    done
done <rows
same $n 48 "numbers of the documentation"

# --- train warns ---------------------------------------------------------------------------------
deep=(--set 'model={name: mlp, inputs: 8, depth: 9, width: 8, classes: 4}' --set 'data={name: synthetic, n: 256, n_eval: 8}'
    --set train.steps=2 --set run.eval_every=-1 --set run.predict=false --set train.optimizer.momentum=0.9)
warned() { # NUMBER ARGUMENT...: train warns so many times
    local wanted=$1
    shift
    echo '{}' >empty.yaml
    rm -rf warned
    run 0 train empty.yaml --out warned --quiet "${deep[@]}" "$@"
    same "$(grep -c "times below one worker's" err)" "$wanted" "warnings with $*"
}
warned 1 --set parallel.method=spectrain --set parallel.stages=8
grep -q 'weights spectrain, 8 stages, train.micro 1: .* rate 64 times .*train.schedule.warmup' err || fail "the warning"
same "$(wc -l <err)" 1 "lines of the warning"
warned 0 --set parallel.method=spectrain --set parallel.stages=8 --set train.micro=8 --set train.batch=16
warned 0 --set parallel.method=1f1b --set parallel.stages=8
warned 0 --set parallel.method=spectrain --set parallel.stages=4 --set train.optimizer.momentum=0
warned 1 --set parallel.method=vanilla-async --set parallel.stages=2
echo ok
