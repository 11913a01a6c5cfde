#!/usr/bin/python3
"""Pal's experiment: replicated pipelines against data parallelism alone, at scale.

    bench/pal.py [--build DIR] [--models gnmt,...] [--cluster FILE] [--devices N] [--data DIR]
                 [--epochs N] [--seeds N] [--batches 1,2,4,...] [--out DIR] [--json FILE]

Pal et al., Optimizing Multi-GPU Parallelization Strategies for Deep Learning Training (2019): more
devices with data parallelism alone need a larger global batch, and therefore more epochs. If each
worker is a pipeline of two devices, the batch is half as large. They report hybrid over the best
data parallelism: Inception-V3 26.5 %, GNMT 8 %, BigLSTM 22 %. Here epochs are MEASURED with small
networks of the same kind (forerun efficiency, in --out, which can be resumed). Step times are
SIMULATED for large ones on a cluster file, from a profile measured on this machine. The global
batch is counted in batches per device, which connects the two. Without --data the small networks
learn synthetic data.
"""
import argparse
import json
import os

import harness

CLUSTER = os.path.join(harness.HERE, "..", "examples", "clusters", "v100-8x8-ethernet.yaml")
WAYS = 2
BATCHES = "1,2,4,8,16,32,64"  # in batches of a device
ADAM = {"name": "adam", "lr": 0.001}
# large: the simulated model, its batch per device, and the samples of a profiled micro-batch.
# small: the trained model, its batch, its data (synthetic, or below --data), and the scaling of lr.
MODELS = {
    "inception3": {
        "published": 26.5,
        "large": {"name": "inception3", "image": 299, "classes": 1000},
        "batch": 32, "profiled": 2,
        "small": {"name": "inception3", "image": 32, "width_factor": 0.1, "dropout": 0},
        "small_batch": 16, "rule": "sqrt", "optimizer": {"name": "adam", "lr": 0.002},
        "sizes": {"channels": 3, "classes": 10}, "data": {"name": "cifar10", "path": "cifar-10",
                                                          "limit": 4096, "crop": 0}},
    "gnmt": {
        "published": 8,
        "large": {"name": "gnmt", "layers": 4, "width": 1024, "vocab": 32000, "context": 25},
        "batch": 64, "profiled": 8,
        "small": {"name": "gnmt", "layers": 2, "width": 48, "context": 14, "dropout": 0},
        "small_batch": 16, "rule": "sqrt", "optimizer": ADAM, "sizes": {"vocab": 60},
        "data": {"name": "multi30k", "path": "multi30k", "vocab": 1500}},
    "biglstm": {
        "published": 22,
        "large": {"name": "biglstm", "layers": 2, "width": 2048, "projection": 512, "vocab": 50000,
                  "context": 20},
        "batch": 64, "profiled": 8,
        "small": {"name": "biglstm", "layers": 2, "width": 96, "projection": 48, "context": 16,
                  "dropout": 0},
        "small_batch": 16, "rule": "sqrt", "optimizer": ADAM, "sizes": {"vocab": 60},
        "data": {"name": "text", "tokens": "words", "vocab": 2000,
                 "path": "wikitext-2-valid-test/valid.txt.gz",
                 "eval_path": "wikitext-2-valid-test/test.txt.gz"}},
}


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--build", default="build", help="folder with forerun")
    p.add_argument("--models", default=",".join(MODELS))
    p.add_argument("--cluster", default=CLUSTER)
    p.add_argument("--devices", type=int, default=64)
    p.add_argument("--data", metavar="DIR", help="real data for the small nets")
    p.add_argument("--epochs", type=int, default=2, help="that set the quality")
    p.add_argument("--seeds", type=int, default=3, help="trainings of each batch")
    p.add_argument("--batches", default=BATCHES, help="global ones, in batches of a device")
    p.add_argument("--out", default="runs/pal")
    p.add_argument("--json", metavar="FILE")
    a = p.parse_args()
    a.check = False
    a.models = a.models.split(",")
    a.batches = [int(n) for n in a.batches.split(",")]
    harness.check_names(p, a.models, MODELS)
    a.forerun = harness.find_program(a.build, "forerun")
    return a


def write(path, values):
    with open(path, "w") as f:
        json.dump(values, f)  # JSON is YAML
    return path


