#!/usr/bin/python3
"""Forerun's training step beside PyTorch's, on this machine, in this run.

    bench/compare.py [--build DIR] [--python PYTHON] [--peer PROGRAM] [--models mlp,vgg16,gpt]
                     [--threads 1,2] [--rounds N] [--steps N] [--repeats N] [--json FILE] [--check]

The two take turns, so that a noisy neighbour meets both; each figure is the best of all rounds.
--python names the interpreter whose PyTorch is the peer: Debian's unless given, that of a virtual
environment for a newer one. Eager, torch.compile and images as NHWC are tried in the first round,
where the peer has them, and the best goes on. --peer names another program to compare with: it gets
--model, --threads, --steps, --repeats and those of --compile and --channels-last that its --help
has, and prints either JSON with samples_per_s or a line "samples/s NUMBER". --check: exit 1 if a
ratio is below its floor.
"""
import argparse
import json
import os
import sys

import harness
from harness import HERE

# Minimum ratio to PyTorch with 1 and 2 threads.
FLOORS = {"mlp": {1: 1.15, 2: 1.3}, "vgg16": {1: 1.1, 2: 1.1}, "gpt": {1: 1.15, 2: 1.2}}


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--build", default="build", help="folder with bench_step")
    harness.add_peer_options(p, "bench/torch_step.py")
    p.add_argument("--models", default="mlp,vgg16,gpt")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    a.models = a.models.split(",")
    a.threads = [int(n) for n in a.threads.split(",")]
    unknown = set(a.models) - set(FLOORS)
    if unknown:
        p.error("unknown model " + ", ".join(sorted(unknown)))
    return a


def measure(command, model, threads, a, way=(), run=harness.run):
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
    """PyTorch in one process; after the first round only with the best settings."""

    def __init__(self, a):
        self.a = a
        self.command = harness.command_of(a.peer or os.path.join(HERE, "torch_step.py"), a.python)
        self.known = harness.options_of(self.command)
        self.ways = {}

    def measure(self, model, threads):
        name = harness.peer_model(self.a.peer, model)
        ways = self.ways.get((model, threads)) or harness.step_ways(self.known, model)
        way, result = harness.best_way(
            ways, lambda way: measure(self.command, name, threads, self.a, way, harness.try_run))
        self.ways[model, threads] = [way]
        return result


def table(rows):
    print("%-6s %7s | %9s %9s %7s %6s | %9s %9s | %9s | %s" % (
        "model", "threads", "forerun/s", "peer/s", "ratio", "floor", "our MB", "peer MB",
        "planned %", "peer"))
    below = []
    for model, threads, ours, peer in rows:
        ratio = ours["samples_per_s"] / peer["samples_per_s"]
        floor = FLOORS[model].get(threads)
        planned = 100 * ours["predicted_bytes"]["total"] / ours["peak_bytes"]
        print("%-6s %7d | %9.1f %9.1f %6.2fx %6s | %9.0f %9.0f | %9.1f | %s" % (
            model, threads, ours["samples_per_s"], peer["samples_per_s"], ratio,
            "%.2fx" % floor if floor else "-", ours["peak_rss_bytes"] / 1e6,
            peer["peak_rss_bytes"] / 1e6, planned,
            " ".join(filter(None, (peer.get("about"), peer["way"])))))
        if floor and ratio < floor:
            below.append("%s at %d threads: %.2fx, floor %.2fx" % (model, threads, ratio, floor))
    print("best of all rounds; MB: peak resident memory; planned: forecast bytes / measured bytes")
    return below


def main():
    a = parse()
    step, peer = [harness.find_program(a.build, "bench_step")], Peer(a)
    runs = {(m, t): ([], []) for m in a.models for t in a.threads}
    for number in range(a.rounds):
        for (model, threads), (ours, peers) in runs.items():
            ours.append(measure(step, model, threads, a))
            peers.append(peer.measure(model, threads))
            print("round %d of %d: %s, %d threads: %.1f and %.1f samples/s" % (
                number + 1, a.rounds, model, threads, ours[-1]["samples_per_s"],
                peers[-1]["samples_per_s"]), file=sys.stderr)
    rows = [(m, t, best(ours), best(peers)) for (m, t), (ours, peers) in runs.items()]
    below = table(rows)
    if a.json:
        with open(a.json, "w") as f:
            json.dump([{"model": m, "threads": t, "forerun": o, "peer": p}
                       for m, t, o, p in rows], f, indent=1)
    if a.check and below:
        sys.exit("below the floor: " + "; ".join(below))


if __name__ == "__main__":
    main()
