# Help, version, lists, and wrong usage.
. "$(dirname "$0")/lib.bash"

run 0 --version
grep -qE '^forerun [0-9]+\.[0-9]+\.[0-9]+$' out || fail "version"
run 0 help
for verb in train launch eval generate schedule models methods info; do
    grep -q "^  $verb " out || fail "help does not list $verb"
done
for verb in train launch eval generate schedule models methods info; do
    "$forerun" help $verb >by_help || fail "help $verb"
    "$forerun" $verb --help >by_option || fail "$verb --help"
    cmp -s by_help by_option || fail "$verb: two ways to its help, two texts"
    grep -q "^usage: forerun $verb" by_help || fail "$verb: no usage line"
done

run 0 models
for model in mlp snn lenet alexnet vgg16 resnet50 resnet101 resnet152 inception3 transformer gpt reslstm gnmt biglstm; do
    grep -q "^$model " out || fail "models does not list $model"
done
run 0 models vgg16 --image 32 --classes 10
grep -q '(3, 32, 32)' out || fail "models --image"
run 0 methods
for name in single naive-mp gpipe 1f1b interleaved zb-h1 zb-h2 zbv v-half v-min dualpipev vanilla-async pipedream pipedream-2bw \
    spectrain spectrain-v2 xpipe pipeoptim decay-aware pipemare forerun paci nesterov-async timeprest \
    stash double-buffer sequential 1f1b-async nf1b; do
    grep -q "^  $name " out || fail "methods does not list $name"
done
# Every method has its page and its row in the overview, and nothing else has one.
sed -n '/^parallel.method/,/^parallel.weights/s/^  \([^ ]*\) .*/\1/p' out >methods
while read -r name; do
    grep -qF "| [$name](methods/$name.md) |" "$source_dir/docs/methods.md" || fail "docs/methods.md: no row $name"
    page=$source_dir/docs/methods/$name.md
    for part in Rule 'Memory and idle time' When Config; do
        grep -qx "## $part" "$page" || fail "$page has no part '$part'"
    done
done <methods
same "$(ls "$source_dir"/docs/methods/*.md | wc -l)" "$(wc -l <methods)" "pages in docs/methods"
# Every key that a run writes into its config is in the reference.
printf 'model: {name: mlp}\ndata: {name: synthetic, n: 32, n_eval: 8}\ntrain: {steps: 1, batch: 8}\n' >keys.yaml
run 0 train keys.yaml --out keys --quiet --set model.width=8 --set model.depth=2
awk '/^[a-z]/ { section = $1; sub(":", "", section) }
    /^  [a-z_]+:/ && (section == "train" || section == "parallel" || section == "run") {
        key = $1; sub(":", "", key); print section "." key }' keys/config.yaml >keys.txt
while read -r key; do
    grep -qE "^\| \`$key[.\`]" "$source_dir/docs/reference.md" || fail "docs/reference.md does not explain $key"
done <keys.txt
[ "$(wc -l <keys.txt)" -gt 20 ] || fail "too few keys in config.yaml"
run 0 info
grep -q 'oneDNN' out || fail "info does not tell about the cpu backend"

run 2
run 2 trian x.yaml
says "no verb 'trian'" "did you mean train?"
run 2 train
says "no config given"
run 2 train net.yaml --resmue
says "no option --resmue" "did you mean --resume?"
run 2 train net.yaml --out
says "needs a value" "--out"
run 2 train net.yaml other.yaml
says "unexpected argument" "other.yaml"
run 2 train net.yaml --dump-step two
says "--dump-step" "two" "whole number"
run 2 train net.yaml --resume=yes
says "takes no value" "--resume"
run 2 models nosuch
says "nosuch"
run 2 generate net.yaml
says "--prompt"
run 2 help nosuch
says "no verb 'nosuch'"
echo ok
