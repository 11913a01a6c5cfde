#!/bin/bash
# damage.sh -- checkpoints damaged in every way: each damage is noticed, and the run goes on from an
# older checkpoint to the weights of a run that was left alone.
#
#   tests/torture/damage.sh FORERUN [DAMAGES of each net (64)] [SEED (1)]
#
# Every optimizer, every weight policy that remembers something, running statistics, tied parameters.
# Of three checkpoints the newest (sometimes two) gets a flipped bit, zeros, noise, NaN, is cut,
# lengthened, emptied, removed, renamed, or has a file of another checkpoint, in each of its files.
# `forerun checkpoint verify` names the file; `train --resume` names it too and takes the one before.
# What is harmless by construction (a file more, another date, a name that is no checkpoint's) is
# done as well, and changes nothing. Prints a line for each net; 0.3 s a damage.
set -uo pipefail
forerun=$(realpath "${1:?usage: damage.sh FORERUN [DAMAGES] [SEED]}")
n_each=${2:-64}
RANDOM=${3:-1}
source_dir=$(realpath "$(dirname "$0")/../..")
. "$(dirname "$0")/../cli/lib.bash" "$forerun" "$source_dir"

cat >mlp.yaml <<YAML
model: {name: mlp, inputs: 12, depth: 6, width: 16, classes: 4}
YAML
cat >conv.yaml <<YAML
model:
  nodes:
    - {name: input, op: input, shape: [3, 6, 6]}
    - {name: conv, op: conv2d, out: 4, kernel: 3, pad: 1}
    - {name: norm, op: batch_norm}
    - {name: relu, op: relu}
    - {name: flat, op: flatten}
    - {name: head, op: linear, out: 5}
YAML
cat >gpt.yaml <<YAML
model: {name: gpt, layers: 1, width: 16, heads: 2, context: 8, vocab: 20, tied: true}
YAML
for net in mlp conv gpt; do
    cat >>$net.yaml <<YAML
data: {name: synthetic, n: 100, n_eval: 0}
train: {batch: 8, micro: 4, steps: 8, seed: 3}
parallel: {threads: 1, pin: false}
run: {checkpoint_every: 2, keep: 9, predict: false, trace: 0, report: false, csv: false, tensorboard: false}
YAML
done
# A network, an optimizer, a layout.
nets=(
    "mlp {name: sgd, lr: 0.1} {method: dp, replicas: 2}"
    "mlp {name: sgd, lr: 0.1, momentum: 0.9} {method: spectrain, stages: 3}"
    "conv {name: nadam} {method: single}"
    "gpt {name: adamw} {method: 1f1b, stages: 2}"
    "mlp {name: adam} {method: xpipe, stages: 3}"
    "mlp {name: sgd, lr: 0.1, momentum: 0.9} {method: pipedream-2bw, stages: 3}"
    "mlp {name: sgd, lr: 0.1, momentum: 0.9} {method: pipemare, stages: 3}"
    "mlp {name: adamw} {method: pipedream-2bw, stages: 2}"
    "mlp {name: muon} {method: pipeoptim, stages: 3}"
    "mlp {name: lion} {method: spectrain, stages: 3}"
)
model=model.safetensors optimizer=optimizer.safetensors
# A damage and the file it is done to, if it is to one.
kinds=()
for file in $model $optimizer state.json; do
    for kind in flip flip flip zero noise shorten empty longer gone away older exchanged; do kinds+=("$kind $file"); done
done
kinds+=("flip_head $model" "flip_head $optimizer" "nan $model" "nan $optimizer" crossed renamed swapped hollow
    a_file other_step old_format more_files other_name dates)

# --- damages: of the folder cut/checkpoint; they set `names`, what is said, and `from`, the step ---

