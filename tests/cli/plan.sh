# forerun plan: from a profile alone, from a config on a cluster, the plan file, and refusals.
. "$(dirname "$0")/lib.bash"

value() { grep -o "\"$1\": [-0-9.e+]*" "${2:-out}" | head -n 1 | sed 's/.*: //'; }
near() { # A B WHAT: within 1 %
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0.99 * b && a < 1.01 * b) }' || fail "$3: $1 and $2"
}

# --- a profile alone: 2, 5, 2 and 3 ms; the weights are in the last node ---
node() { echo "node$1 -- $2 -- forward_compute_time=$3, backward_compute_time=$4, activation_size=$5, parameter_size=$6"; }
{
    node 1 Input 100 0 1e6 0
    node 2 Conv2d 1 1 1000 8
    node 3 Conv2d 1 4 1000 8
    node 4 Conv2d 1 1 1000 8
    node 5 Linear 1 2 1000 4e9
    printf '\tnode%d -- node%d\n' 1 2 2 3 3 4 4 5
} >profile.txt
run 0 plan --profile profile.txt --machines 4 --bandwidth 1e9 --planner pipedream --format json
same "$(tr -d ' ' <out | grep -o '"nodes":\[[^]]*\]' | tr '\n' ' ')" \
    '"nodes":["node2","node3","node4"] "nodes":["node5"] ' "stages"
same "$(grep -o '"replicas": [0-9]*' out | tr -dc '0-9\n' | tr '\n' ' ')" "3 1 " "replicas"
near "$(grep -o '"time_s": [^,}]*' out | tail -n 1 | sed 's/.*: //')" 0.003 "time"
for planner in pipedream dapple exact bapipe spp graphpipe brute; do
    run 0 plan --profile profile.txt --machines 4 --bandwidth 1e9 --planner $planner --micro 8 --format json
    grep -q "\"planner\": \"$planner\"" out || fail "$planner does not sign"
    run 0 plan --profile profile.txt --machines 4 --bandwidth 1e9 --planner $planner --micro 8
    grep -q 'stage *replicas' out || fail "$planner: no table"
done
for planner in pipedream dapple exact spp graphpipe; do # as good as all layouts, by their own counts
    run 0 plan --profile profile.txt --machines 3 --bandwidth 1e6 --planner $planner --micro 4 --contiguous --format json
    cp out by_planner
    run 0 plan --profile profile.txt --machines 3 --bandwidth 1e6 --planner brute --objective $planner --micro 4 --format json
    same "$(sed 's/.*"time_s": \([^,]*\), "is_optimal.*/\1/' by_planner | cut -c1-10)" \
        "$(sed 's/.*"time_s": \([^,]*\), "is_optimal.*/\1/' out | cut -c1-10)" "$planner and all layouts"
done
run 0 plan --profile profile.txt --machines 2,2 --bandwidth 1e10,1e9 --format json
grep -q '2 levels' out || fail "levels"
run 0 plan --profile profile.txt --machines 3 --bandwidth 1e9 --planner exact --stages 3 --replicas 1 --format json
same "$(grep -o '"replicas": 1' out | wc -l)" 3 "stages as asked for"

run 2 plan
says "give a config" "--profile"
run 2 plan --profile profile.txt --bandwidth 1e9
says "--machines"
run 2 plan --profile profile.txt --machines 4
says "--bandwidth"
run 2 plan --profile profile.txt --machines 4,2 --bandwidth 1e9
says "--bandwidth"
run 2 plan --profile profile.txt --machines 4 --bandwidth 1e9 --planner pipdream
says "pipdream" "there are: pipedream, dapple"
run 2 plan --profile nowhere.txt --machines 4 --bandwidth 1e9
says "nowhere.txt"
run 2 plan --profile profile.txt --machines 4 --bandwidth 1e9 --planner exact --memory 100
says "exact" "fits"
run 2 plan net.yaml
says "--cluster"
run 2 plan --profile profile.txt --machines 4 --bandwidth 1e9 --out plan.yaml
says "--out" "config"

# --- a config on a cluster ---
cat >box.yaml <<YAML
name: box
device: {name: card, speed: 1, memory: 1 GB}
topology: {name: all, bandwidth: 1 GB/s, latency: 1 us, devices: 4}
YAML
sed -i 's/batch: 8, micro: 2/batch: 32, micro: 4/' net.yaml
run 0 profile net.yaml --batch 8 --seconds 0.1 --out one.json
run 0 profile net.yaml --batch 8 --sizes all --seconds 0.1 --out cost.json
for size in '4 x 8' '1 x 32' '4 x 1'; do
    grep -q "a mini-batch of $size samples" out || fail "no size $size"
