#!/usr/bin/python3
"""Goes on from a checkpoint of Forerun in PyTorch.

    checkpoint_check.py [--heads N] CHECKPOINT-BEFORE CHECKPOINT-AFTER step-K.safetensors

The folders are two checkpoints, one update apart; the file is the mini-batch between them, as
`forerun train --dump-step K` leaves it. Weights and optimizer state are taken from the first folder,
PyTorch computes loss, gradient and update (torch_check.py), and the weights of the second folder
have to be what comes out. Of both folders the SHA-256 over all parameters is computed anew. Exit code
1 if something disagrees, 2 if something cannot be read.
"""
import argparse
import hashlib
import json
import struct
import sys

import torch

import torch_check
from torch_check import group, read_safetensors


def read_model(folder, names):
    """Parameters by name; their hash is that of state.json."""
    tensors, _ = read_safetensors(f"{folder}/model.safetensors")
    trained = [k for k in tensors if k in names]
    with open(f"{folder}/state.json", encoding="utf-8") as f:
        told = json.load(f)["weights_sha256"]
    digest = hashlib.sha256()
    for name in trained:
        digest.update(tensors[name].contiguous().numpy().astype("<f4").tobytes())
    if set(trained) != set(names) or digest.hexdigest() != told:
        raise ValueError(f"{folder}: the parameters are not those of its weights_sha256")
    return {k: tensors[k] for k in trained}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("before")
    p.add_argument("after")
    p.add_argument("dump")
    p.add_argument("--heads", type=int, default=0, help="of gpt and transformer: a file does not tell")
    a = p.parse_args()
    a.smoothing, a.all = 0.0, False
    torch.set_num_threads(2)
    try:
        tensors, meta = read_safetensors(a.dump)
        names = set(group(tensors, "param."))
        state, _ = read_safetensors(f"{a.before}/optimizer.safetensors")
        tensors = {k: v for k, v in tensors.items() if not k.startswith(("param", "state."))}
        tensors |= {f"param.{k}": v for k, v in read_model(a.before, names).items()}
        tensors |= {f"param_after.{k}": v for k, v in read_model(a.after, names).items()}
        tensors |= {f"state.{k}": v for k, v in state.items()}
        return 0 if torch_check.judge(a, tensors, meta) else 1
    except (OSError, KeyError, ValueError, RuntimeError, struct.error) as e:
        print(f"checkpoint_check: {type(e).__name__}: {e}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
