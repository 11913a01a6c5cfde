# Completion: bash's is called as bash calls it; zsh and fish read theirs, if they are installed.
. "$(dirname "$0")/lib.bash"

for shell in bash zsh fish; do
    "$forerun" completion $shell >script.$shell || fail "completion $shell"
done
run 2 completion csh
says "bash, zsh or fish"
bash -n script.bash || fail "bash cannot read its script"
reads() { # SHELL ARGUMENT...: it can read its script
    if command -v "$1" >/dev/null; then
        "$@" "script.$1" || fail "$1 cannot read its script"
    else
        skipped "completion read by $1" "no $1"
    fi
}
reads zsh -n
reads fish --no-execute

# offers WORD...: the completions of the last word in bash, one per line
offers() {
    bash --norc -c 'source ./script.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _forerun
        printf "%s\n" "${COMPREPLY[@]}"' bash forerun "$@"
}
offered() { # WORD, then as offers: it is among them
    local word=$1
    shift
    offers "$@" >offered.txt
    grep -qxF -- "$word" offered.txt
}
mkdir -p nets/deep
touch nets/one.yaml nets/two.yml nets/three.txt
offered schedule sch || fail "verbs"
offered help '' || fail "help"
offered nets/one.yaml train nets/o || fail "a config"
offers train nets/ | sort | paste -sd' ' >got
same "$(cat got)" "nets/deep nets/one.yaml nets/two.yml" "configs"
offered nets train x.yaml --out ne || fail "a folder"
offered nets/three.txt simulate x.yaml --cluster nets/th || fail "a file"
offered --resume train x.yaml --res || fail "an option"
offers schedule spec | sort | paste -sd' ' >got
same "$(cat got)" "spectrain spectrain-v2" "methods"
offered 1f1b-async schedule 1f1b- || fail "generators"
offered json schedule 1f1b --format j || fail "choices of an option"
offered reslstm models res || fail "models"
offered dapple plan x.yaml --planner dap || fail "planners"
offered train.optimizer.lr= train x.yaml --set train.opt || fail "keys"
offers train x.yaml --set parallel.method = pipe | sort | paste -sd' ' >got
same "$(cat got)" "pipedream pipedream-2bw pipemare pipeoptim" "values of a key"
offers train x.yaml --set parallel.pin = | paste -sd' ' >got
same "$(cat got)" "true false" "values of a key, none begun"
offered train help tr || fail "help of a verb"

# All three have every verb and every option of its help.
"$forerun" help | sed -n '/^  [a-z]/s/^  \([a-z]*\) .*/\1/p' | grep -v '^help$' >verbs
[ "$(wc -l <verbs)" -gt 12 ] || fail "too few verbs"
n=0
while read -r verb; do
    "$forerun" help "$verb" >help.txt
    sed -n "/^    $verb)/,/^        ;;/p" script.zsh >zsh.txt
    if grep -qE "^usage: forerun $verb \[?[A-Za-z]" help.txt; then
        grep -qF "'*:" zsh.txt || fail "$verb: its argument is not offered"
    fi
    for word in $(sed -n 's/^  \(--*[a-z][a-z-]*\)\( .*\)*$/\1/p' help.txt); do
        offered "$word" "$verb" "$word" || fail "bash: $verb $word"
        grep -qF -- "$word[" zsh.txt || fail "zsh: $verb $word"
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
