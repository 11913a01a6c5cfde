# A tiny gpt learns a rhyme and generates it again.
. "$(dirname "$0")/lib.bash"

for _ in $(seq 40); do printf 'one two three four five six seven eight nine ten. '; done >rhyme.txt
cat >gpt.yaml <<YAML
model: {name: gpt, layers: 1, width: 32, heads: 2, context: 16, dropout: 0}
data: {name: text, path: rhyme.txt}
train: {batch: 16, steps: 400, optimizer: {name: adamw, lr: 0.01}, schedule: {name: cosine}}
parallel: {threads: 1}
run: {out: run}
YAML
run 0 train gpt.yaml
run 0 generate gpt.yaml --prompt 'one two three ' --tokens 40 --temperature 0
printf 'four five six seven eight nine ten. one \n' >wanted
cmp -s out wanted || fail "greedy text"
run 0 generate gpt.yaml --checkpoint run/checkpoint/step-400 --prompt 'o' --tokens 30 --seed 5
cp out first
run 0 generate gpt.yaml --prompt 'o' --tokens 30 --seed 5
cmp -s out first || fail "same seed, another text"
run 0 generate gpt.yaml --prompt 'o' --tokens 30 --seed 5 --temperature 5
if cmp -s out first; then fail "temperature has no effect"; fi
run 0 generate gpt.yaml --prompt 'o' --tokens 30 --seed 5 --temperature 5 --top-k 1
cp out greedy
run 0 generate gpt.yaml --prompt 'o' --tokens 30 --temperature 0
cmp -s out greedy || fail "the best of one is not the best"
run 0 generate gpt.yaml --prompt 'x' --tokens 0
run 2 generate gpt.yaml --prompt ''
says "prompt"
run 2 generate gpt.yaml --prompt x --temperature -1
says "temperature"
run 2 generate net.yaml --prompt x
says "mlp" "gpt"

# The same by a tokenizer: it encodes text and prompt, and decodes what is generated.
cp "$source_dir/tests/fixtures/tokens_gpt2.json" tokenizer.json
for _ in $(seq 40); do printf 'The quick brown fox jumps over the lazy dog. '; done >fox.txt
cat >fox.yaml <<YAML
model: {name: gpt, layers: 1, width: 32, heads: 2, context: 16, dropout: 0}
data: {name: text, path: fox.txt, tokenizer: tokenizer.json}
train: {batch: 16, steps: 150, optimizer: {name: adamw, lr: 0.01}, schedule: {name: cosine}}
parallel: {threads: 1}
run: {out: fox}
YAML
run 0 train fox.yaml
run 0 generate fox.yaml --prompt 'The quick brown' --tokens 11 --temperature 0
case $(cat out) in
" fox jumps over the lazy"*) ;;
*) fail "text by a tokenizer" ;;
esac
# A file of its tokens is the same data.
run 0 tokenize --tokenizer tokenizer.json fox.txt --out fox.bin
run 0 train fox.yaml --out fox2 --set data.path=fox.bin --set data.tokens=uint16
cmp -s fox/checkpoint/step-150/model.safetensors fox2/checkpoint/step-150/model.safetensors || fail "text and tokens differ"
echo ok