def step_times(a, m, folder):
    """CSV of seconds per update by number of devices, for data parallelism and with pipelines."""
    config = write(os.path.join(folder, "large.yaml"), {
        "model": m["large"], "data": {"name": "synthetic", "n": 4096, "n_eval": 0},
        "train": {"batch": m["batch"], "optimizer": m["optimizer"]}, "parallel": {"threads": 1}})
    profile, csv = os.path.join(folder, "profile.json"), os.path.join(folder, "times.csv")
    if not os.path.exists(profile):
        harness.run([a.forerun, "profile", config, "--batch", str(m["profiled"]), "--workers", "1",
                     "--out", profile])

    def simulate(method, stages, replicas, micro, devices):
        text, _ = harness.run(
            [a.forerun, "simulate", config, "--profile", profile,
             "--batches", "12", "--json"] + harness.sets(
                 {"parallel.method": method, "parallel.stages": stages,
                  "parallel.replicas": replicas, "train.batch": replicas * m["batch"],
                  "train.micro": replicas * micro, "parallel.devices": devices,
                  "parallel.cluster": os.path.abspath(a.cluster)}))
        return json.loads(text)["s_per_batch"]

    def hybrid_s(n):
        """The better of two placements: replicas of a stage adjacent, or stages of a pipeline
        adjacent."""
        n_pipelines = n // WAYS
        places = [list(range(n)),
                  [r * WAYS + s for s in range(WAYS) for r in range(n_pipelines)]]
        return min(simulate("1f1b", WAYS, n_pipelines, 4 * WAYS, p) for p in places)

    with open(csv, "w") as f:
        print("devices,dp_s,hybrid_s", file=f)
        n = 1
        while n <= a.devices:
            dp = simulate("dp" if n > 1 else "single", 1, n, 1, list(range(n)))
            hybrid = hybrid_s(n) if n % WAYS == 0 else ""
            print("%d,%s,%s" % (n, dp, hybrid), file=f)
            n *= 2
    return csv


def epochs_and_time(a, m, folder, csv):
    data = {"name": "synthetic", "n": 4096, "n_eval": 512}
    model = dict(m["small"], **m["sizes"])
    if a.data:
        data = dict(m["data"])
        model = m["small"]
        for key in ("path", "eval_path"):
            if key in data:
                data[key] = os.path.join(os.path.abspath(a.data), data[key])
    b = m["small_batch"]
    config = write(os.path.join(folder, "small.yaml"), {
        "model": model, "data": data,
        "train": {"batch": b, "epochs": a.epochs, "clip_norm": 1.0, "optimizer": m["optimizer"]},
        "parallel": {"threads": 1, "pin": False}})
    text, _ = harness.run(
        [a.forerun, "efficiency", config, "--batches", ",".join(str(b * n) for n in a.batches),
         "--seeds", str(a.seeds), "--scale-lr", m["rule"], "--max-epochs", str(8 * a.epochs),
         "--scaling", csv, "--pipeline", str(WAYS), "--out", os.path.join(folder, "epochs"),
         "--json"])
    return json.loads(text)


def best(rows, key):
    known = [r[key] for r in rows if r[key] is not None]
    return max(known) if known else float("nan")


def main():
    a = parse()
    results = {}
    for name in a.models:
        m, folder = MODELS[name], os.path.join(a.out, name)
        os.makedirs(folder, exist_ok=True)
        r = results[name] = epochs_and_time(a, m, folder, step_times(a, m, folder))
        r["gain"] = 100 * (best(r["time"], "hybrid_speedup") / best(r["time"], "dp_speedup") - 1)
        r["published"] = m["published"]
    print("epochs MEASURED on %s data, step times SIMULATED on %s" % (
        "real" if a.data else "made-up", os.path.basename(a.cluster)))
    counts = ", ".join(map(str, a.batches))
    print("\n| model | E_1 / E_N at N = %s | best dp | best hybrid | overtakes at | gain | paper |"
          % counts)
    print("|---|---|---|---|---|---|---|")
    for name, r in results.items():
        ratios = ", ".join("-" if b["ratio"] is None else "%.2f" % b["ratio"] for b in r["batches"])
        print("| %s | %s | %.1fx on %d | %.1fx on %d | %s | %+.1f %% | %+.1f %% |" % (
            name, ratios, best(r["time"], "dp_speedup"), r["dp_devices"],
            best(r["time"], "hybrid_speedup"), r["hybrid_devices"], r["crossover"] or "never",
            r["gain"], r["published"]))
    harness.finish(a, results, [])


if __name__ == "__main__":
    main()
