#!/usr/bin/python3
"""What Forerun says before the first mini-batch against what it then does: time and memory.

    bench/predict.py [--build DIR] [--models mlp,vgg16,gpt] [--places here,4,8] [--rounds N]
                     [--json FILE] [--check]

here: two stages, or two replicas, on two cores of this machine. 4, 8: as many emulated devices, each of the speed of
one core here, on a switch whose ports carry 1 GB/s each way, 20 us away. A machine with neighbours
is not equally fast at all times: here stages are measured for as long as the run then takes, rounds
are many and short, each with all cases, and the error of a case is the mean over its rounds (of the
logarithms: as much too fast and too slow cancel out), told with its standard error. "schedule" is
the part of it that is not of the stages' times: the prediction made again by the times that they
took in the run. Before a run here there is a pause: the kernel of a virtual machine gives the memory
of the run before back to the host some 2 s after its end, and that would disturb the look. --check: exit 1 if a mini-batch takes more than 5 % more or less than predicted, or
a worker more than 3 % more or less memory.
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
LOOK_S = 4  # here: to measure the stages, and about as long to train
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
    """One run: predicted and measured seconds a mini-batch, the worst error of memory."""
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
    """Of a case over its rounds, and how far off that may be by chance (one standard error)."""
    logs = [math.log1p(e) for e in errors]
    spread = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0
    return math.expm1(statistics.mean(logs)), spread


def judge(case, rounds):
    """The mean over rounds, what is printed of it, and what is beyond the ceilings."""
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
    for _ in range(a.rounds):  # each case comes at several times of the day
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
