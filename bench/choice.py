#!/usr/bin/python3
"""Does `forerun plan` choose the fastest layout? Every method by hand, and the plan, on emulated
clusters.

    bench/choice.py [--build DIR] [--pairs mlp:slow4,...] [--steps N] [--json FILE] [--check]

For each pair of a model and a cluster the planner writes a plan; the plan and all methods that one
would try by hand train for some mini-batches on the emulated cluster, all by one profile. --check: exit 1 if something
by hand is more than 5 % faster than the plan.
"""
import argparse
import json
import os

import harness

LEAST = 0.95
MODELS = {
    "mlp": {"batch": 64, "model": {"name": "mlp", "inputs": 1024, "depth": 8, "width": 1024,
                                   "classes": 10}},
    "vgg16": {"batch": 32, "model": {"name": "vgg16", "image": 32, "channels": 3, "classes": 10}},
    "gpt": {"batch": 16, "model": {"name": "gpt", "layers": 6, "width": 192, "heads": 6,
                                   "context": 64, "vocab": 256}},
}
CLUSTERS = {
    "fast4": """name: four on a fast switch
device: {name: core, speed: 1}
topology: {bandwidth: 10 GB/s, latency: 10 us, devices: 4}
""",
    "slow4": """name: four on Ethernet
device: {name: core, speed: 1}
topology: {bandwidth: 1 Gbit/s, latency: 50 us, devices: 4}
""",
    "bus4": """name: four on one bus
device: {name: core, speed: 1}
topology: {bandwidth: 500 MB/s, latency: 20 us, shared: true, devices: 4}
""",
    "boxes8": """name: two boxes of four
device: {name: core, speed: 1}
topology:
  bandwidth: 1 Gbit/s
  latency: 50 us
  groups: [{count: 2, name: box, bandwidth: 5 GB/s, latency: 5 us, devices: 4}]
""",
}
PAIRS = ["mlp:slow4", "mlp:fast4", "vgg16:bus4", "vgg16:boxes8", "gpt:fast4", "gpt:slow4"]


def by_hand(n, batch):
    """{name: (parallel, micro)}: layouts that a user would try on n devices."""
    half = n // 2
    tried = {"dp": ({"method": "dp", "replicas": n}, n),
             "naive-mp": ({"method": "naive-mp", "stages": n}, 1)}
    for method in ("gpipe", "1f1b", "zb-h1"):
        tried[method] = ({"method": method, "stages": n}, min(8, batch))
    for method in ("pipedream", "spectrain", "vanilla-async"):
        tried[method] = ({"method": method, "stages": n}, 1)
    tried["xpipe"] = ({"method": "xpipe", "stages": n}, 2)
    tried["1f1b, 2 replicas"] = ({"method": "1f1b", "stages": half, "replicas": 2}, min(8, batch))
    tried["spectrain, 2 replicas"] = ({"method": "spectrain", "stages": half, "replicas": 2}, 2)
    return tried


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--build", default="build", help="folder with forerun")
    p.add_argument("--pairs", default=",".join(PAIRS))
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    a.pairs = [pair.split(":") for pair in a.pairs.split(",")]
    harness.check_names(p, [m for m, _ in a.pairs], MODELS)
    harness.check_names(p, [c for _, c in a.pairs], CLUSTERS)
    return a


def train(forerun, config, profile, out):
    text, _ = harness.run([forerun, "train", config, "--out", out, "--quiet", "--json"] +
                          harness.sets({"parallel.profile": profile}))
    s = json.loads(text)
    return {"samples_per_s": s["samples_per_s"], "late": s["emulated"]["late"],
            "prediction_error": s["prediction_error"], "method": s["method"],
            "stages": s["stages"], "replicas": s["replicas"], "micro": s["micro"]}


def measure(a, model, cluster, scratch):
    forerun, net = harness.find_program(a.build, "forerun"), MODELS[model]
    path = os.path.join(scratch, "cluster.yaml")
    with open(path, "w") as f:
        f.write(CLUSTERS[cluster])
    n = 8 if cluster.endswith("8") else 4
    results = {}
    base, plan = os.path.join(scratch, "base.yaml"), os.path.join(scratch, "plan.yaml")
    harness.write_config(base, net, a.steps, {"method": "single"}, 1, True)
    profile = harness.profile(forerun, base, os.path.join(scratch, "profile.json"))
    harness.run([forerun, "plan", base, "--cluster", path, "--profile", profile, "--async",
                 "--out", plan])
    results["plan"] = train(forerun, plan, profile, os.path.join(scratch, "plan"))
    for name, (parallel, micro) in by_hand(n, net["batch"]).items():
        config = os.path.join(scratch, "hand.yaml")
        harness.write_config(config, net, a.steps, dict(parallel, cluster=path), micro, True)
        results[name] = train(forerun, config, profile,
                              os.path.join(scratch, name.replace(" ", "-")))
        harness.say("%s on %s: %s %.1f samples/s" % (model, cluster, name,
                                                     results[name]["samples_per_s"]))
    return results


def main():
    a = parse()
    results, missed = {}, []
    print("EMULATED\n\n| model | cluster | plan | samples/s | best by hand | samples/s | plan / best |")
    print("|---|---|---|---|---|---|---|")
    for model, cluster in a.pairs:
        with harness.Scratch() as scratch:
            r = results[model + ":" + cluster] = measure(a, model, cluster, scratch)
        best = max((k for k in r if k != "plan"), key=lambda k: r[k]["samples_per_s"])
        ratio = r["plan"]["samples_per_s"] / r[best]["samples_per_s"]
        print("| %s | %s | %s, %s stages, replicas %s, micro %s | %.1f | %s | %.1f | %.3f |" % (
            model, cluster, r["plan"]["method"], r["plan"]["stages"], r["plan"]["replicas"],
            r["plan"]["micro"], r["plan"]["samples_per_s"], best, r[best]["samples_per_s"], ratio),
            flush=True)
        if ratio < LEAST:
            missed.append("%s on %s: the plan has %.3f of the speed of %s, floor %.2f" % (
                model, cluster, ratio, best, LEAST))
    harness.finish(a, results, missed)


if __name__ == "__main__":
    main()
