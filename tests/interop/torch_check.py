#!/usr/bin/python3
"""Checks one training step of Forerun against PyTorch.

    torch_check.py [--heads N] [--smoothing E] [--all] step-K.safetensors...

Each file comes from `forerun train --dump-step K`. Loss and gradients are computed anew in double
precision by a network written from docs/models.md (networks.py); the update is repeated by
torch.optim from the state, gradient and settings in the file. Agreement means: loss within 1e-5
relative, each gradient within 1e-3 of its norm, each update within 1e-3 of its norm. Exit code 1
if a file disagrees, 2 if one cannot be read.

Relus and max pools that only rounding decides are decided as Forerun did (decisions.py says why);
the table counts them ("flips").

Runs with Debian's python3-torch (1.13) under /usr/bin/python3.
"""
import argparse
import json
import math
import struct
import sys

import torch
import torch.nn.functional as F

import networks
from decisions import Decisions, Recorder
from networks import NETWORKS, Batch

LOSS, GRADIENT, UPDATE = 1e-5, 1e-3, 1e-3
TYPES = {"F32": torch.float32, "I32": torch.int32}


def read_safetensors(path):
    """Tensors by name, and the metadata. 8 bytes of length, a JSON header, then the data."""
    with open(path, "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(size))
        data = bytearray(f.read())
    meta = header.pop("__metadata__", {})
    tensors = {}
    for name, t in header.items():
        begin, end = t["data_offsets"]
        count = math.prod(t["shape"])
        if end - begin != 4 * count or end > len(data):
            raise ValueError(f"{path}: {name} has {end - begin} bytes for {t['shape']}")
        values = torch.frombuffer(data, dtype=TYPES[t["dtype"]], count=count, offset=begin)
        tensors[name] = values.reshape(t["shape"]).clone()
    return tensors, meta


def group(tensors, prefix):
    return {k[len(prefix):]: v for k, v in tensors.items() if k.startswith(prefix)}


def forward(a, p, tensors, meta):
    """Mean loss over the counted targets, in the precision of the parameters p."""
    x, target, length = tensors["input"], tensors["target"].long(), tensors.get("length")
    x = x.long() if x.dtype == torch.int32 else x.to(next(iter(p.values())).dtype)
    n_micro = int(float(meta["micro"]))
    if len(x) % n_micro:
        raise ValueError(f"{len(x)} samples in {n_micro} micro-batches")
    loss, share = 0.0, len(x) // n_micro
    for first in range(0, len(x), share):  # batch normalisation sees a micro-batch at a time
        part = slice(first, first + share)
        batch = Batch(x[part], None if length is None else length[part].long(), a.heads)
        logits = NETWORKS[meta["model"]](p, batch)
        loss = loss + F.cross_entropy(logits.flatten(0, -2), target[part].flatten(), ignore_index=-1,
                                      reduction="sum", label_smoothing=a.smoothing)
    return loss / (target != -1).sum()


def forward_backward(a, tensors, meta):
    """Loss, gradients and flips in double."""
    params, ours = group(tensors, "param."), group(tensors, "grad.")
    networks.HOW = recorder = Recorder()
    with torch.no_grad():
        forward(a, params, tensors, meta)
    networks.HOW = decisions = Decisions(recorder.inputs)
    p = {k: v.double().requires_grad_() for k, v in params.items()}
    loss = forward(a, p, tensors, meta)

    def backward():
        return dict(zip(p, torch.autograd.grad(loss, p.values(), retain_graph=True)))

    return loss.item(), decisions.settle(ours, backward), decisions.n_flips


def repeat_update(tensors, meta):
    """Parameters after torch's own update with the dumped gradient, in float as Forerun does it."""
    real = {k: float(v) for k, v in meta.items() if k not in ("forerun", "model", "optimizer")}
    before, grads = group(tensors, "param."), group(tensors, "grad.")
    p = {k: v.clone().requires_grad_() for k, v in before.items()}
    for k, v in p.items():
        v.grad = grads[k].clone()
    if real["clip_norm"] > 0:
        torch.nn.utils.clip_grad_norm_(list(p.values()), real["clip_norm"])
    common = dict(lr=real["lr"], weight_decay=real["weight_decay"])
    if meta["optimizer"] == "sgd":
        opt = torch.optim.SGD(p.values(), momentum=real["momentum"], dampening=real["dampening"],
                              nesterov=bool(real["nesterov"]), **common)
    else:
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "nadam": torch.optim.NAdam}[meta["optimizer"]]
        opt = kind(p.values(), betas=(real["beta1"], real["beta2"]), eps=real["eps"], **common)
    load_state(opt, p, tensors, meta["optimizer"], int(real["step"]) - 1)
    opt.step()
    return {k: v.detach() for k, v in p.items()}


