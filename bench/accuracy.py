#!/usr/bin/python3
"""What asynchronous pipelines lose against one worker, and what prediction recovers.

    bench/accuracy.py [--task conv|plain|residual|vgg|gpt|text|lstm] [--build DIR] [--out DIR]
                      [--data PATH] [--stages 4,8] [--seeds 1,2,3] [--methods A,B,...]
                      [--micro 1,4] [--rates A,B,...] [--same-time CLUSTER] [--set KEY=VALUE]...
                      [--jobs N] [--quick] [--json FILE] [--check]

Trains a network with every method, number of stages and seed, then prints test results (mean over
seeds, and the range) and how well weights were predicted. Tasks:

    conv   eight convolutions with batch norm on Fashion-MNIST (bench/accuracy.yaml): accuracy
    plain  the same without batch norm, momentum 0.9: accuracy
    residual  two residual blocks with batch norm (bench/accuracy-residual.yaml): accuracy
    vgg    VGG-16 with batch norm on CIFAR-10, --data FOLDER (bench/accuracy-vgg.yaml): accuracy
    gpt    a transformer that learns a text, --data FILE (bench/accuracy-gpt.yaml): loss
    text   a transformer that classifies texts, --data FOLDER (bench/accuracy-text.yaml): accuracy
    lstm   residual LSTM layers, the same data (bench/accuracy-lstm.yaml): accuracy

A method is compared with `single`: of the same number of micro-batches where there is batch
normalisation, which sees one micro-batch at a time. --micro: every method with these numbers of
micro-batches, instead of its own. Which weights a pass sees depends on the schedule and never on
timing, so runs may share the machine.

--rates: every method with each of these learning rates. A second table then has each method at its
own best rate and at the best rate of `single`. --same-time: in place of equal numbers of updates,
as many as a method makes in the time that 1f1b takes for the updates of the config, as `forerun
simulate` forecasts it on that cluster. The flush methods among --methods learn as one worker.

Every run keeps its folder below --out; one that is there and was made with the same settings is not
repeated, so an interrupted sweep goes on where it was. --quick: one seed, few methods, short runs.
--check: exit 1 unless single is above 88 %, vanilla-async is worse than single at the most stages,
spectrain and xpipe are within half a point of it, and predicted weights were nearer than stale ones
on every stage that predicts.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys

import harness
from harness import HERE

TASKS = {"conv": "accuracy.yaml", "plain": "accuracy.yaml",
         "residual": "accuracy-residual.yaml", "vgg": "accuracy-vgg.yaml",
         "gpt": "accuracy-gpt.yaml", "text": "accuracy-text.yaml", "lstm": "accuracy-lstm.yaml"}
NEEDS_DATA = {"vgg": "a folder of CIFAR-10", "gpt": "a text of a megabyte or so",
              "text": "a folder with train.tsv and test.tsv", "lstm": "the same as text"}
HAS_BATCH_NORM = ("conv", "residual", "vgg")
# Micro-batches per mini-batch, with the same samples per update for all; None: one per stage.
MICRO = {"vanilla-async": 1, "pipedream": 1, "pipedream-2bw": None, "spectrain": 1, "xpipe": 2,
         "pipeoptim": 1, "paci": 2, "forerun": 1}
FLUSH = {"1f1b": None, "zb-h1": None}  # not by default: they learn as one worker
PREDICTING = ("spectrain", "xpipe", "pipeoptim", "forerun")
HELD = ("spectrain", "xpipe")  # --check: within half a point of single
# Cuts before these nodes: half a convolution per stage, one, two, four. Other tasks are balanced.
CUTS = {16: ["relu1"] + ["%s%d" % (op, i) for i in range(2, 9) for op in ("conv", "relu")],
        8: ["conv2", "conv3", "conv4", "conv5", "conv6", "conv7", "conv8"],
        4: ["conv3", "conv5", "conv7"], 2: ["conv5"]}
ADAM = {"train.optimizer": {"name": "adam", "lr": 0.002}, "train.steps": 600}
QUICK = {"train.steps": 600}


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--task", default="conv", choices=TASKS)
    p.add_argument("--build", default="build", help="folder with forerun")
    p.add_argument("--out", help="folder of the runs (runs/accuracy-TASK)")
    p.add_argument("--data", help="folder of Fashion-MNIST, if Debian's package is not installed; "
                                  "other tasks: the file or folder above")
    p.add_argument("--stages", default="4,8")
    p.add_argument("--seeds", default="1,2,3")
    p.add_argument("--methods", default=",".join(MICRO))
    p.add_argument("--micro", type=lambda s: [int(n) for n in s.split(",")])
    p.add_argument("--rates", type=lambda s: [float(n) for n in s.split(",")], default=[None])
    p.add_argument("--same-time", metavar="CLUSTER")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="sets")
    p.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    p.add_argument("--quick", action="store_true")
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    if a.quick:
        a.stages, a.seeds, a.methods = "8", "1", "vanilla-async,spectrain"
    a.stages = [int(n) for n in a.stages.split(",")]
    a.seeds = [int(n) for n in a.seeds.split(",")]
    a.methods = [m for m in a.methods.split(",") if m != "single"]
    harness.check_names(p, a.methods, list(MICRO) + list(FLUSH))
    a.has_cuts = a.task in ("conv", "plain")
    unknown = [str(n) for n in a.stages if n not in CUTS and a.has_cuts]
    a.is_loss = a.task == "gpt"
    a.out = a.out or "runs/accuracy-" + a.task
    if a.check and a.task != "conv":
        p.error("--check is for the task conv")
    if a.task in NEEDS_DATA and not a.data:
        p.error("--task %s needs --data PATH, %s" % (a.task, NEEDS_DATA[a.task]))
    if unknown:
        p.error("%s stages: there are cuts for %s" % (", ".join(unknown), sorted(CUTS)))
    if a.jobs < 1:
        p.error("--jobs must be at least 1")
    return a


# --- runs ------------------------------------------------------------------------------------------

def config(a):
    """The lines of the task's config."""
    with open(os.path.join(HERE, TASKS[a.task])) as f:
        lines = [line for line in f if not line.startswith("#")]
    if a.task == "plain":
        lines = [line.replace("bias: false, ", "").replace("momentum: 0.95", "momentum: 0.9")
                 for line in lines if "batch_norm" not in line]
    return "".join(lines)


