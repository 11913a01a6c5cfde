# All instruction sets give the same bits for Forerun's own kernels. Resuming a checkpoint on another
# instruction set, or with another library, logs a warning.
. "$(dirname "$0")/lib.bash"
rest='data: {name: synthetic, n: 40, n_eval: 8}
run: {trace: 0, prediction_samples: 0, predict: false}
parallel: {threads: 1}'

cat >ref.yaml <<YAML
model: {name: mlp, inputs: 40, depth: 3, width: 35, classes: 7}
train: {batch: 8, micro: 2, steps: 5, clip_norm: 1}
$rest
YAML
# No product of oneDNN: norms, activations and the loss.
cat >norms.yaml <<YAML
model:
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
    - {name: p7, op: softmax}
train: {batch: 8, micro: 2, steps: 5, optimizer: {name: adamw, lr: 0.01}}
$rest
YAML
# Forerun's own kernels convolve small maps, with fused operations.
cat >small.yaml <<YAML
model:
  nodes:
    - {name: in, op: input, shape: [16, 2, 2]}
    - {name: c0, op: conv2d, out: 32, kernel: 3, pad: 1}
    - {name: r0, op: relu}
    - {name: c1, op: conv2d, out: 48, kernel: 3, pad: 1}
    - {name: n1, op: batch_norm}
    - {name: p1, op: max_pool, kernel: 2}
    - {name: f1, op: flatten}
train: {batch: 8, micro: 2, steps: 5, optimizer: {name: adam, lr: 0.01}}
$rest
YAML

# trained CAP CONFIG ARGUMENT...: the hash of the weights, with at most the instruction set CAP
trained() {
    local cap=$1 config=$2
    shift 2
    rm -rf run
    export ONEDNN_MAX_CPU_ISA=$cap
    run 0 train "$config.yaml" --out run --quiet "$@"
    unset ONEDNN_MAX_CPU_ISA
    field run/summary.json weights_sha256 >hash
    [ -s hash ] || fail "$config: no weights"
}

# alike CONFIG "CAP..." ARGUMENT...
alike() {
    local config=$1 caps=$2 first
    shift 2
    trained DEFAULT "$config" "$@"
    first=$(cat hash)
    for cap in $caps; do
        trained "$cap" "$config" "$@"
        same "$(cat hash)" "$first" "$config $*, $cap"
    done
}
for optimizer in sgd adam adamw nadam muon lion; do
    alike ref "SSE41 AVX2" --set parallel.backend=ref --set train.optimizer.name=$optimizer
done
alike norms "SSE41 AVX2"
alike small AVX2

# ---- Checkpoints on another machine ----

remark="last bits may differ"
some=(--set run.checkpoint_every=2 --set train.steps=2)
run 0 train ref.yaml --out whole --quiet "${some[@]}"
state=whole/checkpoint/step-2/state.json
[ "$(field $state instructions)" = "$(field whole/summary.json instructions)" ] &&
    [ -n "$(field $state instructions)" ] || fail "the checkpoint does not say where it was written"
[ "$(field $state kernels)" = "$(field whole/summary.json kernels)" ] || fail "nor with which library"

# resume SED-COMMAND: from a copy of the checkpoint in format 1, which has no hashes, with its state
# edited by sed
resume() {
    rm -rf copy
    cp -r whole copy
    sed -e "$1" -e 's/"format": 2/"format": 1/; /"xxh128"/,/}/d; /"checksum"/d' $state |
        sed -z 's/,\n}/\n}/' >copy/checkpoint/step-2/state.json
    run "${2:-0}" train ref.yaml --out copy --resume --set train.steps=3
}
quiet() { ! grep -qF "$remark" err || fail "$1: it speaks of last bits"; }
remarks() { # TEXT: one line that names the text
    [ "$(grep -cF "$remark" err)" = 1 ] || fail "expected one line about last bits"
    grep -F "$remark" err | grep -qF "$1" || fail "the line does not name $1"
}
resume ""
quiet "on the same machine"
resume '/"kernels"\|"instructions"/d'
quiet "an older checkpoint"
resume 's/"instructions": "[^"]*"/"instructions": "avx1024"/'
remarks "written on avx1024, $(field $state kernels)"
resume 's/"kernels": "[^"]*"/"kernels": "oneDNN 1.2.3"/'
remarks "written on $(field $state instructions), oneDNN 1.2.3"
resume 's/"kernels": "[^"]*"/"kernels": 3/' 2
grep -qF "'kernels' must be a short text" err || fail "a number was taken for the name of a library"

rm -rf copy
cp -r whole copy
export ONEDNN_MAX_CPU_ISA=SSE41
run 0 train ref.yaml --out copy --resume --set train.steps=3
now=$(field copy/summary.json instructions)
if [ "$now" != "$(field $state instructions)" ]; then
    remarks "resumed on $now"
else
    quiet "this processor has no other set"
fi
echo ok
