#!/usr/bin/python3
"""Data parallelism on two cores: Forerun's dp beside PyTorch's DistributedDataParallel over gloo.

    bench/dp.py [--build DIR] [--models mlp,vgg16,gpt] [--rounds N] [--steps N] [--repeats N]
                [--python PYTHON] [--peer PROGRAM] [--json FILE] [--check]

Two replicas of one thread, each on a core of its own: as processes (mpirun), and as threads of one
process. All take turns, round by round, so that a noisy neighbour meets everybody. A rate is that
of the fastest --steps mini-batches of --repeats, in the fastest round, for all. The first round
runs PyTorch pinned to cores and not, and goes on with what is faster. --check: exit 1 if two
processes are less than 1.2 times as fast as PyTorch.
"""
import argparse
import os

import harness
from pipeline import NETWORKS

PROCESSES, THREADS, DDP = "dp, 2 processes", "dp, 2 threads", "PyTorch DDP"
LEAST_RATIO = 1.2
WARMUP = 3


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--build", default="build", help="folder with forerun")
    p.add_argument("--models", default=",".join(NETWORKS))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=3, help="mini-batches that are timed as one")
    p.add_argument("--repeats", type=int, default=4)
    harness.add_peer_options(p, "bench/torch_ddp.py")
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    a.models = a.models.split(",")
    harness.check_names(p, a.models, NETWORKS)
    if min(a.rounds, a.steps, a.repeats) < 1:
        p.error("--rounds, --steps and --repeats must be at least 1")
    return a


def run_forerun(a, model, starter):
    net, n_steps = NETWORKS[model], WARMUP + a.repeats * a.steps
    with harness.Scratch() as scratch:
        config, out = os.path.join(scratch, "bench.yaml"), os.path.join(scratch, "run")
        harness.write_config(config, net, n_steps, {"method": "dp", "replicas": 2})
        harness.run(starter + [harness.find_program(a.build, "forerun"), "train", config, "--out",
                               out, "--quiet"])
        elapsed = harness.read_elapsed(out)[WARMUP - 1::a.steps]
    rates = [a.steps * net["batch"] / (y - x) for x, y in zip(elapsed, elapsed[1:])]
    return {"samples_per_s": max(rates)}


def mpirun():
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["mpirun", "-n", "2", "--map-by", "core", "--bind-to", "core"] + root


def run_ddp(a, model, pin):
    words = harness.ddp_command(a.peer, model, a.python) + [
        "--steps", str(a.steps), "--repeats", str(a.repeats), "--warmup", str(WARMUP)]
    text, _ = harness.run(words + (["--pin"] if pin else []), harness.peer_environment())
    return dict(harness.read_rate(text, words[1]), pin=pin)


def measure(a, model):
    """The fastest round of each entrant."""
    known = harness.options_of(harness.ddp_command(a.peer, model, a.python)[:2])
    pins = [False, True] if "--pin" in known else [False]
    field = {PROCESSES: [lambda: run_forerun(a, model, mpirun())],
             THREADS: [lambda: run_forerun(a, model, [])],
             DDP: [lambda pin=pin: run_ddp(a, model, pin) for pin in pins]}
    rounds = {name: [] for name in field}
    for number in range(a.rounds):
        for name, ways in field.items():
            tried = [way() for way in ways]
            best = max(range(len(ways)), key=lambda i: tried[i]["samples_per_s"])
            field[name] = [ways[best]]
            rounds[name].append(tried[best])
            harness.say("round %d of %d: %s %s: %.1f samples/s" % (
                number + 1, a.rounds, model, name, tried[best]["samples_per_s"]))
    return {name: dict(max(tries, key=lambda r: r["samples_per_s"]),
                       rounds=[r["samples_per_s"] for r in tries])
            for name, tries in rounds.items()}


def main():
    a = parse()
    results = {model: measure(a, model) for model in a.models}
    missed = []
    print("\n| samples/s | batch | %s | %s | %s | x PyTorch |" % (PROCESSES, THREADS, DDP))
    print("|---|---|---|---|---|---|")
    for model, r in results.items():
        rates = [r[name]["samples_per_s"] for name in (PROCESSES, THREADS, DDP)]
        ratio = [rate / rates[2] for rate in rates[:2]]
        print("| %s | %d | %.1f | %.1f | %.1f | %.2f, %.2f |" % (
            model, NETWORKS[model]["batch"], *rates, *ratio))
        if ratio[0] < LEAST_RATIO:
            missed.append("%s: %.2fx PyTorch, floor %.2fx" % (model, ratio[0], LEAST_RATIO))
    harness.finish(a, results, missed)


if __name__ == "__main__":
    main()
