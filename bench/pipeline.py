#!/usr/bin/python3
"""Two stages on two cores: every method, beside its bounds and PyTorch.

    bench/pipeline.py [--build DIR] [--models mlp,vgg16,gpt] [--methods A,B,...] [--rounds N]
                      [--precision fp32|bf16] [--search] [--python PYTHON] [--peer PROGRAM]
                      [--json FILE] [--check]
    bench/pipeline.py --model-cuts gpt=blocks.2.attn.norm,blocks.3.attn.norm

One kernel thread per stage, each stage on its own core. Entrants take turns, round by round, so
that a noisy neighbour affects all of them; figures are those of the fastest round.

Measures of a run:
  of bound   asynchronous methods: samples/s against 1 / (busy time of the slowest stage per
             mini-batch), both from the trace of the same run, without the start
  of plan    flush schedules: seconds per mini-batch against the clock of the schedule with
             the costs of the stages that the run measured
  prediction spectrain against vanilla-async
  PyTorch    spectrain against a single process with two threads, and against its 1F1B pipeline of
             two processes: bench/torch_step.py and bench/torch_pipeline.py under the interpreter
             --python (Debian's; that of a virtual environment for a newer PyTorch)

--peer PROGRAM (or FORERUN_PEER) replaces both of them. It is called with --model M --threads N for
one process, and for the pipeline --mode stages --procs 2 --threads 1 --chunks N [--pin] or, if its
--help has no --mode, --schedule 1F1B --procs 2 --chunks N. The features of PyTorch 2.x
(torch.compile, its own pipelining) are tried in the first round; later rounds use the best.
--search does the same with 2, 4 and 8 micro-batches (and pinned processes); otherwise the table
below says what was found best.
--check: exit 1 if a floor is missed.
"""
import argparse
import json
import os

import harness
from harness import HERE

# steps: mini-batches of a run; micro: of flush schedules; chunks, pin: of PyTorch's pipeline.
NETWORKS = {
    "mlp": {"batch": 64, "steps": 30, "micro": 4, "chunks": 2, "pin": True,
            "model": {"name": "mlp", "inputs": 2048, "depth": 8, "width": 2048, "classes": 10}},
    "vgg16": {"batch": 32, "steps": 13, "micro": 4, "chunks": 4, "pin": True,
              "model": {"name": "vgg16", "image": 32, "channels": 3, "classes": 10}},
    "gpt": {"batch": 16, "steps": 9, "micro": 8, "chunks": 8, "pin": True,
            "model": {"name": "gpt", "layers": 6, "width": 384, "heads": 6, "context": 128,
                      "vocab": 256}},
}
ASYNC = ("vanilla-async", "spectrain", "pipedream", "xpipe", "pipeoptim", "forerun")
FLUSH = ("gpipe", "1f1b", "zb-h1", "zb-h2", "zbv")
STAGES = {"zbv": 4}  # on two workers; the others have 2
SINGLE = ("single, 1 thread", "single, 2 threads")
TORCH = ("PyTorch, 1 thread", "PyTorch, 2 threads", "PyTorch, 1F1B")

LEAST_OF_BOUND = 0.95
MOST_OVER_PLAN = 1.03
LEAST_PREDICTING = 0.97
# Minimum ratio of spectrain to PyTorch: one process with two threads; its pipeline.
LEAST_RATIO = {"mlp": (1.25, 2.0), "vgg16": (1.1, 1.5), "gpt": (1.15, 1.4)}
COMPUTE = ("forward", "backward", "weight", "step")  # categories of slices in a trace


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--build", default="build", help="folder with forerun")
    p.add_argument("--models", default=",".join(NETWORKS))
    p.add_argument("--methods", default=",".join(ASYNC + FLUSH + ("single", "torch")),
                   help="of Forerun, and `single`, `torch`")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--steps", type=int, help="mini-batches of a run, for all models")
    p.add_argument("--precision", default="fp32", choices=harness.PRECISIONS)
    p.add_argument("--search", action="store_true", help="find the best micro-batch counts")
    harness.add_peer_options(p, "bench/torch_step.py and torch_pipeline.py")
    p.add_argument("--model-cuts", metavar="MODEL=NODE,NODE,...",
                   help="compare the automatic cut with these, one after the other")
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    a.models, a.methods = a.models.split(","), a.methods.split(",")
    harness.check_names(p, a.models, NETWORKS)
    harness.check_names(p, a.methods, ASYNC + FLUSH + ("single", "torch"))
    if a.rounds < 1:
        p.error("--rounds must be at least 1")
    return a


