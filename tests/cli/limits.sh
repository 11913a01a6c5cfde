# Absurd numbers are refused immediately, or cost little: each of these ends correctly with half a
# gigabyte of address space.
. "$(dirname "$0")/lib.bash"

# limited CODE ARGUMENT...: as run, with little memory.
limited() {
    (
        ulimit -v 600000
        export MALLOC_ARENA_MAX=1 # each arena of malloc reserves 64 MB of addresses, one per thread
        run "$@"
    ) || exit 1
}

# Only one planner loads the solver: some BLAS libraries behind it hang at their start in a small
# address space.
LD_TRACE_LOADED_OBJECTS=1 "$forerun" >out || fail "the loader cannot list its libraries"
grep -q 'libc\.so' out || fail "no list of libraries"
grep -qiE 'lib[^ ]*(cbc|blas|lapack)[^ ]*\.so' out && fail "the command loads a solver as it starts"

# --- schedules ---
limited 2 schedule 1f1b --stages 4096 --micro 4096
says "4096 stages x 4096 micro-batches" "too many"
limited 2 schedule spectrain --stages 9000
says "too many"
limited 2 schedule gpipe --stages 1000000 --micro 1
says "too many"
limited 2 schedule 1f1b --micro 1000000 --replicas 1000000
says "too many"
limited 2 methods 1f1b --stages 1000 --micro 100000
says "too many"
limited 0 schedule 1f1b --stages 256 --micro 512 --format csv

# --- options that count ---
for option in "--stages 0" "--micro 0" "--replicas 0" "--devices 0" "--micro -1" "--stages 1000001"; do
    # shellcheck disable=SC2086
    limited 2 plan net.yaml --cluster nosuch.yaml $option
    says "${option% *}" "expected 1 to 1000000"
done
limited 2 schedule 1f1b --columns -1
says "--columns: expected 0 to 100000"
limited 2 simulate net.yaml --batches 0
says "--batches 0: expected 1 to 1000000"
limited 2 compare net.yaml --seeds 0
says "--seeds 0: expected 1 to 1000000"
limited 2 models vgg16 --image 0
says "--image 0: expected 1 to 1000000"

# --- planners ---
nodes='{"name": "x", "is_input": true, "forward_s": 0, "backward_s": 0, "output_bytes": 4, "param_bytes": 0}'
for ((i = 0; i < 400; i++)); do
    nodes+=", {\"name\": \"n$i\", \"forward_s\": 0.001, \"backward_s\": 0.002, \"output_bytes\": 4000, \"param_bytes\": 8000, \"inputs\": [$i]}"
done
echo "{\"format\": 1, \"batch\": 4, \"nodes\": [$nodes]}" >profile.json
for planner in pipedream dapple exact bapipe; do
    limited 2 plan --profile profile.json --machines 100000 --bandwidth 1e9 --planner $planner
    says "$planner:" "too many"
done
limited 0 plan --profile profile.json --machines 100 --bandwidth 1e9 --planner pipedream

# --- clusters ---
cat >many.yaml <<YAML
topology: {bandwidth: 1 GB/s, groups: [{count: 500000, bandwidth: 1 GB/s, devices: 2}]}
YAML
limited 2 plan --profile profile.json --machines 1 --bandwidth 1 --cluster many.yaml
limited 2 simulate net.yaml --cluster many.yaml --profile profile.json
says "profile.json"

# --- models ---
cat >deep.yaml <<YAML
model: {name: mlp, inputs: 4, depth: 10000, width: 4, classes: 4}
data: {name: synthetic, n: 100, n_eval: 8}
train: {batch: 8, micro: 2, steps: 1}
parallel: {threads: 1}
run: {predict: false, report: false}
YAML
limited 0 train deep.yaml --out deep --quiet
limited 0 train deep.yaml --out deep --quiet --resume --set train.steps=2
# Ten nodes per layer, most of them with their own kernels, and gradients that branch: a byte per
# pair of nodes would be more than there is.
limited 0 train deep.yaml --out deep-gpt --quiet \
    --set 'model={name: gpt, layers: 3000, width: 4, heads: 1, context: 4, vocab: 8, dropout: 0}'
for key in width=1000000000 depth=100000 inputs=99999999999; do
    limited 2 train net.yaml --out new --set model.$key
    says "model.${key%=*}" "${key#*=}"
done
limited 2 train net.yaml --out new --set model.width=500000000
says "(500000000, 500000000)" "more than"
limited 2 train net.yaml --out new --set data.n=2000000000
says "data.n" "16777216"
limited 2 train net.yaml --out new --set 'train={batch: 16777216, micro: 16777216}' \
    --set 'parallel={method: 1f1b, stages: 3, threads: 1}'
says "16777216"

# --- files whose headers or content claim more than they hold ---
# npy FILE TYPE "SHAPE": a header
npy() {
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' \
        "{'descr': '$2', 'fortran_order': False, 'shape': ($3), }" >"$1"
}
cat >npy.yaml <<YAML
model: {name: mlp, depth: 1, width: 8}
data: {name: npy, input: x.npy, target: y.npy, classes: 4}
train: {batch: 5, steps: 2}
parallel: {threads: 1}
YAML
npy y.npy '<i4' '10,'
head -c 40 /dev/zero >>y.npy
npy x.npy '<f4' '10, 12'
truncate -s 60G x.npy # sparse
limited 2 train npy.yaml --out new
says "x.npy" "608 bytes" "64424509440"
npy head '<f4' '10, 12'
{
    cat head
    head -c 80000000 /dev/zero
} | gzip -1 >x.npy
limited 2 train npy.yaml --out new
says "x.npy" "declares 608 bytes, but the file has more"
npy head '<f4' '99999999999, 12'
gzip -c head >x.npy
limited 2 train npy.yaml --out new
says "x.npy" "declares 4800000000080 bytes; the limit"
head -c 80000000 /dev/zero | gzip -1 >x.npy
limited 2 train npy.yaml --out new
says "x.npy" "not a .npy file"
mkdir idx
for part in train t10k; do
    head -c 80000000 /dev/zero | gzip -1 >idx/$part-images-idx3-ubyte.gz
done
printf 'model: {name: lenet}\ndata: {name: mnist, path: idx}\ntrain: {batch: 4, steps: 2}\n' >idx.yaml
limited 2 train idx.yaml --out new
says "train-images-idx3-ubyte.gz" "IDX type 00"
head -c 80000000 /dev/zero | tr '\0' a | gzip -1 >texts.tsv
printf 'model: {name: transformer}\ndata: {name: tsv, path: texts.tsv}\n' >tsv.yaml
limited 2 train tsv.yaml --out new
says "texts.tsv" "200 times its size"
[ ! -e new ] || fail "a refused run left a folder"
echo ok
