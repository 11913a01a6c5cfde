#!/usr/bin/env bash
# same-bits.sh -- checks that all compilers give the same numbers on this processor.
#
#   scripts/same-bits.sh [--nets "NAME..."] COMPILER-OR-COMMAND COMPILER-OR-COMMAND...
#   scripts/same-bits.sh gcc clang
#   scripts/same-bits.sh build/forerun build-clang/forerun
#
# Trains small networks with each command, on both backends, with one and two threads, and compares
# weights, losses and evaluations. For a compiler, given by name, it builds forerun in build-bits/.
# Prints one line per network; exit code 1 if any network differs.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
usage() { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; }
nets="mlp snn lenet cnn small vgg16 resnet50 inception3 gpt transformer reslstm gnmt biglstm norms"
if [ "${1:-}" = --nets ]; then
    nets=$2
    shift 2
fi
[ $# -ge 2 ] || { usage; exit 2; }

commands=()
for with in "$@"; do
    if [[ $with == */* && $(basename "$with") == forerun* ]]; then
        commands+=("$(realpath "$with")")
        continue
    fi
    build=$root/build-bits/${with//\//_}
    cmake -S "$root" -B "$build" -G Ninja -DCMAKE_C_COMPILER="$with" -DCMAKE_BUILD_TYPE=Release \
        -DBUILD_TESTING=OFF -DFR_MPI=OFF >/dev/null
    cmake --build "$build" --target forerun -- --quiet
    commands+=("$build/forerun")
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMP_WAIT_POLICY=passive

# The networks cover all optimizers and their state.
sgd='{name: sgd, lr: 0.05, momentum: 0.9, weight_decay: 0.001}'
nesterov='{name: sgd, lr: 0.05, momentum: 0.9, nesterov: true}'
adam='{name: adam, lr: 0.01}'
adamw='{name: adamw, lr: 0.01}'
nadam='{name: nadam, lr: 0.01}'
declare -A model optimizer
net() { model[$1]=$2 optimizer[$1]=$3; } # NAME MODEL OPTIMIZER
net mlp '{name: mlp, inputs: 40, depth: 3, width: 48, classes: 7}' "$sgd"
net snn '{name: snn, inputs: 40, depth: 3, width: 48, classes: 7, dropout: 0.1}' "$nadam"
net lenet '{name: lenet}' "$nesterov"
net cnn '{name: cnn, width: 20, image: 16, classes: 5}' "$adam"
net vgg16 '{name: vgg16, image: 32, classes: 5, width_factor: 0.06, batch_norm: true}' "$adamw"
net resnet50 '{name: resnet50, image: 32, classes: 5, width_factor: 0.1}' "$nadam"
net inception3 '{name: inception3, image: 75, classes: 5, width_factor: 0.1}' "$sgd"
net gpt '{name: gpt, layers: 2, width: 48, heads: 3, context: 21, vocab: 50, dropout: 0.1, tied: true}' "$adamw"
net transformer '{name: transformer, layers: 2, width: 48, heads: 3, context: 21, vocab: 50, dropout: 0.1}' "$adam"
net reslstm '{name: reslstm, layers: 2, width: 40, context: 9, vocab: 50}' "$nadam"
net gnmt '{name: gnmt, layers: 2, width: 40, context: 12, vocab: 50, label_smoothing: 0.1}' "$adam"
net biglstm '{name: biglstm, layers: 1, width: 40, projection: 16, context: 9, vocab: 50}' "$sgd"
# Our own kernels on both backends: convolutions of small maps, without products of oneDNN.
net small '
  nodes:
    - {name: in, op: input, shape: [16, 2, 2]}
    - {name: c0, op: conv2d, out: 32, kernel: 3, pad: 1}
    - {name: r0, op: relu}
    - {name: c1, op: conv2d, out: 48, kernel: 3, pad: 1}
    - {name: n1, op: batch_norm}
    - {name: r1, op: relu}
    - {name: p1, op: max_pool, kernel: 2}
    - {name: f1, op: flatten}' "$adamw"
net norms '
  nodes:
    - {name: in, op: input, shape: [75]}
    - {name: n0, op: layer_norm}
    - {name: g0, op: gelu}
    - {name: n1, op: batch_norm}
    - {name: t1, op: tanh}
    - {name: n2, op: layer_norm}
    - {name: s2, op: selu}
    - {name: n3, op: batch_norm}
    - {name: s3, op: sigmoid}
    - {name: e4, op: gelu_exact, inputs: [n3]}
    - {name: m4, op: mul, inputs: [e4, s3]}
    - {name: i5, op: silu, inputs: [n3]}
    - {name: h5, op: hardswish}
    - {name: u5, op: elu}
    - {name: d5, op: subtract, inputs: [m4, u5]}
    - {name: l6, op: leaky_relu, slope: 0.2}
    - {name: r7, op: rms_norm}
    - {name: g7, op: group_norm, groups: 5}
    - {name: d7, op: stochastic_depth, p: 0.2}
    - {name: p7, op: softmax}' "$adam"

# numbers COMMAND NET BACKEND THREADS: weights, evaluation, and a line for each mini-batch.
numbers() {
    rm -rf run
    "$1" train "$2.yaml" --out run --quiet --set parallel.backend="$3" --set parallel.threads="$4" || return
    grep -E '"(weights_sha256|eval_loss)"' run/summary.json
    sed 's/ "samples_per_s": [^,]*, "elapsed_s": [^,}]*,\{0,1\}//' run/metrics.jsonl
}

status=0
for name in $nets; do
    [ -n "${model[$name]:-}" ] || { echo "unknown network '$name'" >&2; exit 2; }
    cat >"$name.yaml" <<YAML
model: ${model[$name]}
data: {name: synthetic, n: 32, n_eval: 8}
train: {batch: 8, micro: 2, steps: 4, seed: 3, clip_norm: 1, optimizer: ${optimizer[$name]}}
parallel: {pin: false}
run: {trace: 0, prediction_samples: 0, predict: false, eval_every: 4, grad_norm: true}
YAML
    differing=
    for setting in "ref 1" "cpu 1" "cpu 2"; do
        read -r backend threads <<<"$setting"
        for i in "${!commands[@]}"; do
            numbers "${commands[i]}" "$name" "$backend" "$threads" >"numbers-$i"
            if ! cmp -s numbers-0 "numbers-$i"; then
                differing+=" ${commands[i]} ($backend, $threads threads)"
            elif [ ! -s "numbers-$i" ]; then
                differing+=" ${commands[i]} (no numbers)"
            fi
        done
    done
    if [ -n "$differing" ]; then
        echo "$name: numbers differ from ${commands[0]}:$differing"
        status=1
    else
        echo "$name: the same, ${#commands[@]} commands"
    fi
done
exit $status
