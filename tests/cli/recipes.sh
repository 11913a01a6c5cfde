# The recipes of CONTRIBUTING.md: each example is applied to the sources, compiled and used, and has
# the size given there.
. "$(dirname "$0")/lib.bash"
build=$(dirname "$forerun")
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
if [ -n "$(cached FR_SANITIZE)" ]; then
    skip_all "objects of a sanitizer's build are not linked again"
fi
cc=$(cached CMAKE_C_COMPILER)
pc() { sed -n "s/^$1: //p" "$build/forerun.pc"; }
# shellcheck disable=SC2046
libraries="$(pc Libs.private) $(pkg-config --libs $(pc Requires.private))"

# recipe NAME: ./NAME is the command with that example in it
recipe() {
    local patch=$source_dir/examples/recipes/$1.patch tree=$work/tree-$1 file objects=()
    mkdir "$tree"
    cp -r "$source_dir/src" "$source_dir/include" "$tree/"
    (cd "$tree" && git apply "$patch") || fail "$1.patch does not apply"
    for file in $(sed -n 's|^+++ b/\(.*\.c\)$|\1|p' "$patch"); do
        "$cc" -std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra -Wpedantic -Wconversion -Werror -I"$tree/include" \
            -I"$tree/src" -c "$tree/$file" -o "$tree/${file//\//_}.o" || fail "$1: $file does not compile"
        objects+=("$tree/${file//\//_}.o")
    done
    # shellcheck disable=SC2086
    "$cc" "${objects[@]}" "$build"/CMakeFiles/forerun.dir/cli/*.o "$build/libforerun.a" $libraries -o "$1" ||
        fail "$1: cannot be linked"
    "$source_dir/scripts/check-house.sh" --root "$tree" layers sizes >said || fail "$1: $(cat said)"
    # Its size: files, lines that are new.
    local files lines
    files=$(grep -c '^+++ b/' "$patch")
    lines=$(grep '^+' "$patch" | grep -vc '^+++')
    grep -qF "| [$1](examples/recipes/$1.patch) | $files | $lines |" "$source_dir/CONTRIBUTING.md" ||
        fail "CONTRIBUTING.md does not say that $1 takes $files files and $lines lines"
}
as() { # NAME ARGUMENT...: run the command of a recipe
    forerun=$work/$1 run 0 "${@:2}"
}
train() { as "$1" train deep.yaml --quiet --out "run-$1" --set run.predict=false "${@:2}"; }
sed 's/depth: 2/depth: 6/' net.yaml >deep.yaml

recipe schedule
as schedule schedule eager --format json
grep -q '"peak_live": *\[7, *5, *3, *1\]' out || fail "eager holds other activations: $(cat out)"
as schedule schedule eager --replicas 2
recipe policy
train policy --set parallel.method=vanilla-async --set parallel.weights=one-ahead --set parallel.stages=4 \
    --set train.micro=1 --ledger ledger.csv
grep -q '^0,0,[0-9]*,F,[0-9]*,1,' ledger.csv || fail "one-ahead does not predict"
if grep -q ',[FB],[0-9]*,[2-9],' ledger.csv; then fail "one-ahead predicts further than one"; fi
recipe optimizer
train optimizer --set train.optimizer='{name: adamw-free, lr: 0.001}'
recipe model
train model --set model='{name: softmax, inputs: 12, classes: 4}'
recipe backend
train backend --set parallel.backend=mine
mine=$(field run-backend/summary.json weights_sha256)
run 0 train deep.yaml --quiet --out run-ref --set parallel.backend=ref --set run.predict=false
same "$mine" "$(field run-ref/summary.json weights_sha256)" "weights by mine and by ref"
echo ok
