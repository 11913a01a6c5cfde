#!/bin/bash
# Fuzz the parsers: tests/fuzz/run.sh SECONDS [NAME...]
# Builds the harnesses (preset fuzz, clang), makes seeds, runs each that long; any finding fails and
# its input stays in build-fuzz/findings. What the fuzzer learnt stays in build-fuzz/corpus.
set -eu
seconds=${1:?usage: run.sh SECONDS [NAME...]}
shift
cd "$(dirname "$0")/../.."
build=${FR_FUZZ_BUILD:-build-fuzz}
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    for source in tests/fuzz/fuzz_*.c; do
        name=$(basename "$source" .c)
        names+=("${name#fuzz_}")
    done
fi

cmake --preset fuzz -B "$build" >/dev/null
cmake --build "$build" -j2 --target "${names[@]/#/fuzz_}" >/dev/null

# seed NAME FILE FORMAT [ARGUMENT...]: one seed, by printf
seed() {
    mkdir -p "$build/corpus/$1"
    # shellcheck disable=SC2059
    printf "${@:3}" > "$build/corpus/$1/$2"
}

# tensors FILE HEADER DATA: a safetensors file, the header's length in front
tensors() {
    seed safetensors "$1" "\\x$(printf %02x ${#2})\\0\\0\\0\\0\\0\\0\\0%s%s" "$2" "$3"
}
tensors empty '{}' ''
tensors one '{"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}' '12345678'
tensors two '{"__metadata__":{"format":"pt"},"b":{"dtype":"U8","shape":[],"data_offsets":[4,5]},"a":{"dtype":"I16","shape":[2],"data_offsets":[0,4]}} ' '12345'
tensors hole '{"a":{"dtype":"BF16","shape":[1],"data_offsets":[2,4]}}' '1234'

seed idx labels '\0\0\x08\x01\0\0\0\x03abc'
seed idx images '\0\0\x08\x03\0\0\0\x01\0\0\0\x02\0\0\0\x02abcd'

header="{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }"
seed npy one "\\x93NUMPY\\x01\\0\\x$(printf %02x $((${#header} + 1)))\\0%s\\n12345678" "$header"
seed npy two "\\x93NUMPY\\x02\\0\\x$(printf %02x $((${#header} + 1)))\\0\\0\\0%s\\n12345678" "$header"

seed tsv rows '0\tsome text\n1\tmore\ttext\r\n\n2\t\n'

seed yaml run 'model: {name: mlp, layers: [3, 4]}\ntrain:\n  batch: 64\n  lr: 1e-3 # fast\n  on: true\n'
seed yaml list 'layers:\n  - a: 1\n    b: "x\\n"\n  - &k {a: .inf}\n  - *k\nb: |\n  text\n  more\n'
seed yaml odd "a: ~\\n? 'odd: key'\\n: [x, {y: z}]\\nb: >-\\n  folded\\n"
seed yaml set 'train: {batch: 8}\n\0train.batch=[1, 2]'

seed schedule csv '\0''0F0,0F1,,0B0,0B1\r\n1F0,1I0,1F1,1I1,1W0,1W1\n'
seed schedule sent '\0''0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0>0,1F0,1B0,1SEND_B0,1STEP0,0STEP0\n'
seed schedule long '\1''0F0,0F1,0B0,0STEP0,0F2,0B1,0STEP1,0B2,0STEP2 # three\n'
seed schedule pipelines '\x08''0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n'
seed schedule rows '\x0A''0F0,0B0\n0F1,0B1\n'
seed schedule replicas '\0''forerun-schedule 1\nreplicas 2 1\nworker_of 0 2\nworker 0: 0F0 0B0\nworker 1: 0F1 0B1\nworker 2: 1F0 1B0 1F1 1B1\n'
seed schedule text '\0''forerun-schedule 1\nname x\nstages 2\nworkers 1\nmicro 1\nbatches 1\nflush yes\nworker_of 0 0\nforward 0>1\nbackward 1>0\nworker 0: 0F0 1F0 1B0 0B0 1STEP0 0STEP0\n'

seed profile json '{"format": 1, "batch": 4, "nodes": [{"name": "x", "is_input": true, "forward_s": 0, "backward_s": 0, "output_bytes": 4, "param_bytes": 0},\n{"name": "a", "forward_s": 1e-3, "backward_s": 2, "back_input_s": null, "output_bytes": 4, "param_bytes": 8, "inputs": ["x", 0]}]}'
seed profile text 'node1 -- Input -- forward_compute_time=1, backward_compute_time=0, activation_size=[4.0; 2], parameter_size=0\nnode2 -- A -- forward_compute_time=1, backward_compute_time=2.5, activation_size=4, parameter_size=8 -- stage_id=1\n\tnode1 -- node2\n'

status=0
mkdir -p "$build/findings"
for name in "${names[@]}"; do
    log=$build/findings/$name.log
    mkdir -p "$build/corpus/$name"
    if "$build/tests/fuzz_$name" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=1500 \
        -max_len=4096 -print_final_stats=1 -artifact_prefix="$build/findings/$name-" \
        "$build/corpus/$name" > "$log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        printf '%-12s clean, %s inputs in %s s\n' "$name" "$runs" "$seconds"
    else
        printf '%-12s FOUND something, see %s\n' "$name" "$log"
        tail -n 30 "$log"
        status=1
    fi
done
exit $status
