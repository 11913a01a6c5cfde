# Networks of gates, rotations and dropped branches, as YAML: pipelines give the weights of one worker
# to the bit, in floats and in bf16; shapes that do not fit are refused.
. "$(dirname "$0")/lib.bash"
rest='data: {name: synthetic, n: 32, n_eval: 8}
train: {batch: 16, micro: 4, steps: 4, optimizer: {name: adamw, lr: 0.01}}
run: {trace: 0, prediction_samples: 0, predict: false}
parallel: {threads: 1}'

# A block of a language model: rms_norm, rope, swiglu.
cat >words.yaml <<YAML
model:
  nodes:
    - {name: ids, op: input, shape: [16], dtype: int}
    - {name: embed, op: embedding, vocab: 40, width: 24}
    - {name: n0, op: rms_norm}
    - {name: qkv, op: linear, out: 72, bias: false}
    - {name: rope, op: rope, heads: 12, rotated_heads: 8}
    - {name: attn, op: attention, heads: 4, causal: true}
    - {name: o, op: linear, out: 24, bias: false}
    - {name: sd, op: stochastic_depth, p: 0.2}
    - {name: r0, op: add, inputs: [embed, sd]}
    - {name: n1, op: rms_norm}
    - {name: gate, op: linear, out: 64, bias: false}
    - {name: act, op: silu}
    - {name: up, op: linear, inputs: [n1], out: 64, bias: false}
    - {name: glu, op: mul, inputs: [act, up]}
    - {name: down, op: linear, out: 24, bias: false}
    - {name: r1, op: add, inputs: [r0, down]}
    - {name: n2, op: rms_norm}
    - {name: head, op: linear, out: 40, bias: false}
    - {name: target, op: input, shape: [16], dtype: int}
    - {name: loss, op: cross_entropy, inputs: [head, target]}
$rest
YAML
# A convolution with squeeze and excitation, and a residual branch that is dropped at times.
cat >image.yaml <<YAML
model:
  nodes:
    - {name: input, op: input, shape: [3, 12, 12]}
    - {name: c0, op: conv2d, out: 16, kernel: 3, pad: 1, bias: false}
    - {name: b0, op: batch_norm}
    - {name: act, op: hardswish}
    - {name: squeeze, op: avg_pool, kernel: 12}
    - {name: fc1, op: conv2d, out: 8, kernel: 1}
    - {name: fr, op: relu}
    - {name: fc2, op: conv2d, out: 16, kernel: 1}
    - {name: gate, op: hardsigmoid}
    - {name: excite, op: mul, inputs: [act, gate]}
    - {name: c1, op: conv2d, out: 16, kernel: 3, pad: 1}
    - {name: g1, op: group_norm, groups: 4}
    - {name: s1, op: silu}
    - {name: sd, op: stochastic_depth, p: 0.2}
    - {name: sum, op: add, inputs: [sd, act]}
    - {name: six, op: relu6}
    - {name: pool, op: global_pool}
    - {name: fc, op: linear, out: 10}
$rest
YAML

# trained CONFIG ARGUMENT...: the hash of the weights
trained() {
    local config=$1
    shift
    rm -rf run
    run 0 train "$config.yaml" --out run --quiet "$@"
    field run/summary.json weights_sha256 >hash
    [ -s hash ] || fail "$config: no weights"
}

for config in words image; do
    for precision in fp32 bf16; do
        trained $config --set train.precision=$precision --set parallel.method=single \
            --set parallel.stages=1
        mv hash alone
        for layout in 1f1b:2 zbv:4; do
            trained $config --set train.precision=$precision --set parallel.method=${layout%:*} \
                --set parallel.stages=${layout#*:}
            same "$(cat hash)" "$(cat alone)" "$config, $precision, $layout: weights"
        done
    done
done

# refused OLD NEW TEXT...: words.yaml with another line
refused() {
    sed "s/$1/$2/" words.yaml >odd.yaml
    cmp -s words.yaml odd.yaml && fail "no line has '$1'"
    run 2 train odd.yaml --out odd --quiet
    shift 2
    says odd.yaml: "$@"
}
refused 'inputs: \[act, up\]' 'inputs: [act, n1]' 'node glu (mul)' '(16, 64)' '(16, 24)' '1 or absent'
refused 'heads: 12, rotated_heads: 8' 'heads: 7' 'node rope (rope)' 'divide the width 72'
refused 'heads: 12, rotated_heads: 8' 'heads: 24' 'rotated_width is 3; it must be even'
refused 'stochastic_depth, p: 0.2' 'stochastic_depth, p: 1' '.p: expected a number from 0 to 0.99'
refused 'op: silu' 'op: elu, alpha: -1' '.alpha: expected a number'
refused 'op: silu' 'op: group_norm' 'node act (group_norm): groups is missing'
echo ok