def micros_of(a, method, stages):
    if not a.micro:
        return [{**MICRO, **FLUSH}[method] or stages]
    return [t for t in a.micro if method != "pipedream-2bw" or t >= stages]


def layouts(a):
    return [(m, s, t) for s in a.stages for m in a.methods for t in micros_of(a, m, s)]


def micro_counts(a):
    """Of single: without batch normalisation they make no difference."""
    return sorted({1} | ({t for _, _, t in layouts(a)} if a.task in HAS_BATCH_NORM else set()))


def run_key(method, stages, micro, seed, rate=None, optimizer="sgd"):
    return "%s-%dx%d-%s%s-seed%d" % (method, stages, micro, optimizer,
                                     "" if rate is None else "-%g" % rate, seed)


def settings(a, method, stages, micro):
    """Of a layout, with any seed."""
    values = {"parallel.method": method, "train.micro": micro}
    if stages > 1:
        values["parallel.stages"] = stages
    if stages > 1 and a.has_cuts:
        values["parallel.cuts"] = CUTS[stages]
    if a.data:
        values["data.path"] = os.path.abspath(a.data)
    values.update(QUICK if a.quick else {})
    return values


def plan(a):
    """{key: settings} of every run, long ones first, so that no core is idle at the end."""
    runs = {}

    def add(method, stages, micro, seed, rate=None, optimizer="sgd", extra=None):
        values = settings(a, method, stages, micro)
        values["train.seed"] = seed
        if rate is not None:
            values["train.optimizer.lr"] = rate
        if a.same_time and stages > 1:
            values["train.steps"] = updates_in_time(a, method, stages, micro)
        values.update(extra or {})
        runs[run_key(method, stages, micro, seed, rate, optimizer)] = values

    for method, stages, micro in sorted(layouts(a), key=lambda x: -x[1]):
        for seed in a.seeds:
            for rate in a.rates:
                add(method, stages, micro, seed, rate)
    for micro in micro_counts(a):
        for seed in a.seeds:
            for rate in a.rates:
                add("single", 1, micro, seed, rate)
    for method, stages, micro in layouts(a):
        if method in PREDICTING and a.task == "conv":
            add(method, stages, micro, a.seeds[0], optimizer="adam", extra=ADAM)
    return runs


