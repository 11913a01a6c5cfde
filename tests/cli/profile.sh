# forerun profile: charts, files in both formats, refusals, this machine.
. "$(dirname "$0")/lib.bash"

cat >mlp.yaml <<YAML
model: {name: mlp, inputs: 12, depth: 3, width: 64, classes: 4}
data: {name: synthetic, n: 64, n_eval: 16}
train: {batch: 16, micro: 2, steps: 4, optimizer: {name: sgd, lr: 0.01, momentum: 0.9}}
parallel: {threads: 1, pin: false}
YAML

# --- measured: a chart, in plain text if stdout is not a terminal
run 0 profile mlp.yaml --seconds 0.05
for text in 'mlp, 8 samples per micro-batch' 'at once' 'fc.0 ' 'head ' 'params MB' \
    'a mini-batch of 2 x 8 samples' 'accounted for by nodes' 'samples/s'; do
    grep -qF -- "$text" out || fail "the chart does not say '$text'"
done
! grep -q $'\033' out || fail "colours in a file"
grep -qE ' [0-9.]+ % of it accounted' out || fail "no share that is accounted for"
[ ! -s err ] || fail "something on stderr"

# --- written, shown again, converted to the other format and back
run 0 profile mlp.yaml --seconds 0.05 --out p.json --workers 1 --batch 4
grep -q '"batch": 4,' p.json || fail "--batch is not in the file"
grep -q '1 at once' p.json || fail "--workers is not in the file"
grep -q 'samples/s' out || fail "no chart beside the file"
run 0 profile --read p.json
grep -q '^fc.2 ' out || fail "the file is not shown"
run 0 profile --read p.json --format json
cmp -s out p.json || fail "JSON read and written is not the same"
run 0 profile --read p.json --format pipedream --out p.txt
[ ! -s out ] || fail "a chart although a format was asked for"
grep -q '^node1 -- Input input ' p.txt || fail "no input in PipeDream's text"
[ "$(grep -c '^	node' p.txt)" = "$(grep -o '"inputs": \[[^]]*\]' p.json | grep -o '"[^"]*"' | grep -vc inputs)" ] ||
    fail "edges were lost"
run 0 profile --read p.txt --format pipedream
cmp -s out p.txt || fail "PipeDream's text read and written is not the same"
run 0 profile --read p.json --batch 8 --format json
grep -q '"batch": 8,' out || fail "--read does not scale"
run 0 profile --read p.json --nodes 2
grep -q 'others)' out || fail "--nodes 2 shows all"

# --- a chart is drawn to scale
cat >two.txt <<'TEXT'
node1 -- Input -- forward_compute_time=500, backward_compute_time=0, activation_size=4, parameter_size=0
node2 -- half -- forward_compute_time=2, backward_compute_time=1, activation_size=4, parameter_size=8
node3 -- whole -- forward_compute_time=3, backward_compute_time=3, activation_size=4, parameter_size=0
	node1 -- node2
	node2 -- node3
TEXT
COLUMNS=90 run 0 profile --read two.txt
awk '/half/ { f = gsub(/=/, ""); b = gsub(/#/, "") } /whole/ { g = gsub(/=/, ""); c = gsub(/#/, "") }
     END { w = g + c; exit !(w > 20 && g - c <= 1 && c <= g && 2 * (f + b) - w <= 1 && w - 2 * (f + b) <= 1 && f == 2 * b) }' out ||
    fail "the bars are not to scale"
grep -q 'whole .* 6.000 *66.7 ' out || fail "time or share is wrong"

# --- by kind of operator: a file's numbers (GF/s = operations / time, the projection at the best
# rate of the kind), and a measured model, whose rows are the whole step
cat >kinds.json <<'JSON'
{"format": 1, "model": "two", "batch": 4, "n_micro": 2, "step_s": 0.020, "nodes": [
 {"name": "x", "about": "input (8)", "is_input": true, "forward_s": 0, "backward_s": 0, "output_bytes": 4, "param_bytes": 0},
 {"name": "a", "about": "linear (8)", "forward_s": 0.001, "backward_s": 0.003, "back_input_s": 0.001, "back_weight_s": 0.002, "update_s": 0.002, "flops": 4e6, "output_bytes": 4, "param_bytes": 8, "inputs": ["x"]},
 {"name": "b", "about": "relu (8)", "forward_s": 0, "backward_s": 0, "flops": 4e6, "output_bytes": 4, "param_bytes": 0, "inputs": ["a"]},
 {"name": "c", "about": "linear (8)", "forward_s": 0.001, "backward_s": 0.001, "flops": 2e6, "output_bytes": 4, "param_bytes": 0, "inputs": ["b"]},
 {"name": "d", "about": "linear (8)", "forward_s": 0.0005, "backward_s": 0.0005, "flops": 3e6, "output_bytes": 4, "param_bytes": 0, "inputs": ["c"]}]}
JSON
run 0 profile --read kinds.json --by operator
grep -qE '^linear\+relu +2 +2.000 +2.000 +4.000 +8.000 +40.0 +2.00 +- +8.000$' out ||
    fail "a kernel of two nodes is wrong"
grep -qE '^linear +4 +3.000 +1.500 +1.500 +6.000 +30.0 +1.67 +- +3.333$' out ||
    fail "GF/s or the projection is wrong"
grep -qE '^update +1 +- +- +- +2.000 +10.0 +- +- +2.000$' out || fail "no update"
grep -qE '^other +- +- +- +- +4.000 +20.0 +- +- +4.000$' out || fail "the rest of the step is lost"
grep -qE '^all +- +- +- +- +20.000 +100.0 +1.30 +- +17.333$' out || fail "no sum"
run 0 profile mlp.yaml --seconds 0.05 --by operator --out by.json
for text in 'linear+relu ' 'cross_entropy ' 'update ' 'GF/s' 'projected' 'peak: '; do
    grep -qF -- "$text" out || fail "the table does not say '$text'"
done
run 0 profile --read by.json --format json
cmp -s out by.json || fail "--by operator --out does not write the profile"
run 0 profile mlp.yaml --seconds 0.05 --by operator --json
tr -d ' ,"' <out | awk -F: '
    $1 == "step_s" { step = $2 }
    $1 == "kind" { kind = $2; n++ }
    $1 == "total_s" { total = $2; sum += $2 }
    $1 == "flops" { flops = $2 }
    $1 == "flops_per_s" && $2 != "null" {
        d = $2 * total / flops - 1; if (d > 1e-9 || d < -1e-9) { print kind ": GF/s"; bad = 1 } }
    $1 == "projected_s" && kind && $2 > total { print kind ": projected above measured"; bad = 1 }
    $1 == "peak_flops_per_s" && !($2 > 0) { print "no peak"; bad = 1 }
    END { if (sum < 0.95 * step || n < 4) { print "rows: " sum " of " step; bad = 1 }; exit bad }' \
    >wrong || fail "the rows of the table: $(cat wrong)"
run 2 profile mlp.yaml --by layer
says 'layer' 'node and operator'
run 2 profile mlp.yaml --by operator --format pipedream
says '--by operator'
run 2 profile mlp.yaml --by operator --sizes all
says '--batch'
run 2 profile --cluster --by operator
says '--cluster goes with'

# --- refused
run 2 profile
says 'give a config'
run 2 profile mlp.yaml --cluster
says 'one of them'
run 2 profile mlp.yaml --format table
says 'table' 'pipedream'
run 2 profile mlp.yaml --batch -3
says 'at least 0'
run 2 profile --read p.json --set train.batch=3
says 'measures nothing'
run 2 profile --cluster --batch 3
says '--cluster goes with'
run 2 profile --cluster --transport pigeon
says 'pigeon'
run 2 profile --read missing.json
says 'missing.json'
run 2 profile --read two.txt --batch 3
says 'cannot be scaled'
head -c 300 p.json >cut.json
run 2 profile --read cut.json
says 'cut.json:'
sed 's/"forward_s": [0-9.e-]*/"forward_s": -1/' p.json >bad.json
run 2 profile --read bad.json
line=$(($(grep -n '"nodes"' bad.json | cut -d: -f1) + 1))
says "bad.json:$line: node 0: forward_s"
run 2 profile mlp.yaml --set train.batch=hello
says 'train.batch'

# --- this machine
run 0 profile --cluster
grep -q 'topology:' out && grep -q 'speed: 1' out || fail "no cluster file on the standard output"
run 0 profile --cluster --workers 5 --out here.yaml
grep -q 'here.yaml: 5 devices' out || fail "what was written is not said"
grep -q 'count: 5' here.yaml || fail "not 5 devices"
. "$source_dir/tests/cli/launcher.bash"
if [ ${#mpirun[@]} != 0 ]; then
    launcher=(timeout -k 5 $patience_s "${mpirun[@]}")
    "${launcher[@]}" -n 3 "$forerun" profile --cluster --out mpi.yaml >out 2>err </dev/null ||
        fail "--cluster of three processes"
    grep -q 'B/s over mpi' out || fail "no bandwidth between processes"
    ! grep -q 'bandwidth: free' mpi.yaml || fail "messages between processes are free"
    code=0
    "${launcher[@]}" -n 2 "$forerun" profile mlp.yaml >out 2>err </dev/null || code=$?
    [ $code = 2 ] || fail "a model in two processes: exit code $code"
    grep -q 'without mpirun' err || fail "it does not say why"
else
    skipped "profiles of several processes" "built without MPI, or no mpirun"
fi
exit 0