# --- one run ---------------------------------------------------------------------------------------

def read_trace(path, batch, stages):
    """Steady state of a run: samples/s, and busy seconds per mini-batch of each worker.

    A mini-batch is done when the last stage to step has stepped. The first tenth of the mini-batches,
    two at least, is left out: memory is touched for the first time, the pipeline fills; and so is
    the end, where it drains. Work is counted as far as it lies between the two."""
    with open(path) as f:
        slices = [e for e in json.load(f)["traceEvents"]
                  if e["ph"] == "X" and e["cat"] in COMPUTE]
    n = 1 + max(e["args"]["mini_batch"] for e in slices)
    done = [0.0] * n
    for e in slices:
        if e["cat"] == "step":
            b = e["args"]["mini_batch"]
            done[b] = max(done[b], e["ts"] + e["dur"])
    first, last = max(2, n // 10), n - stages  # mini-batches first .. last are counted
    if last < first:
        harness.fail("%d mini-batches are too few to time" % n)
    start, end, count = done[first - 1], done[last], last - first + 1
    busy = {e["tid"]: 0.0 for e in slices}
    for e in slices:
        busy[e["tid"]] += max(0.0, min(end, e["ts"] + e["dur"]) - max(start, e["ts"]))
    return {"samples_per_s": count * batch / (end - start) * 1e6,
            "busy_s": [busy[tid] * 1e-6 / count for tid in sorted(busy)]}


def train(a, model, method, stages, threads, micro, cut=None):
    """One run of the command; what it measured."""
    net = NETWORKS[model]
    steps = a.steps or net["steps"]
    values = {"model": net["model"], "data": {"name": "synthetic", "n": 8 * net["batch"]},
              "train": {"batch": net["batch"], "micro": micro, "steps": steps,
                        "optimizer": {"name": "sgd", "lr": 0.001, "momentum": 0.9}},
              "parallel": {"method": method, "stages": stages, "threads": threads},
              "run": {"eval_every": -1, "trace": 1 << 20, "prediction_samples": 0}}
    if cut:
        values["parallel"]["cuts"] = [cut]
    with harness.Scratch() as scratch:
        config, out = os.path.join(scratch, "bench.yaml"), os.path.join(scratch, "run")
        with open(config, "w") as f:
            json.dump(values, f)  # JSON is YAML
        text, _ = harness.run([harness.find_program(a.build, "forerun"), "train", config, "--out",
                               out, "--quiet", "--json", "--set",
                               "train.precision=" + a.precision])
        summary = json.loads(text)
        result = read_trace(os.path.join(out, "trace.json"), net["batch"], stages)
    result.update({
        "method": method, "micro": micro, "threads": threads,
        "stages": [[s["first"], s["last"]] for s in summary["per_stage"]],
        "bound": net["batch"] / max(result["busy_s"]),
        "predicted_s_per_batch": summary["bubble"]["scheduled_s_per_batch"],
        "measured_s_per_batch": summary["bubble"]["s_per_batch"],
        "summary_samples_per_s": summary["samples_per_s"]})
    result["of_bound"] = result["samples_per_s"] / result["bound"]
    if result["predicted_s_per_batch"]:
        result["over_plan"] = result["measured_s_per_batch"] / result["predicted_s_per_batch"]
    return result


def torch_command(a, ours):
    return harness.command_of(a.peer or os.path.join(HERE, ours), a.python)


def torch_run(a, command, model, options, about):
    """One run of the peer; what it measured, with the options that made it."""
    options = options + harness.numbers_options(harness.options_of(command), a.precision, "sgd")
    text, _ = harness.try_run(
        command + ["--model", harness.peer_model(a.peer, model), "--steps", "3", "--repeats", "3",
                   "--warmup", "2"] + options, harness.peer_environment())
    return dict(harness.read_rate(text, command[-1]), way=" ".join(options), **about)


def torch_single_ways(a, model, threads):
    command = torch_command(a, "torch_step.py")
    return [lambda way=way: torch_run(a, command, model, ["--threads", str(threads)] + way,
                                      {"threads": threads})
            for way in harness.step_ways(harness.options_of(command), model)]


def torch_pipeline_ways(a, model, chunks, pins):
    """Depends on the options in the peer's --help."""
    command = torch_command(a, "torch_pipeline.py")
    known = harness.options_of(command)
    mode, extras = [], [[]] + [[x] for x in ("--compile", "--official") if x in known]
    if "--mode" in known:
        mode = ["--mode", "stages", "--procs", "2", "--threads", "1"]
    elif "--schedule" in known:
        mode, extras = ["--schedule", "1F1B", "--procs", "2"], [[]]
    ways = []
    for count in chunks:
        for pin in pins if "--pin" in known else [False]:
            for extra in extras:
                options = mode + ["--chunks", str(count)] + ["--pin"] * pin + extra
                ways.append(lambda o=options, c=count, p=pin: torch_run(
                    a, command, model, o, {"micro": c, "pin": p}))
    return ways


# --- entrants --------------------------------------------------------------------------------------

def entrants(a, model):
    """{name: [ways to run it]}; after the first round only the best way is left."""
    net = NETWORKS[model]
    counts = [2, 4, 8] if a.search else [net["micro"]]
    chunks = [2, 4, 8] if a.search else [net["chunks"]]
    pins = [False, True] if a.search else [net["pin"]]
    all_of_them = {}
    for m in ASYNC:
        ways = [1, 2] if a.search and m == "xpipe" else [1]
        all_of_them[m] = [lambda m=m, t=t: train(a, model, m, 2, 1, t) for t in ways]
    for m in FLUSH:
        all_of_them[m] = [lambda m=m, t=t: train(a, model, m, STAGES.get(m, 2), 1, t)
                          for t in counts]
    for name, threads in zip(SINGLE, (1, 2)):
        all_of_them[name] = [lambda n=threads: train(a, model, "single", 1, n, 1)]
    if "torch" in a.methods:
        for name, threads in zip(TORCH, (1, 2)):
            all_of_them[name] = torch_single_ways(a, model, threads)
        all_of_them[TORCH[2]] = torch_pipeline_ways(a, model, chunks, pins)
    wanted = set(a.methods)
    if "single" in wanted:
        wanted.update(SINGLE)
    if "torch" in wanted:
        wanted.update(TORCH)
    return {name: ways for name, ways in all_of_them.items() if name in wanted}


def measure(a, model):
    """The fastest round of each entrant."""
    field, results = entrants(a, model), {}
    for number in range(a.rounds):
        for name, ways in field.items():
            best, result = harness.best_way(ways, lambda way: way())
            field[name] = [best]
            results.setdefault(name, []).append(result)
            harness.say("round %d of %d: %s %s: %.1f samples/s%s" % (
                number + 1, a.rounds, model, name, result["samples_per_s"],
                " (%s)" % result["way"] if result.get("way") else ""))
    for name, rounds in results.items():
        best = max(rounds, key=lambda r: r["samples_per_s"])
        results[name] = dict(best, rounds=[r["samples_per_s"] for r in rounds])
    return results


# --- results ---------------------------------------------------------------------------------------

def table(model, results):
    rates = {name: r["samples_per_s"] for name, r in results.items()}
    print("\n%s, batch %d" % (model, NETWORKS[model]["batch"]))
    print("%-18s %5s %9s | %-15s %8s %8s | %8s | %9s %7s" % (
        "", "micro", "samples/s", "busy ms a stage", "bound/s", "of bound", "of plan", "x torch 2",
        "x 1F1B"))
    for name, r in results.items():
        line = "%-18s %5s %9.1f | " % (name, r.get("micro", ""), r["samples_per_s"])
        if name in ASYNC + FLUSH:
            busy = " ".join("%.1f" % (1e3 * s) for s in r["busy_s"])
            line += "%-15s %8.1f %7.1f%% | " % (busy, r["bound"], 100 * r["of_bound"])
            line += "%7.1f%% | " % (100 / r["over_plan"]) if "over_plan" in r else "%8s | " % ""
        else:
            line += "%-15s %8s %8s | %8s | " % ("", "", "", "")
        for peer, width in ((TORCH[1], 8), (TORCH[2], 6)):
            line += "%*s " % (width + 1, "%.2fx" % (rates[name] / rates[peer])
                              if peer in rates and not name.startswith("PyTorch") else "")
        print(line.rstrip())
    stages = next((r["stages"] for n, r in results.items()
                   if n in ASYNC + FLUSH and n not in STAGES), [])
    if stages:
        print("cut: " + " | ".join("%s .. %s" % tuple(s) for s in stages))


def shortfalls(model, results):
    """Floors that were missed, as sentences."""
    missed = []
    for name, r in results.items():
        if name in ASYNC and r["of_bound"] < LEAST_OF_BOUND:
            missed.append("%s %s: %.1f %% of its bound, floor %.0f %%" % (
                model, name, 100 * r["of_bound"], 100 * LEAST_OF_BOUND))
        if name in FLUSH and r.get("over_plan", 1) > MOST_OVER_PLAN:
            missed.append("%s %s: %.1f %% over its formula, ceiling %.0f %%" % (
                model, name, 100 * r["over_plan"] - 100, 100 * MOST_OVER_PLAN - 100))
    speed = {name: r["samples_per_s"] for name, r in results.items()}
    pairs = [("vanilla-async", LEAST_PREDICTING)]
    pairs += zip(TORCH[1:], LEAST_RATIO[model])
    for other, floor in pairs:
        if "spectrain" in speed and other in speed and speed["spectrain"] < floor * speed[other]:
            missed.append("%s spectrain: %.3fx %s, floor %.2fx" % (
                model, speed["spectrain"] / speed[other], other, floor))
    return missed


def compare_cuts(a):
    """vanilla-async with the automatic cut and with others, in turns."""
    model, _, nodes = a.model_cuts.partition("=")
    if model not in NETWORKS:
        harness.fail("no model %s; there are: %s" % (model, ", ".join(NETWORKS)))
    best = {}
    for _ in range(a.rounds):
        for cut in [None] + nodes.split(","):
            r = train(a, model, "vanilla-async", 2, 1, 1, cut)
            if cut not in best or r["samples_per_s"] > best[cut]["samples_per_s"]:
                best[cut] = r
    for cut, r in best.items():
        print("%-6s cut before %-24s %9.1f samples/s, busy ms a stage: %s" % (
            model, r["stages"][1][0] + ("" if cut else " (automatic)"), r["samples_per_s"],
            " ".join("%.1f" % (1e3 * s) for s in r["busy_s"])))


def main():
    a = parse()
    if a.model_cuts:
        return compare_cuts(a)
    results = {model: measure(a, model) for model in a.models}
    missed = []
    for model in a.models:
        table(model, results[model])
        missed += shortfalls(model, results[model])
    print("\nfastest of %d rounds; of bound: samples/s x busy time of the slowest stage; of plan: "
          "the schedule's\nown time for the measured costs / measured time" % a.rounds)
    harness.finish(a, results, missed)


if __name__ == "__main__":
    main()