# --- equal time ------------------------------------------------------------------------------------

def profile_of(a):
    """One profile for all forecasts, so that they differ by the methods alone."""
    path = os.path.join(a.out, "profile.json")
    if not os.path.exists(path):
        forerun(a, "profile", settings(a, "single", 1, 1), ["--sizes", "all", "--out", path])
    return path


def seconds_of(a, method, stages, micro, known={}):
    """Of an update on the cluster."""
    key = (method, stages, micro)
    if key not in known:
        told = forerun(a, "simulate", settings(a, *key),
                       ["--cluster", a.same_time, "--profile", profile_of(a), "--quiet", "--json"])
        known[key] = json.loads(told)["s_per_batch"]
    return known[key]


def updates_in_time(a, method, stages, micro):
    """As many as take as long as those of the config with 1f1b."""
    steps = re.findall(r"(?:^  |^train\.)steps[:=] ?(\d+)", "\n".join([config(a)] + a.sets), re.M)
    base = seconds_of(a, "1f1b", stages, stages)
    return max(1, round(int(steps[-1]) * base / seconds_of(a, method, stages, micro)))


def fingerprint(a, values):
    """Hash of everything that a run depends on, except the program and comments."""
    what = config(a) + json.dumps([values, a.sets], sort_keys=True)
    return hashlib.sha256(what.encode()).hexdigest()


def read_summary(folder, mark):
    """The summary of a finished run with these settings, or None."""
    try:
        with open(os.path.join(folder, "settings.sha256")) as f:
            if f.read().strip() != mark:
                return None
        with open(os.path.join(folder, "summary.json")) as f:
            summary = json.load(f)
    except (OSError, ValueError):
        return None
    return summary if summary["status"] in ("done", "diverged") else None


def forerun(a, verb, values, options):
    """The output of a command on the config; exit code 4, diverged, is a valid result."""
    command = [harness.find_program(a.build, "forerun"), verb, os.path.join(a.out, "config.yaml")]
    command += options
    for text in a.sets:
        command += ["--set", text]
    command += harness.sets(values)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode not in (0, 4):
        raise RuntimeError("%s ended with %d\n%s" % (" ".join(command), done.returncode,
                                                     done.stderr.strip()))
    return done.stdout


def execute(a, key, values):
    """(summary, did it exist already)."""
    folder, mark = os.path.join(a.out, key), fingerprint(a, values)
    summary = read_summary(folder, mark)
    if summary:
        return summary, True
    shutil.rmtree(folder, ignore_errors=True)
    forerun(a, "train", values, ["--out", folder, "--quiet"])
    shutil.rmtree(os.path.join(folder, "checkpoint"), ignore_errors=True)
    with open(os.path.join(folder, "settings.sha256"), "w") as f:
        f.write(mark + "\n")
    summary = read_summary(folder, mark)
    if not summary:
        raise RuntimeError("%s left no summary in %s" % (" ".join(command), folder))
    return summary, False


