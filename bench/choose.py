#!/usr/bin/python3
"""Which method? Samples per second and memory of each, on two real workers and on clusters.

    bench/choose.py real     [--build DIR] [--models A,B] [--micros 4,8] [--rounds N] [--json FILE]
                             [--check]
    bench/choose.py clusters [--build DIR] [--models A,B] [--micros 4,8] [--json FILE]
    bench/choose.py norm     [--build DIR] [--models A,B] [--rounds N] [--json FILE]

real: trains with two workers of one thread, each on its own core. Entrants take turns, round by
round; figures are those of the fastest round. --check: exit 1 if zb-h2 or zbv is more than 3 %
slower than spectrain with the same number of micro-batches.
clusters: `forerun simulate` with one profile of this machine per model, on 4 and 8 devices, with
links of 16 GB/s and 1 Gbit/s.
norm: forerun beside pipeoptim, and the cost of train.clip_norm, with sgd and with adamw, two workers.

Memory is that of the worker with most of it. dp has as many replicas as there are workers; its
micro-batches are raised to one per replica.
"""
import argparse
import json
import os

import harness
import pipeline

METHODS = ("dp", "1f1b", "zb-h2", "zbv", "spectrain", "xpipe", "forerun")
STEPS = {"mlp": 16, "vgg16": 10, "gpt": 8}
NO_BUBBLE, LEAST_NO_BUBBLE = ("zb-h2", "zbv"), 0.97
LINKS = {"fast": ("16 GB/s", "10 us"), "slow": ("1 Gbit/s", "50 us")}
DEVICES = (4, 8)
OPTIMIZERS = {"sgd": {"name": "sgd", "lr": 0.001, "momentum": 0.9},
              "adamw": {"name": "adamw", "lr": 0.0001}}


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("what", choices=("real", "clusters", "norm"))
    p.add_argument("--build", default="build", help="folder with forerun")
    p.add_argument("--models", default=",".join(STEPS))
    p.add_argument("--methods", default=",".join(METHODS))
    p.add_argument("--micros", default="4,8")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    a.models, a.methods = a.models.split(","), a.methods.split(",")
    a.micros = [int(m) for m in a.micros.split(",")]
    harness.check_names(p, a.models, STEPS)
    harness.check_names(p, a.methods, METHODS)
    return a


def layout(method, n, micro):
    """`parallel` of a method on n workers, and its micro-batches."""
    if method == "dp":
        return {"method": "dp", "replicas": n}, max(n, micro)
    return {"method": method, "stages": 2 * n if method == "zbv" else n}, micro


def write(path, model, parallel, micro, optimizer="sgd", clip_norm=0):
    net = pipeline.NETWORKS[model]
    train = {"batch": net["batch"], "micro": micro, "steps": STEPS[model],
             "optimizer": OPTIMIZERS[optimizer]}
    if clip_norm:
        train["clip_norm"] = clip_norm
    with open(path, "w") as f:
        json.dump({"model": net["model"], "data": {"name": "synthetic", "n": 8 * net["batch"]},
                   "train": train, "parallel": dict(parallel, threads=1),
                   "run": {"eval_every": -1, "trace": 1 << 20, "prediction_samples": 0}}, f)  # JSON is YAML


def train(a, model, *settings):
    """One run: samples/s without its start and end, megabytes of the largest worker."""
    with harness.Scratch() as scratch:
        config, out = os.path.join(scratch, "bench.yaml"), os.path.join(scratch, "run")
        write(config, model, *settings)
        text, _ = harness.run([harness.find_program(a.build, "forerun"), "train", config, "--out",
                               out, "--quiet", "--json"])
        trace = pipeline.read_trace(os.path.join(out, "trace.json"),
                                    pipeline.NETWORKS[model]["batch"], 2)
    return {"samples_per_s": trace["samples_per_s"], "busy_s": trace["busy_s"],
            "memory_mb": max(w["peak_bytes"] for w in json.loads(text)["workers"]) / 1e6}