done
run 0 plan net.yaml --cluster box.yaml --profile one.json
grep -q 'one.json was measured with micro-batches of 8 samples' err || fail "no warning"
run 0 plan net.yaml --cluster box.yaml --profile cost.json --out plan.yaml
for text in 'best: ' 'predicted: ' 'runner-up: ' 'what decided: ' 'best data parallel: ' \
    'best pipeline with a flush: ' 'best pipeline without a flush: ' 'layouts tried'; do
    grep -q "^$text\|$text" out || fail "the choice does not say '$text'"
done
grep -q '^# best: ' plan.yaml || fail "the plan file does not say why"
run 0 plan net.yaml --cluster box.yaml --profile cost.json --format json --out again.yaml
cmp -s plan.yaml again.yaml || fail "two plans from one profile differ"
predicted=$(value s_per_batch)
run 0 simulate plan.yaml --json --batches 200 --set train.steps=200
near "$(value s_per_batch)" "$predicted" "what was planned and what is simulated"
run 0 train plan.yaml --set train.steps=4 --out planned
grep -q EMULATED err || fail "the plan does not run on its cluster"
# Asynchronous methods are weighed if asked for, and every method is chosen or has a line that says
# why not.
all=$("$forerun" methods --json | sed "/^ \]/q" | grep -o '"name": "[^"]*"' | cut -d'"' -f4)
[ "$(wc -l <<<"$all")" -gt 15 ] || fail "no list of methods"
for option in '' --sync --async; do
    run 0 plan net.yaml --cluster box.yaml --profile cost.json $option --json
    cp out choice.json
    run 0 plan net.yaml --cluster box.yaml --profile cost.json $option
    best=$(sed -n 's/^best: \([^,]*\),.*/\1/p' out)
    for method in $all; do
        lines=$(sed '1,/^not chosen:/d' out | grep -cE "^  $method +[a-z]" || true)
        same "$lines" $([ $method = "$best" ] && echo 0 || echo 1) "lines of $method ($option)"
        said=$(grep -o "{\"method\": \"$method\", \"why\": \"[^\"]*\"}" choice.json | wc -l)
        same "$said" "$lines" "reasons of $method in JSON ($option)"
    done
    if [ "$option" = --async ]; then
        grep -qE '^best: spectrain|^  spectrain +(slower|as fast)' out || fail "--async"
        ! grep -q 'not asked for with --async' out || fail "--async was asked for"
    else
        ! grep -q '"asynchronous": true' choice.json || fail "asynchronous methods unasked ($option)"
        grep -qE '^  spectrain +asynchronous: not asked for with --async$' out ||
            fail "it does not say why spectrain is left out ($option)"
    fi
done
run 2 plan net.yaml --cluster box.yaml --profile cost.json --sync --async
says "one of them"
run 2 plan net.yaml --cluster box.yaml --profile cost.json --methods 1f1b --async
says "one of them"
run 2 plan net.yaml --cluster box.yaml --profile cost.json --planner exact --async
says "--planner"

# Or if a measurement shows that a method learns as well, with the stages of that measurement.
result() { # METHOD EPOCHS [TARGET]
    echo "{\"method\": \"$1\", \"stages\": 2, \"target\": {\"by\": \"loss\", \"value\": ${3:-0.5}},
        \"batches\": [{\"batch\": 8, \"epochs\": 1}, {\"batch\": 32, \"epochs\": $2}]}"
}
mkdir -p one
result single 10 >one/efficiency.json
result spectrain 10.1 >spectrain.json
result xpipe 12 >xpipe.json
result pipedream null >pipedream.json
run 0 plan net.yaml --cluster box.yaml --profile cost.json \
    --efficiency one,spectrain.json,xpipe.json,pipedream.json
grep -qE '^best: spectrain|^  spectrain +(slower|as fast)' out || fail "spectrain learns as well"
! grep -E '^best: spectrain|^  spectrain +slower' out | grep -vq ' 2 stages' ||
    fail "spectrain with more stages than were measured"
