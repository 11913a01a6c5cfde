# Train 6 = train 3, resume 3, to the byte, for networks with everything that carries state or
# chance: running statistics, dropout, tied parameters, recurrence, masks, augmentation; and for
# predictions along the last step of a matrix.
. "$(dirname "$0")/lib.bash"

cat >conv.yaml <<YAML
model:
  nodes:
    - {name: input, op: input, shape: [3, 8, 8]}
    - {name: conv, op: conv2d, out: 8, kernel: 3, pad: 1}
    - {name: norm, op: batch_norm}
    - {name: relu, op: relu}
    - {name: drop, op: dropout, p: 0.3}
    - {name: pool, op: max_pool, kernel: 2}
    - {name: flat, op: flatten}
    - {name: head, op: linear, out: 5}
data: {name: synthetic, n: 50, n_eval: 10}
train: {optimizer: {name: nadam}, clip_norm: 1}
YAML
cat >gpt.yaml <<YAML
model: {name: gpt, layers: 2, width: 16, heads: 2, context: 12, dropout: 0.2, tied: true}
data: {name: text, path: $source_dir/LICENSE}
train: {optimizer: {name: adamw}, schedule: {name: cosine, warmup: 2}}
YAML
cat >transformer.yaml <<YAML
model: {name: transformer, layers: 1, width: 16, heads: 2, context: 12, vocab: 50, dropout: 0.2}
data: {name: synthetic, n: 50, n_eval: 10}
train: {optimizer: {name: adam}}
YAML
cat >reslstm.yaml <<YAML
model: {name: reslstm, layers: 2, width: 16, context: 12, vocab: 50}
data: {name: synthetic, n: 50, n_eval: 10}
train: {optimizer: {name: sgd, momentum: 0.9, nesterov: true}}
YAML
cat >snn.yaml <<YAML
model: {name: snn, inputs: 20, depth: 3, width: 16, classes: 4, dropout: 0.1}
data: {name: synthetic, n: 50, n_eval: 10}
train: {optimizer: {name: sgd, lr: 0.05}, schedule: {name: step, every: 2}}
YAML
cat >muon.yaml <<YAML
model: {name: gpt, layers: 2, width: 16, heads: 2, context: 12}
data: {name: text, path: $source_dir/LICENSE}
train: {optimizer: {name: muon, lr: 0.01}}
parallel: {method: pipeoptim, stages: 3}
YAML
for threads in 1 2; do
    nets="conv gpt transformer reslstm snn muon"
    [ $threads = 1 ] || nets="conv gpt muon"
    for net in $nets; do
        some=(--set train.batch=8 --set train.micro=2 --set parallel.threads=$threads --quiet)
        whole=$net-$threads-whole cut=$net-$threads-cut
        run 0 train $net.yaml --out "$whole" --set train.steps=6 --set run.checkpoint_every=3 "${some[@]}"
        cp -r "$whole" "$cut"
        rm -r "$cut/checkpoint/step-6"
        run 0 train $net.yaml --out "$cut" --set train.steps=6 "${some[@]}" --resume
        for file in model optimizer; do
            cmp "$whole/checkpoint/step-6/$file.safetensors" "$cut/checkpoint/step-6/$file.safetensors" ||
                fail "$net, $threads threads: $file"
        done
        for key in weights_sha256 train_loss eval_loss; do
            same "$(field "$cut/summary.json" $key)" "$(field "$whole/summary.json" $key)" "$net $key"
        done
        [ $net != muon ] || continue # a dump drains the pipeline
        run 0 train $net.yaml --out "$net-$threads-dump" --set train.steps=6 "${some[@]}" --dump-step 4
        same "$(field "$net-$threads-dump/summary.json" weights_sha256)" \
            "$(field "$whole/summary.json" weights_sha256)" "$net with a dump"
    done
done
echo ok