def sweep(a):
    os.makedirs(a.out, exist_ok=True)
    with open(os.path.join(a.out, "config.yaml"), "w") as f:
        f.write(config(a))
    runs, results = plan(a), {}
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        waiting = {pool.submit(execute, a, key, values): key for key, values in runs.items()}
        try:
            for done in concurrent.futures.as_completed(waiting):
                key = waiting[done]
                results[key], was_there = done.result()
                harness.say("%d of %d: %s: %s%s" % (len(results), len(runs), key,
                                                    shown(a, result_of(a, results[key])),
                                                    ", kept" if was_there else ""))
        except RuntimeError as e:
            pool.shutdown(cancel_futures=True)
            harness.fail(str(e))
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            harness.fail("interrupted; the same command continues")
    return results


# --- tables ----------------------------------------------------------------------------------------

def result_of(a, summary):
    """Percent, or the loss; None if training diverged."""
    value = summary["eval_loss" if a.is_loss else "eval_accuracy"]
    if summary["status"] != "done" or value is None:
        return None
    return value if a.is_loss else 100 * value


def shown(a, value):
    return "diverged" if value is None else ("%.4f" if a.is_loss else "%.2f %%") % value


def collect(a, results, method, stages, micro, rate):
    """Results of a method over the seeds, beside those of single."""
    alone = micro if micro in micro_counts(a) else 1
    keys = [(run_key(method, stages, micro, s, rate), run_key("single", 1, alone, s, rate))
            for s in a.seeds]
    ours = [result_of(a, results[k]) for k, _ in keys]
    base = [result_of(a, results[k]) for _, k in keys]
    known = [x for x in ours if x is not None]
    entry = {"method": method, "stages": stages, "micro": micro, "rate": rate, "results": ours,
             "updates": results[keys[0][0]]["steps"],
             "n_diverged": len(ours) - len(known), "mean": None, "low": None, "high": None,
             "to_single": None}
    if known:
        entry.update(mean=statistics.mean(known), low=min(known), high=max(known))
        if len(known) == len(ours) and None not in base:
            one = statistics.mean(base)
            entry["to_single"] = 100 * (entry["mean"] / one - 1) if a.is_loss \
                else entry["mean"] - one
    return entry


def accuracy_table(a, entries):
    what = ("Evaluation loss", "percent") if a.is_loss else ("Test accuracy, %", "points")
    print("\n%s, mean of seeds %s [lowest, highest], and %s above single" % (
        what[0], ", ".join(map(str, a.seeds)), what[1]))
    has_rates = len(a.rates) > 1
    print("%s%-15s %6s %5s | %6s %-15s | %s" % ("rate     " if has_rates else "", "method",
                                               "stages", "micro", "mean", "[range]", "to single"))
    for e in entries:
        text = "%-9g" % e["rate"] if has_rates else ""
        text += "%-15s %6d %5d | " % (e["method"], e["stages"], e["micro"])
        if e["mean"] is not None:
            digits = 3 if a.is_loss else 2
            text += "%6.*f [%.*f, %.*f]  | " % (digits, e["mean"], digits, e["low"], digits,
                                                e["high"])
        else:
            text += "%6s %-15s | " % ("-", "")
        if e["to_single"] is not None and e["method"] != "single":
            text += "%+.2f" % e["to_single"]
        if a.same_time:
            text += " in %d updates" % e["updates"]
        if e["n_diverged"]:
            text += " %d of %d diverged" % (e["n_diverged"], len(e["results"]))
        print(text)


def best_of(a, entries):
    """The entry of the best rate; one that diverged with any seed is the worst."""
    sign = -1 if a.is_loss else 1
    return max(entries, key=lambda e: (-e["n_diverged"], sign * (e["mean"] or 0)))