def load_state(opt, p, tensors, name, n_done):
    """State as it was before the update; none before the first."""
    if n_done == 0:
        return
    if name == "nadam":
        raise ValueError("nadam also has a running product of momenta: dump its first step")
    names = {"momentum": "momentum_buffer"} if name == "sgd" else {k: k for k in ("exp_avg", "exp_avg_sq")}
    for k, v in p.items():
        for ours, theirs in names.items():
            opt.state[v][theirs] = tensors[f"state.{ours}.{k}"].clone()
        if name != "sgd":
            opt.state[v]["step"] = torch.tensor(float(n_done))


def worst(errors):
    name = max(errors, key=errors.get)
    return errors[name], name


def part_of_norm(ours, truth, least):
    """Error as a part of the norm. Below `least` a norm is mere rounding and counts as that."""
    error, norm = (ours.double() - truth.double()).norm().item(), truth.double().norm().item()
    return math.inf if math.isnan(error) else error / max(norm, least, 1e-300)


def check(a, path):
    return judge(a, *read_safetensors(path))


def judge(a, tensors, meta):
    """One step, as a dump has it: before, gradient, after."""
    ours = group(tensors, "grad.")
    if set(ours) != set(group(tensors, "param.")):
        raise ValueError("parameters and gradients differ in name")
    loss, grads, n_flips = forward_backward(a, tensors, meta)
    total = math.sqrt(sum(g.norm().item() ** 2 for g in grads.values()))
    # A bias before batch normalisation has no effect: its gradient is zero but for rounding.
    grad_errors = {k: part_of_norm(ours[k], g, 1e-3 * total if g.norm() < 1e-9 * total else 0) for k, g in grads.items()}

    before, after = group(tensors, "param."), group(tensors, "param_after.")
    update_errors = {}
    for k, v in repeat_update(tensors, meta).items():
        start = before[k].double()
        update_errors[k] = part_of_norm(after[k].double() - start, v.double() - start, 1e-4 * start.norm().item())
    loss_error = abs(tensors["loss"].item() - loss) / abs(loss)
    grad_error, grad_name = worst(grad_errors)
    update_error, update_name = worst(update_errors)
    passed = loss_error <= LOSS and grad_error <= GRADIENT and update_error <= UPDATE
    count = sum(v.numel() for v in before.values())
    print(f"{meta['model']:12} {meta['optimizer']:6} {count / 1e6:8.3f} {loss:10.6f} {loss_error:9.1e} "
          f"{grad_error:9.1e} {update_error:9.1e} {n_flips:5}  {'ok' if passed else 'WRONG':5} {grad_name}, {update_name}")
    if a.all:
        for k in grads:
            print(f"    {k:44} gradient {grad_errors[k]:9.1e} of {grads[k].norm().item():9.2e}, "
                  f"update {update_errors[k]:9.1e}")
    return passed


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("files", nargs="+")
    p.add_argument("--heads", type=int, default=0, help="of gpt and transformer: a file does not tell")
    p.add_argument("--smoothing", type=float, default=0.0, help="label smoothing of the run")
    p.add_argument("--all", action="store_true", help="a line for each parameter")
    p.add_argument("--header", action="store_true", help="print the head of the table first")
    a = p.parse_args()
    torch.set_num_threads(2)
    if a.header:
        print(f"{'model':12} {'update':6} {'M params':>8} {'loss':>10} {'loss err':>9} {'grad err':>9} "
              f"{'upd. err':>9} {'flips':>5}  {'':5} worst gradient, worst update")
    try:
        results = [check(a, path) for path in a.files]
    except (OSError, KeyError, ValueError, RuntimeError, struct.error) as e:
        print(f"torch_check: {type(e).__name__}: {e}", file=sys.stderr)
        return 2
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
