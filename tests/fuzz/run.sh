#!/bin/bash
# Fuzz the parsers: tests/fuzz/run.sh SECONDS [NAME...]
# Builds the harnesses (preset fuzz, clang), makes seeds, runs each that long; any finding fails and
# its input stays in build-fuzz/findings. The corpus stays in build-fuzz/corpus.
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

seed index two '{"metadata": {"total_size": 12}, "weight_map": {"a": "model-1.safetensors", "b.c": "model-2.safetensors"}}'
seed index out '{"weight_map": {"a": "../x", "b": "..", "c": ""}}'
seed index deep '[[[[{"weight_map": {"a": [1, {"b": null}]}}]]]]'

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

seed cluster flat 'name: box\ndevice: {name: V100, flops: 15.7 TFLOP/s, efficiency: 0.5, memory: 16 GB}\ntopology: {bandwidth: 10 GB/s, latency: 5 us, devices: 4}\n'
seed cluster tree 'overhead: 1 us\ndevice: {speed: 2}\ntopology:\n  bandwidth: 10 Gbit/s\n  latency: 30 us\n  shared: true\n  groups:\n  - {count: 2, name: box, bandwidth: 150 GB/s, devices: 3}\n  - {name: odd, bandwidth: free, device: {memory: 8 GiB}, devices: [{name: a, count: 2}, {name: b, speed: 0.5}]}\n'
seed cluster many 'topology: {bandwidth: 1, groups: [{count: 1000, bandwidth: 1, groups: [{count: 1000, bandwidth: 1, devices: 9}]}]}\n'

seed model mlp 'name: mlp\ninputs: 12\ndepth: 3\nwidth: 16\nclasses: 4\n'
seed model gpt 'name: gpt\nlayers: 2\nwidth: 8\nheads: 2\ncontext: 8\nvocab: 11\ntied: true\n'
for name in lenet cnn alexnet vgg16 inception3 transformer reslstm gnmt biglstm; do
    seed model $name 'name: %s\ndropout: 0.1\n' $name
done
seed model resnet50 'name: resnet50\nimage: 32\nwidth_factor: 0.25\nclasses: 10\n'
seed model nodes 'nodes:\n- {name: x, op: input, shape: [3, 8, 8]}\n- {name: c, op: conv2d, out: 4, kernel: 3, pad: 1, init: normal, init_scale: 0.1}\n- {name: b, op: batch_norm}\n- {name: r, op: relu}\n- {name: p, op: max_pool, kernel: 2}\n- {name: s, op: add, inputs: [p, p]}\n- {name: f, op: flatten}\n- {name: l, op: linear, out: 10}\n'
seed model words 'nodes:\n- {name: x, op: input, shape: 6, dtype: int}\n- {name: e, op: embedding, vocab: 9, width: 4}\n- {name: h, op: lstm, hidden: 4}\n- {name: n, op: layer_norm}\n- {name: l, op: linear, out: 9}\n- {name: t, op: input, shape: 6, dtype: int}\n- {name: loss, op: cross_entropy, inputs: [l, t], ignore_index: 0}\nties: [{param: l.weight, owner: e.weight}]\n'

line='{"step": %s, "samples": 8, "loss": 0.5, "lr": 1e-1, "samples_per_s": 10, "elapsed_s": 1, "eval_loss": 0.25}\n'
trace='{"traceEvents": [{"name": "thread_name", "ph": "M", "pid": 0, "tid": 1, "args": {"name": "worker 1"}},\n{"name": "F3", "ph": "X", "ts": 1.5, "dur": 2, "pid": 0, "tid": 1, "args": {"stage": 1, "mini_batch": 3, "micro_batch": 0, "version": 2}},\n{"name": "sum 3.7", "ph": "b", "ts": 2, "pid": 0, "tid": 1, "id": 4, "args": {}}, {"name": "sum 3.7", "ph": "e", "ts": 3, "pid": 0, "tid": 1, "id": 4}]}'
seed report run "$line$line"'\0%s\0{"model": "mlp", "data": "x", "status": "done", "emulated": {}}\0# plan: why\nmodel: {name: mlp}\n' 1 2 "$(printf "$trace")"
seed report live "$line"'{"step": 2, "lo\0\0\0parallel: {cluster: box.yaml}\n' 1
seed report compare "$line"'\0\0\0\0{"title": "t", "cases": [{"runs": [".", "nosuch"]}]}' 7

# A beat, a message, a rhythm, a goodbye; a loss; a failure; votes; a hello; a card.
seed team talk '\x02\xff\0\0\0\0\0\0\0\0\x03\0\0\0\x01\0\0\0abc\x04\0\0\0\x02\0\0\0\x32\0\0\0\0\0\0\0\x05\0\0\0'
seed team loss '\x03\xff\x08\0\0\0\x03\0\0\0\x02\0\0\0gone'
seed team fail '\x02\xff\x04\0\0\0\x04\0\0\0full'
seed team vote '\x03\0\x01\0\0\0\x02\0\0\0bad'
seed team wrong '\x02\0\x01\0\0\0\xff\0\0\0bad'
seed team hello '\0\0frhello\0%016d\x01\0\0\0\x01\0\0\0' 0
seed team card '\x01\0frteam1\0%032d\x01\0\0\0\x02\0\0\0x1' 0

bpe='"model": {"type": "BPE", "vocab": {$, "ab": 256, "abc": 257, "Ġa": 258}, "merges": [["a", "b"], "ab c", "Ġ a"]}'
added='"added_tokens": [{"id": 300, "content": "<x>", "special": true}, {"id": 301, "content": "e\\u0301", "normalized": true}]'
seed tokens gpt2 '\x02{%s, %s, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}}\0 abc<x>it'"'"'s 12  x\n' "$bpe" "$added"
seed tokens qwen2 '\x02{%s, %s, "normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "%s"}, "behavior": "Isolated"}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]}}\0 abce\xcc\x81\xcc\xa3 \xe1\x84\x80\xe1\x85\xa1 1234\r\n  x' "$bpe" "$added" \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
seed tokens files '\x03{$, "ab": 256, "<|endoftext|>": 257}\0#version: 0.2\na b\n\0{"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": {"300": {"content": "<x>"}}}\0abab <x>'

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