def rate_table(a, entries):
    def of(method, stages, micro):
        return [e for e in entries if (e["method"], e["stages"], e["micro"]) ==
                (method, stages, micro)]

    digits = 3 if a.is_loss else 2
    print("\nAt the best rate of single, and at its own best rate; above single at its best")
    for method, stages, micro in [("single", 1, t) for t in micro_counts(a)] + layouts(a):
        one = best_of(a, of("single", 1, micro if micro in micro_counts(a) else 1))
        rows = of(method, stages, micro)
        same = [e for e in rows if e["rate"] == one["rate"]][0]
        text = "%-15s %6d %5d" % (method, stages, micro)
        for e in (same, best_of(a, rows)):
            if e["mean"] is None or one["mean"] is None:
                text += " | %-8g diverged          " % e["rate"]
                continue
            gain = 100 * (e["mean"] / one["mean"] - 1) if a.is_loss else e["mean"] - one["mean"]
            text += " | %-8g %6.*f  %+.2f%s" % (e["rate"], digits, e["mean"], gain,
                                                " (%d diverged)" % e["n_diverged"]
                                                if e["n_diverged"] else "")
        print(text)


def predictions(a, results):
    """Prediction errors: [{method, optimizer, stages, per_stage: [{ahead, predicted, stale}]}]."""
    found = []
    for optimizer, seeds in (("sgd", a.seeds), ("adam", a.seeds[:1])):
        for method, stages, micro in layouts(a):
            keys = [run_key(method, stages, micro, s, a.rates[0], optimizer) for s in seeds]
            runs = [results[k] for k in keys if k in results and results[k]["status"] == "done"]
            if not runs or method not in PREDICTING:
                continue
            rows = []
            for k in range(stages):
                errors = [r["per_stage"][k].get("prediction") for r in runs]
                rows.append({name: statistics.mean(e[name] for e in errors)
                             for name in errors[0]} if all(errors) else None)
            found.append({"method": method, "optimizer": optimizer, "stages": stages,
                          "per_stage": rows})
    return found


def prediction_table(a, found):
    print("\nDistance of weights from what they were meant to be, predicted / stale (RMSE), in "
          "units of 1e-4,\nand updates ahead; stage by stage")
    for p in found:
        cells = ["%.3g/%.3g (%.2g)" % (1e4 * e["predicted_rmse"], 1e4 * e["stale_rmse"],
                                       e["ahead"]) if e else "-" for e in p["per_stage"]]
        print("%-4s %-9s %d stages: %s" % ("" if a.is_loss else p["optimizer"], p["method"], p["stages"],
                                           "  ".join(cells)))


def findings(a, entries, found):
    """The requirements of --check that are not met."""
    missed = []
    most = max(a.stages)
    for e in entries:
        name = "%s, %d stages, micro %d" % (e["method"], e["stages"], e["micro"])
        if e["method"] == "single" and not (e["mean"] or 0) > 88:
            missed.append("%s: %s, expected above 88 %%" % (name, shown(a, e["mean"])))
        if e["method"] == "vanilla-async" and e["stages"] == most and e["to_single"] is not None \
                and e["to_single"] > -0.5:
            missed.append("%s: %+.2f to single: staleness does not show" % (name, e["to_single"]))
        if e["method"] in HELD and (e["to_single"] is None or e["to_single"] < -0.5):
            missed.append("%s: more than half a point below single" % name)
    for p in found:
        for k, e in enumerate(p["per_stage"]):
            if e and e["ahead"] > 0 and p["method"] != "forerun" \
                    and not e["predicted_rmse"] < e["stale_rmse"]:
                missed.append("%s with %s, stage %d of %d: predicted %.3g, stale %.3g" % (
                    p["method"], p["optimizer"], k, p["stages"], e["predicted_rmse"],
                    e["stale_rmse"]))
    return missed


def main():
    a = parse()
    results = sweep(a)
    entries = [collect(a, results, *layout, rate) for rate in a.rates
               for layout in [("single", 1, micro) for micro in micro_counts(a)] + layouts(a)]
    found = predictions(a, results)
    accuracy_table(a, entries)
    if len(a.rates) > 1:
        rate_table(a, entries)
    if found:
        prediction_table(a, found)
    missed = findings(a, entries, found) if a.task == "conv" else []
    for line in missed:
        print("missed: " + line)
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"accuracy": entries, "prediction": found, "missed": missed}, f, indent=1)
    if a.check and missed:
        sys.exit(1)


if __name__ == "__main__":
    main()