c=cut/checkpoint
random() { echo $(((RANDOM * 32768 + RANDOM) % $1)); }
size() { stat -c %s "$1"; }
# put FILE AT BYTE...: in place.
put() {
    local file=$1 at=$2
    shift 2
    printf '%b' "$(printf '\\x%02x' "$@")" | dd of="$file" bs=1 seek="$at" conv=notrunc status=none
}
flip_at() { put "$1" "$2" $(($(od -An -tu1 -j "$2" -N 1 "$1") ^ 1 << RANDOM % 8)); }
flip() { flip_at "$1" "$(random "$(size "$1")")"; }
flip_head() { flip_at "$1" "$(random 64)"; }
zero() { # until it is another file
    local n
    cp "$1" before
    while cmp -s "$1" before; do
        n=$(size "$1")
        dd if=/dev/zero of="$1" bs=1 seek="$(random "$n")" count=1 conv=notrunc status=none
    done
}
noise() { put "$1" "$(random $(($(size "$1") - 8)))" $((RANDOM % 256)) $((RANDOM % 256)) $((RANDOM % 256)) 200; }
nan() { put "$1" $(($(size "$1") - 4)) 0 0 192 127; } # in the last value, or the header of an empty one
shorten() { truncate -s "$(random "$(size "$1")")" "$1"; }
empty() { : >"$1"; }
longer() { head -c $((1 + RANDOM % 100)) /dev/zero >>"$1"; }
gone() { rm "$1"; }
away() { mv "$1" "$1.bak"; }
older() { cp "${1/step-6/step-4}" "$1"; }
exchanged() {
    mv "$1" one && mv "${1/step-6/step-4}" "$1" && mv one "${1/step-6/step-4}"
    names="$names step-4/${1##*/}" from=2
}
crossed() { mv $c/step-6/$model one && mv $c/step-6/$optimizer $c/step-6/$model && mv one $c/step-6/$optimizer; }
renamed() { mv $c/step-6 $c/step-7 && names=step-7; }
swapped() { mv $c/step-6 one && mv $c/step-4 $c/step-6 && mv one $c/step-4 && names="step-6 step-4" from=2; }
hollow() { rm $c/step-6/*; }
a_file() { rm -r $c/step-6 && echo step >$c/step-6; }
other_step() { sed -i 's/"step": 6/"step": 7/' $c/step-6/state.json; }
old_format() { sed -i 's/"format": 2/"format": 1/' $c/step-6/state.json; }
more_files() { cp $c/step-4/$model $c/step-6/more.safetensors && echo >$c/note && names='' from=6; }
other_name() { mv $c/step-6 $c/best && names=''; }
dates() { touch -d 2001-01-01 $c/step-6/* $c/step-6 && names='' from=6; }

# --- judgement ---

# damage KIND [FILE]
damage() {
    local kind=$1 file=${2:-} wanted=0 name
    rm -rf cut && cp -r ready cut
    names=step-6${file:+/$file} from=4
    $kind ${file:+$c/step-6/$file}
    [ -z "$names" ] || wanted=1
    run $wanted checkpoint verify cut
    for name in $names; do
        grep -q "^damaged .*$c/$name" out || fail "$net: $*: verify does not name $name"
    done
    run 0 train "$net.yaml" --out cut "${sets[@]}" --resume
    for name in $names; do
        grep -q "warning.*$c/$name.*using the checkpoint before it" err || fail "$net: $*: no word of $name"
    done
    [ -n "$names" ] || ! grep -q "warning.*checkpoint" err || fail "$net: $*: a warning of what is harmless"
    grep -q "resuming from $c/step-$from\$" err || fail "$net: $*: not resumed from step-$from"
    same "$(field cut/summary.json weights_sha256)" "$(field whole/summary.json weights_sha256)" "$net: $*: weights"
    for name in $model $optimizer; do
        cmp -s {whole,cut}/checkpoint/step-8/$name || fail "$net: $*: another $name than a run left alone"
    done
    n_done=$((n_done + 1))
    [ -z "$names" ] && n_harmless=$((n_harmless + 1))
}

n_done=0 n_harmless=0 n_net=0
for line in "${nets[@]}"; do
    net=${line%% *} layout=${line##*\{}
    optim=${line#* } optim=${optim%% \{*}
    sets=(--set "train.optimizer=$optim" --set "parallel={threads: 1, pin: false, $layout")
    rm -rf whole ready
    run 0 train "$net.yaml" --out whole "${sets[@]}" --quiet
    run 0 checkpoint verify whole
    cp -r whole ready && rm -r ready/checkpoint/step-8
    before=$n_done
    for ((i = 0; i < n_each; i++)); do
        read -r -a words <<<"${kinds[$(((n_net * n_each + i) * 7 % ${#kinds[@]}))]}"
        damage "${words[@]}"
    done
    n_net=$((n_net + 1))
    echo "$line: $((n_done - before)) damages ($SECONDS s)"
done
echo "ok: $n_done damages, $n_harmless of them harmless; the weights of runs left alone"