def in_turns(a, model, entrants):
    """{name: the fastest round}; entrants: {name: settings}."""
    rounds = {name: [] for name in entrants}
    for number in range(a.rounds):
        for name, settings in entrants.items():
            rounds[name].append(train(a, model, *settings))
            harness.say("round %d of %d: %s %s: %.1f samples/s" % (
                number + 1, a.rounds, model, name, rounds[name][-1]["samples_per_s"]))
    return {name: dict(max(all_of_it, key=lambda r: r["samples_per_s"]),
                       rounds=[r["samples_per_s"] for r in all_of_it])
            for name, all_of_it in rounds.items()}


def real(a):
    results, missed = {}, []
    for model in a.models:
        for micro in a.micros:
            r = results["%s, micro %d" % (model, micro)] = in_turns(
                a, model, {m: layout(m, 2, micro) for m in a.methods})
            speed = {m: r[m]["samples_per_s"] for m in r}
            for m in NO_BUBBLE:
                if m in speed and "spectrain" in speed and (
                        speed[m] < LEAST_NO_BUBBLE * speed["spectrain"]):
                    missed.append("%s, micro %d: %s has %.3f of the speed of spectrain" % (
                        model, micro, m, speed[m] / speed["spectrain"]))
    show(results, "samples/s (MB of the largest worker), two workers")
    return results, missed


def clusters(a):
    results = {}
    forerun = harness.find_program(a.build, "forerun")
    for model in a.models:
        with harness.Scratch() as scratch:
            config, cluster = (os.path.join(scratch, x) for x in ("c.yaml", "cluster.yaml"))
            write(config, model, {"method": "single"}, 1)
            profile = harness.profile(forerun, config, os.path.join(scratch, "profile"))
            for n in DEVICES:
                for link, (bandwidth, latency) in LINKS.items():
                    with open(cluster, "w") as f:
                        json.dump({"name": link, "device": {"name": "core", "speed": 1},
                                   "topology": {"bandwidth": bandwidth, "latency": latency,
                                                "devices": n}}, f)
                    for micro in a.micros:
                        row = results.setdefault("%s, %d devices, %s, micro %d" % (
                            model, n, link, micro), {})
                        for method in a.methods:
                            row[method] = simulate(forerun, config, cluster, profile, model,
                                                   layout(method, n, micro))
    show(results, "simulated samples/s (MB of the largest worker)")
    return results, []


def simulate(forerun, config, cluster, profile, model, settings):
    """None: the method refuses this many stages."""
    write(config, model, *settings)
    try:
        text, _ = harness.try_run([forerun, "simulate", config, "--cluster", cluster, "--profile",
                                   profile, "--batches", "50", "--quiet", "--json"])
    except harness.ProgramFailed:
        return None
    s = json.loads(text)
    return {"samples_per_s": s["samples_per_s"],
            "memory_mb": max(w["memory_bytes"] for w in s["workers"]) / 1e6}


def norm(a):
    results = {}
    for model in a.models:
        for optimizer in OPTIMIZERS:
            results["%s, %s" % (model, optimizer)] = in_turns(a, model, {
                method + clipped: ({"method": method, "stages": 2}, 1, optimizer, clip)
                for method in ("pipeoptim", "forerun")
                for clipped, clip in (("", 0), (", clip_norm", 1))})
    show(results, "samples/s (MB of the largest worker), two stages, one micro-batch")
    return results, []


def show(results, title):
    """A table of the docs: a row per case, a column per entrant."""
    names = list(next(iter(results.values())))
    print("%s\n\n| | %s |\n|---|%s" % (title, " | ".join(names), "---|" * len(names)))
    for case, r in results.items():
        print("| %s | %s |" % (case, " | ".join(
            "%.*f (%.0f)" % (0 if r[n]["samples_per_s"] >= 100 else 1, r[n]["samples_per_s"],
                             r[n]["memory_mb"]) if r[n] else "refused" for n in names)))


def main():
    a = parse()
    results, missed = {"real": real, "clusters": clusters, "norm": norm}[a.what](a)
    harness.finish(a, results, missed)


if __name__ == "__main__":
    main()
