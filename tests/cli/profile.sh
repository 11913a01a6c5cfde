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
