# Completion: bash's is asked as bash asks it; zsh's and fish's are read, where those are installed.
. "$(dirname "$0")/lib.bash"

for shell in bash zsh fish; do
    "$forerun" completion $shell >script.$shell || fail "completion $shell"
done
run 2 completion csh
says "bash, zsh or fish"
bash -n script.bash || fail "bash cannot read its script"
if command -v zsh >/dev/null; then zsh -n script.zsh || fail "zsh cannot read its script"; fi
if command -v fish >/dev/null; then fish --no-execute script.fish || fail "fish cannot read its script"; fi

# offers WORD...: what bash offers for the last word, one a line
offers() {
    bash --norc -c 'source ./script.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _forerun
        printf "%s\n" "${COMPREPLY[@]}"' bash forerun "$@"
}
mkdir -p nets/deep
touch nets/one.yaml nets/two.yml nets/three.txt
offers sch | grep -qx schedule || fail "verbs"
offers '' | grep -qx help || fail "help"
offers train nets/o | grep -qx nets/one.yaml || fail "a config"
offers train nets/ | sort | paste -sd' ' >got
same "$(cat got)" "nets/deep nets/one.yaml nets/two.yml" "configs"
offers train x.yaml --out ne | grep -qx nets || fail "a folder"
offers simulate x.yaml --cluster nets/th | grep -qx nets/three.txt || fail "a file"
offers train x.yaml --res | grep -qx -- --resume || fail "an option"
offers schedule spec | sort | paste -sd' ' >got
same "$(cat got)" "spectrain spectrain-v2" "methods"
offers schedule 1f1b- | grep -qx 1f1b-async || fail "generators"
offers schedule 1f1b --format j | grep -qx json || fail "choices of an option"
offers models res | grep -qx reslstm || fail "models"
offers plan x.yaml --planner dap | grep -qx dapple || fail "planners"
offers train x.yaml --set train.opt | grep -qx train.optimizer.lr= || fail "keys"
offers train x.yaml --set parallel.method = pipe | sort | paste -sd' ' >got
same "$(cat got)" "pipedream pipedream-2bw pipemare pipeoptim" "values of a key"
offers train x.yaml --set parallel.pin = | paste -sd' ' >got
same "$(cat got)" "true false" "values of a key, none begun"
offers help tr | grep -qx train || fail "help of a verb"

# Every verb and every option of its help is known to all three.
"$forerun" help | sed -n '/^  [a-z]/s/^  \([a-z]*\) .*/\1/p' | grep -v '^help$' >verbs
[ "$(wc -l <verbs)" -gt 12 ] || fail "too few verbs"
n=0
while read -r verb; do
    for word in $("$forerun" help "$verb" | sed -n 's/^  \(--*[a-z][a-z-]*\)\( .*\)*$/\1/p'); do
        offers "$verb" "$word" | grep -qx -- "$word" || fail "bash: $verb $word"
        sed -n "/^    $verb)/,/^        ;;/p" script.zsh | grep -qF -- "$word[" || fail "zsh: $verb $word"
        bare=${word##-}
        grep -qE "seen_subcommand_from $verb' -[ls] ${bare#-}( |\$)" script.fish || fail "fish: $verb $word"
        n=$((n + 1))
    done
done <verbs
[ $n -gt 60 ] || fail "too few options: $n"

# Keys: each form has the same ones.
run 0 keys
grep -c '^[a-z]' out >n_table
run 0 keys --format markdown
tail -n +3 out | wc -l >n_markdown
run 0 keys --format json
grep -c '"path"' out >n_json
same "$(cat n_table)" "$(cat n_markdown)" "keys as a table and as markdown"
same "$(cat n_table)" "$(cat n_json)" "keys as a table and as JSON"
run 0 keys parallel.method
grep -q 'default single' out || fail "the default of parallel.method"
run 2 keys nosuch
says "no key begins with 'nosuch'"
run 2 keys --format xml
says "table, markdown or json"
echo ok
