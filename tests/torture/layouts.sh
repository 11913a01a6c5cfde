#!/bin/bash
# layouts.sh -- a checkpoint knows nothing of who wrote it: saved under one layout, resumed under another.
#
#   tests/torture/layouts.sh FORERUN
#
# One worker, 2 stages, 4 stages, 2 replicas, 2 x 2 and [2, 1], each in as many processes as it has
# workers: 36 pairs, for two networks. Weights, evaluations and losses are those of a run that one
# worker made without a break, bit for bit. A few minutes on two cores; tests/run/test_layouts.c has
# the same pairs in threads.
# shellcheck disable=SC1091,SC2154
forerun=$(realpath "${1:?usage: layouts.sh FORERUN}")
set -- "$forerun" "$(realpath "$(dirname "$0")/../..")"
. "$(dirname "${BASH_SOURCE[0]}")/../cli/same.bash"

layouts=(
    "1 method=single"
    "2 method=1f1b stages=2"
    "4 method=gpipe stages=4"
    "2 method=dp replicas=2"
    "4 method=zb-h1 stages=2 replicas=2"
    "3 method=1f1b replicas=[2,1]"
)

# train NET OUT LAYOUT MORE...
train() {
    local net=$1 out=$2 n words sets=() word
    read -r n words <<<"$3"
    shift 3
    for word in $words; do sets+=(--set "parallel.$word"); done
    set -- train "$net.yaml" --out "$out" --set train.exact_sum=true "${sets[@]}" --quiet "$@"
    if [ "$n" = 1 ]; then run 0 "$@"; else mpi "$n" 0 "$@"; fi
}

n_pairs=0
for net in mlp tied; do
    rm -rf whole
    train $net whole "${layouts[0]}" --set train.steps=12
    numbers whole >whole-numbers
    for a in "${layouts[@]}"; do
        rm -rf saved
        train $net saved "$a" --set train.steps=6
        for b in "${layouts[@]}"; do
            rm -rf both
            cp -r saved both
            train $net both "$b" --set train.steps=12 --resume
            numbers both >both-numbers
            cmp -s whole-numbers both-numbers || {
                diff whole-numbers both-numbers
                fail "$net: saved under '$a', resumed under '$b': other numbers than a whole run"
            }
            for file in model optimizer; do
                cmp {whole,both}/checkpoint/step-12/$file.safetensors || fail "$net: $a, $b: $file"
            done
            n_pairs=$((n_pairs + 1))
        done
        echo "$net: saved under '$a', resumed under each: the same ($SECONDS s)"
    done
done
echo "ok: $n_pairs pairs"
