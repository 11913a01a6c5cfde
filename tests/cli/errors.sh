# Bad input: one line that names file, place and remedy; exit code 2 (1 for the disk); nothing
# overwritten, no folder left behind.
. "$(dirname "$0")/lib.bash"

# bad TEXT... -- ARGUMENT...: train must fail with 2, say the texts and leave no folder.
bad() {
    local texts=()
    while [ "$1" != -- ]; do
        texts+=("$1")
        shift
    done
    shift
    run 2 train "$@" --out new
    says "${texts[@]}"
    [ ! -e new ] || fail "forerun train $*: left a folder"
}

# --- the config ---
bad "nosuch.yaml" "No such file" -- nosuch.yaml
printf 'model: {name: mlp\ntrain: [\n' >broken.yaml
bad "broken.yaml:" -- broken.yaml
printf 'just text\n' >text.yaml
bad "text.yaml" -- text.yaml
head -c 300 /dev/urandom >noise.yaml
bad "noise.yaml" -- noise.yaml
bad "train.bathc" "batch" -- net.yaml --set train.bathc=3
bad "modle" "model" -- net.yaml --set modle.name=mlp
bad "widht" "width" -- net.yaml --set model.widht=3
bad "mpl" "mlp" -- net.yaml --set model.name=mpl
bad "context" -- net.yaml --set model.context=3
bad "train.batch" "lots" -- net.yaml --set train.batch=lots
bad "batch 9" "train.micro" -- net.yaml --set train.batch=9
bad "method" "gpip" "gpipe" "single" -- net.yaml --set parallel.method=gpip
bad "stages" "at most 1" -- net.yaml --set parallel.stages=2
cat >pipe.yaml <<YAML
model: {name: mlp, inputs: 12, depth: 2, width: 16, classes: 4}
data: {name: synthetic, n: 100}
train: {batch: 8, micro: 2, steps: 4}
parallel:
  threads: 1
  method: 1f1b
  stages: 3
YAML
run 0 train pipe.yaml --out goodpipe
bad "--set parallel.stages=99" "99" "6" -- pipe.yaml --set parallel.stages=99
sed 's/stages: 3/stages: 99/' pipe.yaml >many.yaml
bad "many.yaml:7:11" "99" -- many.yaml
bad "pipe.yaml:7:11" "3 stages" "2 chunks" "multiple" -- pipe.yaml --set parallel.method=interleaved
bad "interleaved" "multiple" -- pipe.yaml --set parallel.method=interleaved \
    --set parallel.stages=6
bad "chunks" "1f1b" "interleaved" -- pipe.yaml --set parallel.chunks=3
bad "double-buffer" "train.micro" -- pipe.yaml --set parallel.method=pipedream-2bw
bad "cuts" "nosuch" -- pipe.yaml --set 'parallel.cuts=[nosuch, fc.2]'
bad "cuts" "fc.1" -- pipe.yaml --set 'parallel.cuts=[fc.2, fc.1]'
bad "weights" "stash" "drain" -- pipe.yaml --set parallel.weights=stash
bad "nosuch.csv" "schedule file" -- pipe.yaml --set parallel.schedule_file=nosuch.csv
printf '0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n2F0,2B0,2F1,2B1\n' >short.csv
bad "short.csv" "0B1" -- pipe.yaml --set parallel.schedule_file=short.csv
printf '0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n' >two.csv
bad "two.csv" "2" "3" -- pipe.yaml --set parallel.schedule_file=two.csv
printf '0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n2F0,2B0,2F1,2B1\n' >wrong.csv
bad "wrong.csv" "worker" -- pipe.yaml --set parallel.schedule_file=wrong.csv
cat >tied.yaml <<YAML
model: {name: gpt, layers: 2, width: 8, heads: 2, context: 8, vocab: 11, tied: true}
data: {name: synthetic, n: 32, n_eval: 0}
train: {batch: 4, micro: 2, steps: 2}
parallel: {threads: 1, method: 1f1b, stages: 2}
YAML
run 0 train tied.yaml --out goodtied
run 0 train tied.yaml --out asynctied --set parallel.method=pipedream
bad "run.fault" "worker 7" -- pipe.yaml --set run.fault=error:worker=7
bad "nosuch" "synthetic" -- net.yaml --set data.name=nosuch
sed '/^data/d' net.yaml >nodata.yaml
bad "nodata.yaml" "data.name" -- nodata.yaml
bad "--set" -- net.yaml --set nonsense

