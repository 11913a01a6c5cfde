#!/bin/sh
# weights.sh -- weights of Hugging Face and torchvision in Forerun and back.
#
#   PYTHON=INTERPRETER tests/interop/weights.sh BUILD_DIR [NETWORK...]
#
# Needs torch, transformers, torchvision and safetensors (exit code 77, skipped, without them), and 2
# GB of memory and of disk for vgg16. Networks: gpt2, resnet50, alexnet, vgg16.
set -eu
build=${1:?usage: weights.sh BUILD_DIR [NETWORK...]}
shift
here=$(dirname "$0")
python=${PYTHON:-/usr/bin/python3}
if ! "$python" -c 'import torch, transformers, torchvision, safetensors' 2>/dev/null; then
    echo "weights.sh: skipped: $python lacks torch, transformers, torchvision or safetensors" >&2
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
"$python" "$here/weights_check.py" "$build/forerun" "$work" "$@"
