# A network written out with attention of separate q, k and v, and operators that move numbers:
# pipelines give the bits of one worker, in fp32 and bf16. Settings that do not fit are refused with
# their place.
. "$(dirname "$0")/lib.bash"

cat >net.yaml <<YAML
model:
  nodes:
    - {name: input, op: input, shape: [70], dtype: int}
    - {name: embed, op: embedding, vocab: 31, width: 24}
    - {name: q, op: linear, out: 24, bias: false}
    - {name: k, op: linear, inputs: [embed], out: 12, bias: false}
    - {name: v, op: linear, inputs: [embed], out: 12, bias: false}
    - {name: attn, op: sdpa, inputs: [q, k, v], heads: 4, kv_heads: 2, causal: true, window: 9}
    - {name: o, op: linear, out: 24}
    - {name: add, op: add, inputs: [embed, o]}
    - {name: norm, op: layer_norm}
    - {name: first, op: slice, axis: 1, to: 12}
    - {name: second, op: slice, inputs: [norm], axis: 1, from: 12, to: 24}
    - {name: swapped, op: concat, inputs: [second, first], axis: 1}
    - {name: turned, op: transpose, order: [1, 0]}
    - {name: mix, op: linear, out: 70}
    - {name: back, op: transpose, order: [1, 0]}
    - {name: sum, op: add, inputs: [add, back]}
    - {name: wide, op: pad, after: [0, 8]}
    - {name: head, op: linear, out: 31}
data: {name: synthetic, n: 16, n_eval: 8}
train: {batch: 8, micro: 4, steps: 5, seed: 3, optimizer: {name: adamw, lr: 0.002}}
parallel: {threads: 1, pin: false}
run: {trace: 0, predict: false}
YAML

# --- pipelines ---
for precision in fp32 bf16; do
    run 0 train net.yaml --out one --quiet --set train.precision=$precision
    for method in 1f1b zbv; do
        run 0 train net.yaml --out many --quiet --set train.precision=$precision \
            --set parallel.method=$method --set parallel.stages=4
        same "$(field many/summary.json weights_sha256)" "$(field one/summary.json weights_sha256)" \
            "weights of $method in $precision"
        rm -r many
    done
    rm -r one
done

# --- refusals ---
refused() { # FROM TO LINE TEXT
    sed "s/$1/$2/" net.yaml >bad.yaml
    run 2 train bad.yaml --out bad
    says "bad.yaml:$3" "$4"
}
refused 'kv_heads: 2' 'kv_heads: 3' 8: 'node attn (sdpa): kv_heads is 3; it must divide the 4 heads'
refused 'causal: true, ' '' 8: 'window is 9; it must be 0 (none), or positive with causal set'
refused 'inputs: \[q, k, v\]' 'inputs: [q, k, v, k]' 8: 'mask k is (70, 12); it must be (70) or'
refused 'order: \[1, 0\]' 'order: [1, 1]' 15: 'order has 1 at place 1'
refused 'axis: 1, to: 12' 'axis: 2, to: 12' 12: 'axis is 2'
echo ok