grep -qE '^  xpipe +asynchronous: took 20 % more epochs than single$' out || fail "xpipe"
grep -qE '^  pipedream +asynchronous: did not reach the target$' out || fail "pipedream"
grep -qE '^  pipemare +asynchronous: not asked for with --async$' out || fail "pipemare"
refused() { run 2 plan net.yaml --cluster box.yaml --profile cost.json --efficiency "$@"; }
refused spectrain.json
says "weights of one worker"
result single 10 0.6 >other.json
refused other.json,spectrain.json
says "one --target"
refused one,box.yaml
says "box.yaml"
sed 's/: 32/: 64/' spectrain.json >batch.json
refused one,batch.json
says "mini-batch"
echo '{"target": {"by": "loss", "value": 1}, "batches": []}' >old.json
refused one,old.json
says "old.json" "repeat"
refused one,nowhere
says "nowhere"
refused one,spectrain.json --async
says "one of them"
run 0 plan net.yaml --cluster box.yaml --profile cost.json --methods spectrain,1f1b
! grep -q 'not asked for' out || fail "--methods: a line of a method that was not named"
run 0 plan net.yaml --cluster box.yaml --profile cost.json --methods 1f1b,gpipe --format json
! grep -o '"method": "[^"]*"' out | grep -qv '"1f1b"\|"gpipe"' || fail "--methods"
run 0 plan net.yaml --cluster box.yaml --profile cost.json --devices 1 --format json
same "$(value workers)" 1 "--devices 1"
for planner in pipedream dapple exact bapipe spp graphpipe; do
    run 0 plan net.yaml --cluster box.yaml --profile cost.json --planner $planner --out by.yaml
    run 0 train by.yaml --set train.steps=2 --out by_$planner
done
run 0 plan net.yaml --cluster box.yaml --profile cost.json --planner spp --stages 2 --out by.yaml
grep -q '^ *lead: 4$' by.yaml || fail "spp: the plan file has no lead"
grep -q '^ *method: .*1f1b' by.yaml || fail "spp: the plan file has another method"
run 0 train by.yaml --set train.steps=2 --out by_lead
run 0 plan net.yaml --cluster box.yaml --profile cost.json --methods 1f1b --format json
grep -q '"lead": [124],' out || fail "no lead in JSON"
sed 's/1 GB}/1 kB}/' box.yaml >small.yaml
run 2 plan net.yaml --cluster small.yaml --profile cost.json
says "fits in memory"
run 2 plan net.yaml --cluster box.yaml --methods nothing
says "nothing"
run 2 plan net.yaml --cluster box.yaml --methods model-averaging
says "model-averaging"

# --- splits of layers: a report ---
cat >wide.yaml <<'X'
model: {name: mlp, inputs: 1024, depth: 2, width: 1024, classes: 16}
data: {name: synthetic, n: 64, n_eval: 0}
train: {batch: 64, steps: 1, optimizer: {name: sgd, lr: 0.1}}
X
run 0 plan wide.yaml --planner pase --devices 4 --ratio 100
grep -q '115642368 operations' out || fail "pase: other count"
grep -q 'batch alone 418578432' out || fail "pase: other count by batch"
same "$(grep -c '1 x 2 x 2' out)" 2 "pase: layers cut by outputs and inputs"
grep -q 'cannot run' out || fail "pase: does not say that it is a report"
run 0 plan wide.yaml --planner pase --devices 4 --ratio 5000 --json
same "$(grep -o '"cost[a-z_]*": 406192128' out | wc -l)" 2 "pase: nothing is cut"
grep -q '"can_run": false' out || fail "pase: can_run"
cat >flops.yaml <<'X'
name: pair
device: {name: card, flops: 1 TFLOP/s, efficiency: 0.8}
topology: {name: all, bandwidth: 4 GB/s, latency: 1 us, devices: 2}
X
run 0 plan wide.yaml --planner pase --cluster flops.yaml --json
near "$(value ratio)" 800 "pase: ratio of the cluster"
same "$(value devices)" 2 "pase: devices of the cluster"
run 2 plan wide.yaml --planner pase --devices 4
says "--ratio"
run 2 plan wide.yaml --planner pase --devices 4 --ratio 100 --out x.yaml
says "--out"
run 2 plan wide.yaml --planner exact --devices 4 --ratio 100 --cluster box.yaml
says "--ratio"
run 2 plan --profile profile.txt --machines 4 --bandwidth 1e9 --planner pase
says "config"
