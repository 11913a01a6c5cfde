# Parameters tied across stages: every schedule with a flush gives the weights of one worker; without
# one gpt learns, the ledger has the versions, runs resume to the byte with every weight policy that
# has a memory, and in any other layout.
. "$(dirname "$0")/lib.bash"

cat >gpt.yaml <<YAML
model: {name: gpt, layers: 2, width: 16, heads: 2, context: 12, tied: true}
data: {name: text, path: $source_dir/LICENSE}
train: {batch: 8, micro: 4, steps: 6, clip_norm: 1, optimizer: {name: adamw, lr: 0.01}}
parallel: {method: forerun, stages: 4, threads: 1, pin: false}
run: {trace: 0, eval_every: 0}
YAML

# --- the ledger: stage 3 reads the weights of stage 0 ---
run 0 train gpt.yaml --out whole --set run.checkpoint_every=3 --ledger ledger.csv --quiet
same "$(head -1 ledger.csv)" "stage,replica,micro,pass,version,predict,live,tied_version,tied_predict" "head"
awk -F, 'NR > 1 && NF != 9 { exit 1 }
    NR > 1 && $1 == 0 && $4 == "F" && $3 % 4 == 0 { of[$3 / 4] = $5 "," $6 }
    NR > 1 && $1 < 3 && $8 $9 != "" { exit 1 }
    NR > 1 && $1 == 3 { n++; if ($8 "," $9 != of[int($3 / 4)]) exit 1 }
    END { if (n != 6 * 4 * 2) exit 1 }' ledger.csv || fail "ledger of tied weights"
run 0 train gpt.yaml --out flush --set parallel.method=1f1b --ledger flush.csv --quiet
same "$(head -1 flush.csv)" "stage,replica,micro,pass,version,predict,live" "head without ties"

# --- with a flush: the weights of one worker; without clipping, so that only the tie asks for sums ---
alone=(--set train.clip_norm=0 --set train.steps=3 --set run.predict=false --quiet)
run 0 train gpt.yaml --out single --set parallel.method=single --set parallel.stages=1 "${alone[@]}"
for method in naive-mp gpipe 1f1b interleaved zb-h1 zb-h2 zbv v-half v-min dualpipev; do
    run 0 train gpt.yaml --out $method --set parallel.method=$method "${alone[@]}"
    same "$(field $method/summary.json weights_sha256)" "$(field single/summary.json weights_sha256)" \
        "tied weights of $method"
done

# --- resumed runs ---
for method in forerun pipedream-2bw pipemare; do
    some=(--set parallel.method=$method --set run.checkpoint_every=3 --quiet)
    run 0 train gpt.yaml --out $method "${some[@]}"
    cp -r $method $method-cut
    rm -r $method-cut/checkpoint/step-6
    run 0 train gpt.yaml --out $method-cut "${some[@]}" --resume
    for file in model optimizer; do
        cmp $method/checkpoint/step-6/$file.safetensors $method-cut/checkpoint/step-6/$file.safetensors ||
            fail "$method resumed: $file"
    done
done
rm -r forerun-cut/checkpoint/step-6
run 0 train gpt.yaml --out forerun-cut --set parallel.method=single --set parallel.stages=1 --quiet --resume

# --- it learns ---
for _ in {1..60}; do printf 'the quick brown fox jumps over the lazy dog\n'; done >fox.txt
run 0 train gpt.yaml --out learned --set data.path=fox.txt --set train.steps=120 --quiet
loss=$(field learned/summary.json eval_loss)
awk "BEGIN { exit !($loss < 1.5) }" || fail "the tied gpt has a loss of $loss after 120 updates"
echo ok