# --- control characters ---
# Control characters, line ends and bidirectional marks are escaped in all output.
esc=$'\x1b[31m' turn=$'\u202e' line=$'\nforerun: all is well'
safe() { # TEXT...: as says, and the output has no such characters
    says "$@"
    ! LC_ALL=C grep -q $'[\x01-\x09\x0b-\x1f\x7f]\|\xc2[\x80-\x9f]\|\xe2\x80[\x8e\x8f\xa8-\xae]' err ||
        fail "a control character in a message"
}
run 2 train "no$esc$turn$line.yaml"
safe 'no\x1b[31m\u202e\nforerun: all is well.yaml'
run 2 "verb$esc$line"
safe 'verb\x1b[31m\nforerun'
run 2 train net.yaml "--opt$turn"
safe 'opt\u202e'
run 2 train net.yaml --set "model.name=mlp$turn"
safe 'mlp\u202e'
printf 'model: {name: "m\\e[1m\\u202e\\nx"}\ndata: {name: synthetic}\n' >hidden.yaml
run 2 train hidden.yaml --out new
safe 'm\x1b[1m\u202e\nx'
printf '1\tgood\nno tab \x1b[2J\xe2\x80\xae here\n' >"torn$turn.tsv"
run 2 train net.yaml --out new --set 'model={name: transformer}' --set "data={name: tsv, path: 'torn$turn.tsv'}"
safe 'torn\u202e.tsv:2'

# Results, too: names of folders and of nodes.
safe_out() {
    ! LC_ALL=C grep -q $'[\x01-\x09\x0b-\x1f\x7f]\|\xc2[\x80-\x9f]\|\xe2\x80[\x8e\x8f\xa8-\xae]' out ||
        fail "a control character in the output"
    grep -qF -- "$1" out || fail "not in the output: $1"
}
run 0 train net.yaml --out "new$esc$turn"
safe_out 'new\x1b[31m\u202e/checkpoint/step-'
run 0 checkpoint verify "new$esc$turn"
safe_out 'whole    new\x1b[31m\u202e/'
run 0 report "new$esc$turn"
safe_out 'new\x1b[31m\u202e/report.html'
cat >hidden.json <<'JSON'
{"format": 1, "model": "m\u001b[2J", "machine": "\u202ecpu", "batch": 4, "nodes": [
 {"name": "a\u001b[2J\nb", "forward_s": 1, "backward_s": 2, "output_bytes": 4, "param_bytes": 8},
 {"name": "\u009bc", "forward_s": 1, "backward_s": 2, "output_bytes": 4, "param_bytes": 8}]}
JSON
run 0 plan --profile hidden.json --machines 2 --bandwidth 1e9
safe_out 'a\x1b[2J\nb'
run 0 profile --read hidden.json
safe_out 'm\x1b[2J, 4 samples'
safe_out 'a\x1b[2J\nb'

# --- pipes, devices and folders in place of files ---
run 0 train net.yaml --out odd --quiet
odd=$(echo odd/checkpoint/step-*)
mkfifo pipe
mkdir there
for file in "$odd"/{state.json,model.safetensors,optimizer.safetensors}; do
    for other in pipe /dev/zero there; do
        mv "$file" kept
        ln -s "$(realpath $other)" "$file"
        run 1 checkpoint verify odd
        grep -qF "damaged  $file: not a regular file" out || fail "$file is $other"
        run 2 train net.yaml --out odd --resume --quiet
        says "$file: not a regular file"
        rm "$file"
        mv kept "$file"
    done
done
for file in odd/{metrics.jsonl,summary.json,trace.json,config.yaml}; do
    mv $file kept
    ln -s "$(realpath pipe)" $file
    run 2 report odd
    says "$file: not a regular file"
    rm $file
    mv kept $file
done
run 2 profile --read hidden.json --out there
says "cannot write there: Is a directory"
run 2 simulate net.yaml --trace there
says "cannot write there: Is a directory"
run 2 train net.yaml --out new --ledger there
says "cannot write there: Is a directory"
[ ! -e new ] || fail "a folder stayed"
[ -z "$(ls -A there)$(ls -d there?* .??*.tmp 2>/dev/null)" ] || fail "an unfinished file stayed"
run 2 profile --read hidden.json --out ''
says "needs a value: --out"
run 2 train ''
says "an argument is empty"
run 2 checkpoint repair odd
says "no action 'repair'"
run 2 profile net.yaml --seconds inf
says "--seconds (up to"
run 2 profile net.yaml --batch 99999999999
says "--batch (up to"

# --- models that cannot learn ---
bad "custom" "no parameters" "nothing to train" -- net.yaml \
    --set 'model={nodes: [{name: x, op: input, shape: 4}]}'
bad "no parameters" -- net.yaml \
    --set 'model={nodes: [{name: x, op: input, shape: 4}, {name: r, op: relu}]}'
cat >ignored.yaml <<YAML
model:
  nodes:
    - {name: x, op: input, shape: 4}
    - {name: fc, op: linear, out: 1}
    - {name: t, op: input, shape: [], dtype: int}
    - {name: loss, op: cross_entropy, inputs: [fc, t], ignore_index: 0}
