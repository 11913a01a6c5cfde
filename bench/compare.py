#!/usr/bin/python3
"""Forerun's training step beside PyTorch's, on this machine, in this run.

    bench/compare.py [--build DIR] [--python PYTHON] [--peer PROGRAM] [--models mlp,vgg16,gpt,gpt2]
                     [--threads 1,2] [--precisions fp32,bf16] [--optimizer sgd|adamw] [--rounds N]
                     [--steps N] [--repeats N] [--json FILE] [--check]

The two take turns, so that a noisy neighbour meets both; each figure is the best of all rounds.
--python names the interpreter whose PyTorch is the peer: Debian's unless given, that of a virtual
environment for a newer one. Eager and torch.compile, where the peer has it, have a column each, and
the ratio is that to the better one; images as NHWC are tried in the first round, and the best goes
on. bf16 is Forerun's train.precision, and torch.autocast. --peer names another program to compare
with: it gets --model, --threads, --steps, --repeats and those of --precision, --optimizer, --compile
and --channels-last that its --help has, and prints either JSON with samples_per_s or a line
"samples/s NUMBER". --check: exit 1 if a ratio is below its floor, which fp32 with sgd has.
"""
import argparse
import json
import os
import sys

import harness
from harness import HERE

# Minimum ratio to PyTorch with 1 and 2 threads.
FLOORS = {"mlp": {1: 1.15, 2: 1.3}, "vgg16": {1: 1.1, 2: 1.1}, "gpt": {1: 1.15, 2: 1.2}}
MODELS = tuple(FLOORS) + ("gpt2",)


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--build", default="build", help="folder with bench_step")
    harness.add_peer_options(p, "bench/torch_step.py")
    p.add_argument("--models", default="mlp,vgg16,gpt")
    p.add_argument("--threads", default="1,2")
    harness.add_numbers_options(p)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    a.models = a.models.split(",")
    a.threads = [int(n) for n in a.threads.split(",")]
    a.precisions = a.precisions.split(",")
    harness.check_names(p, a.models, MODELS)
    harness.check_names(p, a.precisions, harness.PRECISIONS)
    return a


def measure(command, model, threads, a, way, run=harness.run):
    options = ["--model", model, "--threads", str(threads), "--steps", str(a.steps),
               "--repeats", str(a.repeats)]
    text, rss = run(command + options + list(way))
    result = harness.read_rate(text, command[-1])
    result["peak_rss_bytes"] = rss
    result["way"] = " ".join(way)
    return result


def best(results):
    top = dict(max(results, key=lambda r: r["samples_per_s"]))
    top["peak_rss_bytes"] = max(r["peak_rss_bytes"] for r in results)
    top["rounds"] = [r["samples_per_s"] for r in results]
    return top


class Peer:
    """PyTorch in one process, eager or compiled; after the first round only with the best layout."""

    def __init__(self, a):
        self.a = a
        self.command = harness.command_of(a.peer or os.path.join(HERE, "torch_step.py"), a.python)
        self.known = harness.options_of(self.command)
        self.ways = {}

    def kinds(self):
        return ("eager", "compiled") if "--compile" in self.known else ("eager",)

    def measure(self, case, kind):
        """None if this PyTorch cannot run it so."""
        model, threads, precision = case
        name = harness.peer_model(self.a.peer, model)
        numbers = harness.numbers_options(self.known, precision, self.a.optimizer)
        ways = self.ways.get((case, kind))
        if ways is None:
            ways = [way for way in harness.step_ways(self.known, model)
                    if ("--compile" in way) == (kind == "compiled")]
        found = harness.best_way(ways, lambda way: measure(
            self.command, name, threads, self.a, numbers + way, harness.try_run), must=False)
        self.ways[case, kind] = [found[0]] if found else []
        return found[1] if found else None


def cell(result, form="%.1f"):
    return form % result["samples_per_s"] if result else "-"


def table(rows, a):
    print("%-6s %7s %9s | %9s %9s %10s %7s %6s | %9s %9s | %9s" % (
        "model", "threads", "precision", "forerun/s", "eager/s", "compiled/s", "ratio", "floor",
        "our MB", "peer MB", "planned %"))
    below = []
    for (model, threads, precision), ours, peers in rows:
        peer = max(peers.values(), key=lambda r: r["samples_per_s"])
        ratio = ours["samples_per_s"] / peer["samples_per_s"]
        has_floor = precision == "fp32" and a.optimizer == "sgd"
        floor = FLOORS.get(model, {}).get(threads) if has_floor else None
        planned = 100 * ours["predicted_bytes"]["total"] / ours["peak_bytes"]
        print("%-6s %7d %9s | %9.1f %9s %10s %6.2fx %6s | %9.0f %9.0f | %9.1f" % (
            model, threads, precision, ours["samples_per_s"], cell(peers.get("eager")),
            cell(peers.get("compiled")), ratio, "%.2fx" % floor if floor else "-",
            ours["peak_rss_bytes"] / 1e6, peer["peak_rss_bytes"] / 1e6, planned))
        if floor and ratio < floor:
            below.append("%s at %d threads: %.2fx, floor %.2fx" % (model, threads, ratio, floor))
    print("%s, %s; best of all rounds; MB: peak resident memory; planned: forecast bytes / measured "
          "bytes" % (a.optimizer, peer.get("about", "peer")))
    return below


def main():
    a = parse()
    command = [harness.find_program(a.build, "bench_step")]
    peer = Peer(a)
    runs = {(m, t, p): {} for m in a.models for t in a.threads for p in a.precisions}
    for number in range(a.rounds):
        for case, found in runs.items():
            model, threads, precision = case
            results = {"forerun": measure(command, model, threads, a,
                                          ["--precision", precision, "--optimizer", a.optimizer])}
            results.update((kind, peer.measure(case, kind)) for kind in peer.kinds())
            for name, result in results.items():
                if result:
                    found.setdefault(name, []).append(result)
            print("round %d of %d: %s, %d threads, %s: %s samples/s" % (
                number + 1, a.rounds, model, threads, precision,
                ", ".join(name + " " + cell(r) for name, r in results.items())), file=sys.stderr)
    rows = []
    for case, found in runs.items():
        top = {name: best(results) for name, results in found.items()}
        rows.append((case, top.pop("forerun"), top))
        if not top:
            harness.fail("no way to run the peer succeeded")
    below = table(rows, a)
    if a.json:
        with open(a.json, "w") as f:
            json.dump([{"model": m, "threads": t, "precision": p, "optimizer": a.optimizer,
                        "forerun": ours, "peers": peers}
                       for (m, t, p), ours, peers in rows], f, indent=1)
    if a.check and below:
        sys.exit("below the floor: " + "; ".join(below))


if __name__ == "__main__":
    main()
