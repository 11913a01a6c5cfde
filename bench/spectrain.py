#!/usr/bin/python3
"""SpecTrain's experiment on an emulated cluster: four P40 on one PCIe host, speed-ups over dp.

    bench/spectrain.py [--build DIR] [--models snn,vgg16,...] [--cluster FILE] [--steps N]
                       [--json FILE] [--check]

Chen, Yang, Cheng: Efficient and Robust Parallel DNN Training through Model Parallelism on Multi-GPU
Platform (2018) train on four GPUs with data parallelism, and with pipelines whose weights are
predicted, and report up to 8.91 times the speed of data parallelism. Here computation is real and
stretched to its time on these GPUs, and messages and reductions take the time of the shared PCIe
bus: times are EMULATED. --check: exit 1 if the best speed-up of spectrain is below the published
one.
"""
import argparse
import json
import os

import harness

PUBLISHED = 8.91  # best of all models
CLUSTER = os.path.join(harness.HERE, "..", "examples", "clusters", "p40x4-pcie.yaml")
MODELS = {
    "snn": {"batch": 128, "model": {"name": "snn", "inputs": 3072, "depth": 8, "width": 2048,
                                    "classes": 10, "dropout": 0}},
    "vgg16": {"batch": 128, "model": {"name": "vgg16", "image": 32, "channels": 3, "classes": 10}},
    "reslstm": {"batch": 128, "model": {"name": "reslstm", "layers": 8, "width": 256, "vocab": 2000,
                                        "context": 40, "classes": 2}},
    "transformer": {"batch": 128, "model": {"name": "transformer", "layers": 6, "width": 256,
                                            "heads": 4, "vocab": 2000, "context": 64,
                                            "classes": 2}},
}
METHODS = {
    "dp": ({"method": "dp", "replicas": 4}, 4),
    "naive-mp": ({"method": "naive-mp", "stages": 4}, 1),
    "pipedream": ({"method": "pipedream", "stages": 4}, 1),
    "spectrain": ({"method": "spectrain", "stages": 4}, 1),
}


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--build", default="build", help="folder with forerun")
    p.add_argument("--models", default=",".join(MODELS))
    p.add_argument("--cluster", default=CLUSTER)
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    a.models = a.models.split(",")
    harness.check_names(p, a.models, MODELS)
    return a


def run(a, scratch, model, name, profile):
    forerun = harness.find_program(a.build, "forerun")
    config, out = os.path.join(scratch, "bench.yaml"), os.path.join(scratch, name)
    parallel, micro = METHODS[name]
    parallel = dict(parallel, cluster=os.path.abspath(a.cluster), profile=profile)
    harness.write_config(config, MODELS[model], a.steps, parallel, micro, True)
    text, _ = harness.run([forerun, "train", config, "--out", out, "--quiet", "--json"])
    s = json.loads(text)
    traffic = sum(s["traffic"].values())
    return {"samples_per_s": s["samples_per_s"], "bytes_per_sample": traffic,
            "bubble": s["bubble"]["share"], "prediction_error": s["prediction_error"],
            "late": s["emulated"]["late"], "scale": s["emulated"]["scale"],
            "peak_bytes": max(w["peak_bytes"] for w in s["workers"])}


def main():
    a = parse()
    results = {}
    print("EMULATED on %s; x dp of the paper: up to %.2f" % (os.path.basename(a.cluster), PUBLISHED))
    print("\n| model | method | samples/s | x dp | kB/sample | idle | MB per worker | predicted | late |")
    print("|---|---|---|---|---|---|---|---|---|")
    for model in a.models:
        results[model] = compare(a, model)
    best = max(row["spectrain"]["x_dp"] for row in results.values())
    missed = [] if best >= PUBLISHED else ["spectrain is at best %.2fx dp, published %.2fx" % (
        best, PUBLISHED)]
    harness.finish(a, results, missed)


def compare(a, model):
    """All methods use one profile."""
    row = {}
    with harness.Scratch() as scratch:
        base = os.path.join(scratch, "base.yaml")
        harness.write_config(base, MODELS[model], a.steps, {"method": "single"}, 4)
        profile = harness.profile(harness.find_program(a.build, "forerun"), base,
                                  os.path.join(scratch, "profile.json"))
        for name in METHODS:
            r = row[name] = run(a, scratch, model, name, profile)
            r["x_dp"] = r["samples_per_s"] / row["dp"]["samples_per_s"]
            print("| %s | %s | %.0f | %.2f | %.1f | %.0f %% | %.0f | %+.1f %% | %.2f %% |" % (
                model, name, r["samples_per_s"], r["x_dp"], r["bytes_per_sample"] / 1e3,
                100 * r["bubble"], r["peak_bytes"] / 1e6, 100 * r["prediction_error"],
                100 * r["late"]), flush=True)
    return row


if __name__ == "__main__":
    main()
