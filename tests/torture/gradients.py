#!/usr/bin/env python3
"""Largest difference between the gradients of two dumps (forerun train --dump-step K), relative to
their norm, parameter by parameter:

    gradients.py GOT.safetensors WANT.safetensors

Parameters whose gradient is zero but for rounding (below 1e-4 of the norm of all, as that of a bias
in front of a batch norm) are taken relative to that bound."""
import array
import json
import math
import struct
import sys


def read(path):
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(size))
        body = f.read()
    tensors = {}
    for name, entry in header.items():
        if name.startswith("grad."):
            begin, end = entry["data_offsets"]
            tensors[name] = array.array("f", body[begin:end])
    return tensors


def norm(values):
    return math.sqrt(math.fsum(v * v for v in values))


def main():
    got, want = read(sys.argv[1]), read(sys.argv[2])
    if not want or got.keys() != want.keys():
        sys.exit("gradients.py: the dumps have other gradients, or none")
    norms = {name: norm(values) for name, values in want.items()}
    least = 1e-4 * norm(norms.values())
    worst = max(norm(g - w for g, w in zip(got[name], want[name])) / max(norms[name], least)
                for name in want)
    print(f"{worst:.1e}" if math.isfinite(worst) else "inf")


main()
