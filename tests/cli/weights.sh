# Given weights: a network of Hugging Face gives its loss, trains in stages, generates and comes back;
# what does not match, and hostile files, are refused in one line.
. "$(dirname "$0")/lib.bash"

gpt2=$source_dir/tests/fixtures/gpt2
cat >gpt.yaml <<YAML
model: {name: gpt, layers: 2, width: 8, heads: 2, context: 12, vocab: 256, tied: true, weights: $gpt2}
data: {name: npy, input: $gpt2/x.npy, target: $gpt2/y.npy, eval_input: $gpt2/x.npy, eval_target: $gpt2/y.npy}
train: {batch: 4, micro: 2, steps: 6, seed: 3, optimizer: {name: adamw, lr: 0.01}}
parallel: {threads: 1, pin: false}
run: {out: run, predict: false}
YAML

# --- the loss that PyTorch has with these weights ---
near() { # LOSS WANTED
    awk "BEGIN { d = $1 - $2; exit !(d < 1e-5 && d > -1e-5) }" || fail "loss $1, PyTorch has $2"
}
eval_loss() { sed -n 's/.*"eval_loss": \([^,]*\),.*/\1/p' out; }
for folder in gpt2 gpt2-bf16; do
    run 0 eval gpt.yaml --json --set model.weights="$source_dir/tests/fixtures/$folder"
    near "$(eval_loss)" "$(cat "$source_dir/tests/fixtures/$folder/loss.txt")"
done
run 0 eval gpt.yaml --json --set model.weights="$gpt2/model.safetensors"
near "$(eval_loss)" "$(cat "$gpt2/loss.txt")"
run 0 eval gpt.yaml --set model.weights="$gpt2"
grep -q "weights from $gpt2: 28 parameters under names of gpt2" err || fail "which weights"

# --- training starts there; stages give the bits of one worker ---
run 0 train gpt.yaml --out one --quiet
run 0 train gpt.yaml --out two --quiet --set parallel.method=1f1b --set parallel.stages=2
run 0 train gpt.yaml --out four --quiet --set parallel.method=zbv --set parallel.stages=4
run 0 train gpt.yaml --out seed --quiet --set model.weights_strict=false
sha=$(field one/summary.json weights_sha256)
for other in two four seed; do same "$(field $other/summary.json weights_sha256)" "$sha" "weights of $other"; done
[ -d one/checkpoint/step-0 ] || fail "the weights it starts from are not saved"
run 0 eval gpt.yaml --json --checkpoint one/checkpoint/step-0
near "$(eval_loss)" "$(cat "$gpt2/loss.txt")"