data: {name: synthetic, n: 32, n_eval: 0}
train: {batch: 8, steps: 9}
parallel: {threads: 1}
YAML
run 2 train ignored.yaml --out ignored --quiet
grep -q 'no target of the first 32 samples counts' err || fail "targets that are all ignored"

# --- false headers in data files ---
# idx FILE TYPE COUNT...: header of an IDX file
idx() {
    local file=$1 n
    shift
    printf "\\x00\\x00\\x08\\x$(printf %02x $#)" >"$file"
    for n in "$@"; do
        printf "\\x$(printf %02x $((n >> 24 & 255)))\\x$(printf %02x $((n >> 16 & 255)))" >>"$file"
        printf "\\x$(printf %02x $((n >> 8 & 255)))\\x$(printf %02x $((n & 255)))" >>"$file"
    done
}
zeros() { head -c "$1" /dev/zero; }
mkdir idx
for part in train t10k; do
    idx idx/$part-images-idx3-ubyte 20 28 28
    zeros $((20 * 784)) >>idx/$part-images-idx3-ubyte
    idx idx/$part-labels-idx1-ubyte 20
    zeros 20 >>idx/$part-labels-idx1-ubyte
done
cat >mnist.yaml <<YAML
model: {name: lenet}
data: {name: mnist, path: idx}
train: {batch: 4, steps: 2}
parallel: {threads: 1}
YAML
run 0 train mnist.yaml --out good # the files are fine so far
cp -r idx cut
head -c 5000 idx/train-images-idx3-ubyte >cut/train-images-idx3-ubyte
bad "cut/train-images-idx3-ubyte" -- mnist.yaml --set data.path=cut
cp -r idx liar
idx liar/train-labels-idx1-ubyte 4000000
zeros 20 >>liar/train-labels-idx1-ubyte
bad "liar/train-labels-idx1-ubyte" -- mnist.yaml --set data.path=liar
cp -r idx range
idx range/train-labels-idx1-ubyte 20
zeros 19 >>range/train-labels-idx1-ubyte
printf '\x0b' >>range/train-labels-idx1-ubyte
bad "range/train-labels-idx1-ubyte" "11" -- mnist.yaml --set data.path=range
gzip -c idx/train-images-idx3-ubyte | head -c 40 >cut/train-images-idx3-ubyte
bad "cut/train-images-idx3-ubyte" -- mnist.yaml --set data.path=cut
bad "nowhere" -- mnist.yaml --set data.path=nowhere

# npy FILE TYPE "SHAPE" BYTES: header and zeros
npy() {
    local text="{'descr': '$2', 'fortran_order': False, 'shape': ($3), }"
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "$text" >"$1"
    zeros "$4" >>"$1"
}
npy x.npy '<f4' '10, 12' 480
npy y.npy '<i4' '10,' 40
cat >npy.yaml <<YAML
model: {name: mlp, depth: 1, width: 8}
data: {name: npy, input: x.npy, target: y.npy, classes: 4}
train: {batch: 5, steps: 2}
parallel: {threads: 1}
YAML
run 0 train npy.yaml --out goodnpy
npy short.npy '<f4' '10, 12' 400
bad "short.npy" -- npy.yaml --set data.input=short.npy
npy odd.npy '<c8' '10, 12' 960
bad "odd.npy" -- npy.yaml --set data.input=odd.npy
npy nine.npy '<i4' '9,' 36
bad "nine.npy" -- npy.yaml --set data.target=nine.npy
npy high.npy '<i4' '10,' 36
printf '\x04\x00\x00\x00' >>high.npy
bad "high.npy" "4" -- npy.yaml --set data.target=high.npy
npy ignored.npy '<i4' '10,' 0
for ((i = 0; i < 10; i++)); do printf '\xff\xff\xff\xff' >>ignored.npy; done
bad "ignored.npy" "all 10 targets" -- npy.yaml --set data.target=ignored.npy
npy nan.npy '<f4' '10, 12' 476
printf '\x00\x00\xc0\x7f' >>nan.npy
bad "nan.npy: row 9, value 11 is NaN" -- npy.yaml --set data.input=nan.npy
bad "nosuch.npy" -- npy.yaml --set data.input=nosuch.npy

printf '1\tgood film\n0\tbad film\n1\tfine\n0\tpoor\n' >texts.tsv
cat >tsv.yaml <<YAML
model: {name: transformer, layers: 1, width: 8, heads: 2, context: 6}
data: {name: tsv, path: texts.tsv}
train: {batch: 2, steps: 2}
parallel: {threads: 1}
YAML
run 0 train tsv.yaml --out goodtsv
printf '1\tgood film\nno tab here\n' >torn.tsv
bad "torn.tsv:2" -- tsv.yaml --set data.path=torn.tsv
: >empty.tsv
bad "empty.tsv" -- tsv.yaml --set data.path=empty.tsv

