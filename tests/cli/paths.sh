# Paths of a config are relative to its folder, those of --set to the current one; a saved config
# works from any folder.
. "$(dirname "$0")/lib.bash"

mkdir -p conf/corpus elsewhere
seq 1 400 | tr '\n' ' ' >conf/corpus/text.txt
cat >conf/text.yaml <<YAML
model: {name: gpt, layers: 1, width: 16, heads: 2, context: 16, vocab: 256}
data: {name: text, path: corpus/text.txt}
train: {batch: 4, micro: 2, steps: 2, seed: 3, optimizer: {name: sgd, lr: 0.1}}
parallel: {threads: 1}
YAML

# --- beside the config, from any folder ---
run 0 train conf/text.yaml --out here --quiet
[ ! -s err ] || fail "a path beside the config needs no warning: $(cat err)"
cd elsewhere || exit 1
run 0 train ../conf/text.yaml --out ../there --quiet
cd ..
same "$(field here/summary.json weights_sha256)" "$(field there/summary.json weights_sha256)" "weights"
grep -q "path: $PWD/conf/corpus/text.txt" here/config.yaml || fail "the saved path is not whole"
(cd elsewhere && "$forerun" train ../here/config.yaml --out ../again --quiet >../out 2>../err) ||
    fail "a saved config from another folder"

# --- by --set: from the current folder ---
run 0 train conf/text.yaml --out set --quiet --set data.path=conf/corpus/text.txt
[ ! -s err ] || fail "a path of --set needs no warning: $(cat err)"
run 2 train conf/text.yaml --out x --quiet --set data.path=corpus/text.txt
says "corpus/text.txt"

# --- as before: from the current folder, with a warning; beside the config comes first ---
sed 's|path: .*|path: conf/corpus/text.txt}|' conf/text.yaml >conf/old.yaml
run 0 train conf/old.yaml --out old --quiet
says "data.path" "conf/conf/corpus/text.txt" "current folder"
mkdir -p corpus && echo short >corpus/text.txt
run 0 train conf/text.yaml --out both --quiet
same "$(field both/summary.json weights_sha256)" "$(field here/summary.json weights_sha256)" "which of two"
sed 's|path: .*|path: nowhere.txt}|' conf/text.yaml >conf/none.yaml
run 2 train conf/none.yaml --out x --quiet
says "conf/nowhere.txt"

# --- lists of files, and cases of a comparison ---
printf 'a b\nc d\ne f\ng h\n' >conf/one.txt && cp conf/one.txt conf/two.txt
cat >conf/pairs.yaml <<YAML
model: {name: gnmt, layers: 2, width: 8, context: 8, vocab: 16}
data: {name: pairs, train: [one.txt, two.txt]}
train: {batch: 2, steps: 1, optimizer: {name: sgd, lr: 0.1}}
parallel: {threads: 1}
YAML
run 0 train conf/pairs.yaml --out pairs --quiet
grep -q "train: \[$PWD/conf/one.txt, $PWD/conf/two.txt\]" pairs/config.yaml || fail "lists of files"
