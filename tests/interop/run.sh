#!/bin/sh
# run.sh -- trains two mini-batches of every model and lets PyTorch judge the second; then PyTorch
# continues from checkpoints that several processes wrote.
#
#   tests/interop/run.sh BUILD_DIR [MODEL...]
#
# Needs Debian's python3-torch (exit code 77, skipped, without it). Exit code 1 if a model disagrees.
set -eu
build=${1:?usage: run.sh BUILD_DIR [MODEL...]}
shift
here=$(dirname "$0")
python=/usr/bin/python3
if ! $python -c 'import torch' 2>/dev/null; then
    echo "run.sh: skipped: $python has no torch; install python3-torch" >&2
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

sgd='{name: sgd, lr: 0.01, momentum: 0.9, weight_decay: 0.0005}'
adamw='{name: adamw, lr: 0.001, weight_decay: 0.01}'
verdict=0
header=--header
selected=" $* "

# case_of MODEL "sizes" BATCH MICRO "optimizers" [options of torch_check]
case_of() {
    model=$1 sizes=$2 batch=$3 micro=$4 optimizers=$5
    shift 5
    if [ "$selected" != "  " ] && [ "${selected#* "$model" }" = "$selected" ]; then return 0; fi
    for name in $optimizers; do
        eval "optimizer=\$$name"
        rm -rf "$work/run"
        cat >"$work/config.yaml" <<END
model: {name: $model${sizes:+, }$sizes}
data: {name: synthetic, n: 64, n_eval: 0}
train: {batch: $batch, micro: $micro, steps: 2, seed: 3, optimizer: $optimizer}
END
        if ! "$build/forerun" train "$work/config.yaml" --out "$work/run" --dump-step 2 >"$work/log" 2>&1; then
            echo "run.sh: forerun train failed on {name: $model, $sizes}:" >&2
            cat "$work/log" >&2
            verdict=1
            continue
        fi
        $python "$here/torch_check.py" $header "$@" "$work/run/step-2.safetensors" || verdict=1
        header=
    done
}

both="sgd adamw"
case_of mlp 'inputs: 64, depth: 4, width: 96' 16 4 "$both"
case_of snn 'inputs: 64, depth: 6, width: 96, dropout: 0' 16 2 "$both"
case_of lenet '' 8 2 "$both"
case_of cnn 'width: 8' 16 2 "$both"
case_of alexnet 'classes: 10, image: 32, dropout: 0, width_factor: 0.25' 4 2 "$both"
case_of alexnet 'classes: 10, image: 128, dropout: 0, width_factor: 0.25' 4 1 sgd
case_of vgg16 'classes: 10, image: 32' 4 2 "$both"
case_of vgg16 'classes: 10, image: 28, channels: 1, batch_norm: true, width_factor: 0.25' 16 1 sgd
case_of vgg16 'classes: 10, image: 128, dropout: 0, width_factor: 0.125' 2 1 sgd
case_of resnet50 'classes: 10, image: 32' 4 1 "$both"
case_of resnet50 'classes: 10, image: 128, width_factor: 0.25' 4 1 sgd
case_of inception3 'classes: 10, image: 32, dropout: 0' 4 1 "$both"
case_of inception3 'classes: 10, image: 139, dropout: 0, width_factor: 0.25' 4 1 sgd
case_of gpt 'layers: 3, width: 64, heads: 4, context: 32, vocab: 80' 8 2 "$both" --heads 4
case_of gpt 'layers: 2, width: 64, heads: 2, context: 32, vocab: 80, tied: true' 8 1 sgd --heads 2
case_of transformer 'layers: 3, width: 64, heads: 4, context: 24, vocab: 100, dropout: 0' 8 2 "$both" --heads 4
case_of transformer 'layers: 2, width: 48, heads: 3, context: 24, vocab: 100, dropout: 0, label_smoothing: 0.1' 8 1 \
    sgd --heads 3 --smoothing 0.1
case_of reslstm 'layers: 4, width: 48, context: 20, vocab: 100' 8 2 "$both"
case_of gnmt 'layers: 4, width: 48, context: 12, vocab: 90, dropout: 0' 8 2 "$both"
case_of gnmt 'layers: 1, width: 32, context: 9, vocab: 50, dropout: 0' 6 1 sgd
case_of biglstm 'layers: 2, width: 96, projection: 40, context: 14, vocab: 120, dropout: 0' 8 2 "$both"

# Checkpoints of four processes, two stages x two replicas: PyTorch continues from them.
go_on() { # "{model}" "optimizer" [options of checkpoint_check]
    eval "optimizer=\$$2"
    rm -rf "$work/run"
    cat >"$work/config.yaml" <<END
model: $1
data: {name: synthetic, n: 64, n_eval: 0}
train: {batch: 16, micro: 4, steps: 5, seed: 3, optimizer: $optimizer}
parallel: {method: 1f1b, stages: 2, replicas: 2, threads: 1, pin: false}
run: {checkpoint_every: 1}
END
    shift 2
    if ! "$build/forerun" launch -n 4 --restarts 0 "$work/config.yaml" --out "$work/run" --dump-step 5 >"$work/log" 2>&1; then
        echo "run.sh: forerun train failed in four processes:" >&2
        cat "$work/log" >&2
        verdict=1
        return 0
    fi
    $python "$here/checkpoint_check.py" "$@" "$work/run/checkpoint/step-4" "$work/run/checkpoint/step-5" \
        "$work/run/step-5.safetensors" || verdict=1
}
if [ "$selected" = "  " ]; then
    if "$build/forerun" info | grep -q '^  mpi '; then
        echo "from checkpoints of 2 stages x 2 replicas in four processes:"
        go_on '{name: mlp, inputs: 64, depth: 4, width: 96}' sgd
        go_on '{name: gpt, layers: 2, width: 64, heads: 2, context: 32, vocab: 80, tied: true}' adamw --heads 2
        go_on '{name: vgg16, classes: 10, image: 28, channels: 1, batch_norm: true, width_factor: 0.25}' adamw
    else
        echo "run.sh: built without MPI: checkpoints of several processes are left out" >&2
    fi
fi

[ $verdict = 0 ] && echo "every model agrees with PyTorch"
exit $verdict