# --- shapes that do not fit ---
bad "(3, 32, 32)" "(1, 28, 28)" "mnist" -- mnist.yaml --set model.channels=3 --set model.image=32
bad "5 classes" "10" "mnist" -- mnist.yaml --set model.classes=5
bad "token ids" "numbers" "mnist" -- mnist.yaml --set model.name=gpt
bad "1 classes" "npy" -- npy.yaml --set model.classes=1 --set data.classes=4

# --- checkpoints ---
run 0 train net.yaml --out run --set train.steps=4
cp -r run spoilt
head -c 900 run/checkpoint/step-4/model.safetensors >spoilt/checkpoint/step-4/model.safetensors
run 2 eval net.yaml --checkpoint spoilt
says "spoilt/checkpoint/step-4/model.safetensors"
run 2 train net.yaml --out spoilt --resume
grep -q 'step-4/model.safetensors' err || fail "resume does not name the file"
printf '\xff\xff\xff\xff\xff\xff\xff\x7f{}' >spoilt/checkpoint/step-4/model.safetensors
run 2 eval net.yaml --checkpoint spoilt/checkpoint/step-4
says "model.safetensors"
run 2 eval net.yaml --checkpoint run --set model.width=8
says "(16, 12)" "(8, 12)"
run 2 eval net.yaml --checkpoint nowhere
says "nowhere" "--checkpoint"
# Changed settings that affect numbers give one warning and are applied.
run 0 train net.yaml --out run --resume --quiet --set train.steps=5
[ ! -s err ] || fail "a longer run is no other run"
run 0 train net.yaml --out run --resume --quiet --set train.steps=6 --set train.clip_norm=2 \
    --set 'train.optimizer={name: sgd, lr: 0.05, momentum: 0.9}'
says "resumed with other settings" "train.optimizer.lr 0.05 (was 0.1)" "train.clip_norm 2 (was 0)"
run 0 train net.yaml --out run --resume --quiet --set train.steps=7 --set train.clip_norm=2 \
    --set train.optimizer.lr=0.05 --set train.schedule.name=cosine
says "train.schedule.name cosine (was constant)" "train.steps 7 (was 6)"
run 2 train net.yaml --out run --resume --set 'train.optimizer={name: adam}'
grep -q "'sgd'" err || fail "resume with another optimizer"

# --- folders and disks ---
touch plain
run 2 train net.yaml --out plain/below
says "plain"
run 2 train net.yaml --out plain
says "plain"
run 2 train net.yaml --out /proc/nowhere
says "/proc/nowhere"
if [ "$(id -u)" != 0 ]; then
    mkdir locked && chmod a-w locked
    run 2 train net.yaml --out locked/run
    says "locked/run" "permission"
fi
# A file size limit simulates a full disk; the previous checkpoint stays valid.
run 0 train net.yaml --out small --set train.steps=4 --set model.width=8
(
    ulimit -f 4
    run 1 train net.yaml --out full --set model.width=200 --set train.steps=10 --quiet
    says "full/checkpoint/.tmp-step-10/model.safetensors" "space"
) || exit 1
[ -z "$(ls -A full/checkpoint)" ] || fail "an unfinished checkpoint stayed"
run 0 train net.yaml --out full --set model.width=200 --resume
# A really full disk, if this user may mount one.
mkdir disk
if unshare -rm true 2>/dev/null && unshare -rm mount -t tmpfs none disk 2>/dev/null; then
    unshare -rm bash -c '
        forerun=$1
        mount -t tmpfs -o size=800k none disk
        "$forerun" train net.yaml --out disk/run --set train.steps=2 --quiet || exit 90
        before=$(sha256sum disk/run/checkpoint/step-2/model.safetensors)
        head -c 780k /dev/zero >disk/filler 2>/dev/null
        "$forerun" train net.yaml --out disk/run --set train.steps=900 --set run.trace=0 --resume >out 2>err
        [ $? = 1 ] || exit 91
        after=$(sha256sum disk/run/checkpoint/step-2/model.safetensors)
        [ "$before" = "$after" ] || exit 92
        rm disk/filler
        "$forerun" train net.yaml --out disk/run --set train.steps=900 --set run.trace=0 --resume --quiet || exit 93
    ' - "$forerun" || fail "full disk: step $? of the script"
    grep -q 'disk/run.*No space' err || fail "full disk: no word about it"
else
    echo "skipped: a really full disk (this user may not mount a tmpfs)"
fi

# --- a run that diverges ---
run 4 train net.yaml --out wild --set train.optimizer.lr=1e18
grep -q 'lr' err || fail "divergence without a remedy"
run 0 eval net.yaml --checkpoint wild
echo ok
