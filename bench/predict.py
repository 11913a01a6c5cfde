#!/usr/bin/python3
"""Forecasts of Forerun before the first mini-batch against measurements: time and memory.

    bench/predict.py [--build DIR] [--models mlp,vgg16,gpt] [--places here,4,8] [--rounds N]
                     [--json FILE] [--check]

here: two stages, or two replicas, on two cores of this machine. 4, 8: this many emulated devices,
each as fast as one core here, on a switch with ports of 1 GB/s in each direction and 20 us latency.
The speed of a shared machine varies. So stages are measured for as long as the run takes, rounds
are many and short, each with all cases, and the error of a case is the mean over its rounds (of
logarithms: equal errors in both directions cancel), reported with its standard error. "schedule" is
the part of the error that the stage times do not explain: the forecast repeated with the stage
times of the run. A pause precedes each run here, because the kernel of a virtual machine returns
the memory of an earlier run to the host about 2 s after its end, which would disturb the
measurement. --check: exit 1 if the time of a mini-batch is more than 5 % off its forecast, or the
memory of a worker more than 3 %.
"""
import argparse
import json
import math
import os
import statistics
import time

import harness
from pipeline import NETWORKS

HERE = "here"
CLUSTER = """name: %d devices
device: {name: core, speed: 1}
topology: {bandwidth: 1 GB/s, latency: 20 us, devices: %d}
"""
MOST_TIME, MOST_MEMORY = 0.05, 0.03
PAUSE_S = 3
LOOK_S = 4  # here: time to measure the stages, and about the time to train
STEPS = {"mlp": 32, "vgg16": 10, "gpt": 8}  # here; on emulated devices, which take longer:
EMULATED_STEPS = {"mlp": 20, "vgg16": 12, "gpt": 10}


def layouts(place):
    """{name: (parallel, micro-batches)} of a place."""
    if place == HERE:
        return {"1f1b": ({"method": "1f1b", "stages": 2}, 4),
                "gpipe": ({"method": "gpipe", "stages": 2}, 4),
                "spectrain": ({"method": "spectrain", "stages": 2}, 1),
                "xpipe": ({"method": "xpipe", "stages": 2}, 2),
                "dp": ({"method": "dp", "replicas": 2}, 2)}
    n = int(place)
    return {"dp": ({"method": "dp", "replicas": n}, n),
            "1f1b": ({"method": "1f1b", "stages": n}, 8),
            "spectrain": ({"method": "spectrain", "stages": n}, 1),
            "hybrid": ({"method": "spectrain", "stages": n // 2, "replicas": 2}, 2)}


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--build", default="build", help="folder with forerun")
    p.add_argument("--models", default=",".join(NETWORKS))
    p.add_argument("--places", default="here,4,8")
    p.add_argument("--rounds", type=int, default=12)
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    a.models, a.places = a.models.split(","), a.places.split(",")
    harness.check_names(p, a.models, NETWORKS)
    harness.check_names(p, a.places, [HERE, "4", "8"])
    return a


def run(a, model, place, parallel, micro):
    """One run: forecast and measured seconds per mini-batch, largest error of memory."""
    forerun = harness.find_program(a.build, "forerun")
    with harness.Scratch() as scratch:
        config, out = os.path.join(scratch, "bench.yaml"), os.path.join(scratch, "run")
        if place != HERE:
            cluster = os.path.join(scratch, "cluster.yaml")
            with open(cluster, "w") as f:
                f.write(CLUSTER % (int(place), int(place)))
            parallel = dict(parallel, cluster=cluster)
        steps = (STEPS if place == HERE else EMULATED_STEPS)[model]
        harness.write_config(config, NETWORKS[model], steps, parallel, micro, True)
        look = harness.sets({"run.predict_s": LOOK_S}) if place == HERE else []
        if place == HERE:
            time.sleep(PAUSE_S)
        text, _ = harness.run([forerun, "train", config, "--out", out, "--quiet", "--json"] + look)
    s = json.loads(text)
    memory = max(abs(w["predicted_peak_bytes"] / w["peak_bytes"] - 1) for w in s["workers"])
    emulated = s.get("emulated", {})
    return {"predicted_s": s["predicted_s_per_batch"], "measured_s": s["measured_s_per_batch"],
            "error": s["prediction_error"], "schedule_error": s.get("schedule_error"),
            "memory_error": memory, "stolen": s["stolen"], "late": emulated.get("late"),
            "scale": emulated.get("scale")}


def mean_error(errors):
    """Mean error of a case over its rounds, and its standard error."""
    logs = [math.log1p(e) for e in errors]
    spread = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0
    return math.expm1(statistics.mean(logs)), spread


def judge(case, rounds):
    """The mean over rounds, its text, and the exceeded limits."""
    place, model, name = case
    r = {key: statistics.median(x[key] or 0 for x in rounds) for key in rounds[0]}
    r["error"], r["standard_error"] = mean_error([x["error"] for x in rounds])
    r["schedule_error"], _ = mean_error([x["schedule_error"] or 0 for x in rounds])
    beside = r["schedule_error"] if place == HERE else r["late"]
    chance = " +- %.1f" % (100 * r["standard_error"]) if len(rounds) > 1 else ""
    print("| %s | %s | %s | %.2f | %.2f | %+.1f%s %% | %+.1f %% | %.2f %% | %s |" % (
        place, model, name, 1e3 * r["predicted_s"], 1e3 * r["measured_s"], 100 * r["error"],
        chance, 100 * beside, 100 * r["memory_error"],
        " ".join("%+.0f" % (100 * x["error"]) for x in rounds)))
    missed = ["%s, %s, %s: %s %.1f %% off, ceiling %.0f %%" % (place, model, name, what,
                                                              100 * error, 100 * most)
              for what, error, most in (("time", abs(r["error"]), MOST_TIME),
                                        ("memory", r["memory_error"], MOST_MEMORY))
              if error > most]
    return dict(r, place=place, model=model, method=name, rounds=rounds), missed


def main():
    a = parse()
    cases = {(place, model, name): layout for place in a.places for model in a.models
             for name, layout in layouts(place).items()}
    rounds = {case: [] for case in cases}
    for _ in range(a.rounds):  # each case runs at several times
        for (place, model, name), (parallel, micro) in cases.items():
            rounds[place, model, name].append(run(a, model, place, parallel, micro))
    print("| place | model | method | predicted ms | measured ms | error | schedule; emulated: late |"
          " memory error | error of each round, % |")
    print("|---|---|---|---|---|---|---|---|---|")
    results, missed = [], []
    for case in cases:
        r, misses = judge(case, rounds[case])
        results.append(r)
        missed += misses
    harness.finish(a, results, missed)


if __name__ == "__main__":
    main()
