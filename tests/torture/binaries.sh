#!/bin/bash
# binaries.sh -- compares two builds of forerun: the same configurations give the same weights.
#
#   tests/torture/binaries.sh FORERUN FORERUN
#
# Trains every method on both backends, then replicas, recompute, clipping, tied parameters, exact
# sums, weight policies, resumed runs and runs of several processes, with each command. Compares the
# hash of the weights, the evaluation loss and the bytes of memory, forecast and taken. Prints one
# line per configuration; exit code 1 if any differs. Both commands need the same oneDNN; runs of
# several processes are left out, and named, where there is no mpirun.
set -euo pipefail
[ $# = 2 ] || { sed -n '4s/^# *//p' "$0" >&2 && exit 2; }
old=$(realpath "$1") new=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMP_WAIT_POLICY=passive OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

cat >mlp.yaml <<'YAML'
model: {name: mlp, inputs: 24, depth: 6, width: 33, classes: 4}
data: {name: synthetic, n: 64, n_eval: 16}
train: {batch: 8, micro: 4, steps: 12, seed: 3, optimizer: {name: sgd, lr: 0.02, momentum: 0.9}}
parallel: {threads: 1, pin: false}
run: {trace: 0, predict: false, eval_every: 6}
YAML
sed 's/^model:.*/model: {name: cnn, width: 20, image: 12, channels: 3, classes: 4}/' mlp.yaml >cnn.yaml
sed -e 's/^model:.*/model: {name: gpt, layers: 3, width: 24, heads: 2, context: 8, vocab: 17, tied: true, dropout: 0.1}/' \
    -e 's/{name: sgd[^}]*}/{name: adamw, lr: 0.002}/' mlp.yaml >gpt.yaml

read_result() { # FOLDER
    jq -c '[.weights_sha256, .eval_loss, [.workers[] | [.predicted_peak_bytes, .peak_bytes, .weight_copies]]]' "$1/summary.json"
}
train() { # COMMAND FOLDER NET KEY=VALUE...
    local command=$1 folder=$2 net=$3 words=() setting
    shift 3
    for setting; do words+=(--set "$setting"); done
    "$command" train "$net.yaml" --out "$folder" --quiet "${words[@]}"
}
n=0 bad=0
judge() { # NAME: compares the folders old and new
    n=$((n + 1))
    local a b
    a=$(read_result old) b=$(read_result new)
    if [ "$a" = "$b" ]; then
        printf 'same    %-60s %s\n' "$1" "$(jq -r '.[0][:12]' <<<"$a")"
    else
        printf 'DIFFERS %s\n  %s\n  %s\n' "$1" "$a" "$b"
        bad=1
    fi
    rm -rf old new
}
compare() { # NET KEY=VALUE...
    train "$old" old "$@" && train "$new" new "$@" && judge "$*" || exit 1
}

pipeline='parallel.stages=3'
for backend in cpu ref; do
    compare mlp parallel.backend=$backend parallel.method=single
    for method in dp model-averaging; do
        compare mlp parallel.backend=$backend parallel.method=$method parallel.replicas=2
    done
    for method in naive-mp gpipe 1f1b zb-h1 vanilla-async pipedream pipedream-2bw spectrain \
        spectrain-v2 xpipe pipeoptim decay-aware pipemare paci timeprest; do
        compare mlp parallel.backend=$backend parallel.method=$method $pipeline
    done
    compare mlp parallel.backend=$backend parallel.method=interleaved parallel.stages=4 parallel.chunks=2
    compare mlp parallel.backend=$backend parallel.method=nesterov-async $pipeline \
        'train.optimizer={name: nadam, lr: 0.002, beta1: 0.99}'
done
compare cnn parallel.method=1f1b $pipeline parallel.replicas=2 train.exact_sum=true
compare cnn parallel.method=spectrain $pipeline parallel.recompute=true
compare cnn parallel.method=spectrain parallel.stages=2 parallel.replicas=2
compare cnn parallel.method=zb-h1 $pipeline train.clip_norm=0.1
compare cnn parallel.method=1f1b $pipeline parallel.threads=2
compare gpt parallel.method=1f1b $pipeline train.clip_norm=0.5
compare gpt parallel.method=gpipe parallel.stages=2 parallel.replicas=2
compare gpt parallel.method=single train.clip_norm=0.5
compare mlp parallel.method=dp parallel.replicas=2 "parallel.sync={name: wsp}"
compare mlp parallel.method=vanilla-async parallel.weights=stash $pipeline

# A run that is resumed, in another number of stages for flush methods.
for method in 1f1b spectrain; do
    stages=3
    [ $method = spectrain ] || stages=2
    for side in old new; do
        train "${!side}" $side cnn parallel.method=$method $pipeline train.steps=6
        "${!side}" train cnn.yaml --out $side --resume --quiet --set parallel.method=$method \
            --set parallel.stages=$stages --set train.steps=12
    done
    judge "cnn resumed, parallel.method=$method"
done

if command -v mpirun >/dev/null; then
    for words in "mlp parallel.method=spectrain parallel.stages=2" \
        "gpt parallel.method=1f1b parallel.stages=2" \
        "cnn parallel.method=dp parallel.replicas=2"; do
        read -r net method layout <<<"$words"
        for side in old new; do
            "${!side}" launch -n 2 "$net.yaml" --out $side --quiet --set "$method" --set "$layout"
        done
        judge "2 processes, $words"
    done
else
    echo "left out: runs of several processes (no mpirun)"
fi
echo "$n configurations, $([ $bad = 0 ] && echo all the same || echo some differ)"
exit $bad