# --- processes: rank 0 reads, the stages have the same bits ---
. "$source_dir/tests/cli/launcher.bash"
if [ ${#mpirun[@]} != 0 ]; then
    timeout -k 5 "$patience_s" "${mpirun[@]}" -n 2 "$forerun" train gpt.yaml --out ranks --quiet \
        --set parallel.method=1f1b --set parallel.stages=2 >out 2>err </dev/null || fail "two processes"
    same "$(field ranks/summary.json weights_sha256)" "$sha" "weights of two processes"
else
    skipped "weights in two processes" "built without MPI, or no mpirun"
fi

# --- a checkpoint comes first: the weights need not be there any more ---
cp -r "$gpt2" moved
run 0 train gpt.yaml --set model.weights=moved --out resumed --set train.steps=3 --quiet
rm -r moved
run 0 train gpt.yaml --set model.weights=moved --out resumed --resume
grep -q "model.weights is not read" err || fail "resumed without a word about the weights"
same "$(field resumed/summary.json weights_sha256)" "$sha" "resumed from given weights"
run 0 train gpt.yaml --out resumed --resume --set train.steps=7 # the path has changed
if grep -q "other settings" err; then fail "model.weights counts as a change"; fi
run 0 eval gpt.yaml --json --set model.weights=moved --set run.out=one
same "$(sed -n 's/.*"weights_sha256": "\([^"]*\)".*/\1/p' out)" "$sha" "eval of the run's own"

# --- other networks than the weights are for ---
run 2 train gpt.yaml --out bad --quiet --set model.width=16
says "$gpt2" gpt2 "of another shape or type" "transformer.wte.weight is F32 (256, 8)" "(256, 16)"
run 2 train gpt.yaml --out bad --quiet --set model.layers=3
says "12 missing (h.2.ln_1.weight" "and 4 more" weights_strict
run 2 train gpt.yaml --out bad --quiet --set model.heads=4
says config.json "n_head is 2" "model.heads: 2"
run 2 train gpt.yaml --out bad --quiet --set model.tied=false
says "1 missing (head.weight)"
run 2 train gpt.yaml --out bad --quiet --set model.weights=nowhere
says nowhere
run 2 train net.yaml --out bad --quiet --set model.weights_strict=false
says weights_strict "not given"
[ ! -e bad ] || fail "a refused run has made its folder"
run 0 train gpt.yaml --out part --set model.layers=1 --set model.weights_strict=false
grep -q 'NOT IN THE MODEL <- transformer.h.1.mlp.c_fc.weight F32 (8, 32)' err || fail "no table"
grep -q 'h.0.mlp.up.weight (32, 8) <- transformer.h.0.mlp.c_fc.weight F32 (8, 32), transposed' err ||
    fail "no rows of what matched"

# --- a shorter context than the table of positions ---
cut() { "$forerun" eval gpt.yaml --json --set model.context=6 --set 'data={name: synthetic, n: 8, n_eval: 8}' "$@"; }
run 2 eval gpt.yaml --quiet --set model.context=6 --set 'data={name: synthetic, n: 8, n_eval: 8}'
says "transformer.wpe.weight is F32 (12, 8)" "(6, 8)"
cut --set model.positions=12 >out 2>err || fail "positions"

# --- text, and the way back ---
printf 'some text to learn from, and some more of it' >text.txt
texts=(--set "data={name: text, path: $work/text.txt}" --set run.out=nothing)
run 0 generate gpt.yaml "${texts[@]}" --prompt 'some' --tokens 5 --seed 2
run 0 export gpt.yaml --out back
grep -q 'back: 28 tensors under names of gpt2, .* in 1 file' out || fail "what was exported"
run 0 train gpt.yaml --set model.weights=back --out again --quiet
same "$(field again/summary.json weights_sha256)" "$sha" "weights that came back"
run 0 export gpt.yaml --checkpoint one --out trained --dtype bf16 --shard-size 3KB --json
grep -q '"files": [3-9]' out || fail "files of an export"
[ -f trained/model.safetensors.index.json ] && [ -f trained/config.json ] || fail "index, config.json"
run 0 eval gpt.yaml --set model.weights=trained --set run.out=nothing
run 2 export gpt.yaml
says --out
run 2 export gpt.yaml --out back
says "back: is there already"
if compgen -G '*.tmp' >out; then fail "left behind"; fi

# --- files that are not what they say ---
bad() { # TEXT...: of the error, with bad.safetensors as weights
    run 2 train gpt.yaml --out bad --quiet --set model.weights=bad.safetensors
    says bad.safetensors "$@"
}
file=$gpt2/model.safetensors
head -c 5000 "$file" >bad.safetensors && bad "is the file whole"
head -c 100 "$file" >bad.safetensors && bad "bytes in a file of 100"
head -c 7 "$file" >bad.safetensors && bad "too few"
: >bad.safetensors && bad "too few"
printf '\xff\xff\xff\xff\xff\xff\xff\x7f{}' >bad.safetensors && bad "header of 9223372036854775807"
sed 's/"F32"/"F33"/' "$file" >bad.safetensors && bad 'unknown dtype "F33"'
sed 's/"F32"/"I32"/g' "$file" >bad.safetensors && bad "I32"
tr 'w' 'v' <"$file" >bad.safetensors && bad "not in the model" "missing"
sed 's/"data_offsets":\[0,/"data_offsets":[4,/' "$file" >bad.safetensors && bad "of its data_offsets"
mkdir folder
printf '{"weight_map": {"a": "../bad.safetensors"}}' >folder/model.safetensors.index.json
run 2 train gpt.yaml --out bad --quiet --set model.weights=folder
says "../bad.safetensors" "same folder"
printf '{"weight_map": {"a": "model-1.safetensors"}}' >folder/model.safetensors.index.json
run 2 train gpt.yaml --out bad --quiet --set model.weights=folder
says model-1.safetensors "not there"
mkfifo folder/model.safetensors
run 2 train gpt.yaml --out bad --quiet --set model.weights=folder
says "not a regular file"
echo ok
