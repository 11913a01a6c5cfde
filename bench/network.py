#!/usr/bin/python3
"""Data parallelism, pipelines and hybrids over a slow network, measured.

    bench/network.py [--build DIR] [--models mlp,vgg16] [--rates 1gbit,100mbit] [--entrants A,B,...]
                     [--rounds N] [--seconds S] [--set KEY=VALUE]... [--torch [--peer PROGRAM]]
                     [--json FILE] [--check]

Creates namespaces with rate-limited links (netns.py; needs root and iproute2), runs one process of
`forerun train` in each over TCP, each on its own core if there are enough, and counts the bytes on
the links from outside. Entrants take turns, round by round; figures are those of the fastest round.
--set changes the config of all of them: parallel.messages=bf16, for example.

Each entrant first runs on an unlimited link. This time and its traffic give the expected time on a
slow link: with t seconds per mini-batch on the unlimited link, and x seconds that the busiest
direction needs for the bytes of a mini-batch,
  dp, hybrids  max(t, x): gradients travel while the backward runs
  pipelines    t + x: there is one micro-batch in flight per stage, which keeps the stages
               busy but leaves none to hide a transfer
--check: exit 1 if dp fills less than 90 % of a link of 1 Gbit/s, if the gain of an entrant over dp
is not within 25 % of the gain expected from the traffic, or if spectrain gains less than 8.91 on
the mlp at 1 Gbit/s (SpecTrain's best figure over dp).
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import time

import harness
import netns
from pipeline import NETWORKS

# micro: micro-batches; if omitted, the program uses the smallest number that replicas divide.
# exposed: transfers delay the next pass.
ENTRANTS = {
    "dp": {"parallel": {"method": "dp", "replicas": 2}},
    "1f1b": {"parallel": {"method": "1f1b", "stages": 2}, "micro": 4, "exposed": True},
    "zb-h1": {"parallel": {"method": "zb-h1", "stages": 2}, "micro": 4, "exposed": True},
    "spectrain": {"parallel": {"method": "spectrain", "stages": 2}, "micro": 1, "exposed": True},
    "forerun": {"parallel": {"method": "forerun", "stages": 2}, "micro": 1, "exposed": True},
    "xpipe": {"parallel": {"method": "xpipe", "stages": 2}, "micro": 2, "exposed": True},
    "hybrid-2+1": {"parallel": {"method": "spectrain", "stages": 2, "replicas": [2, 1]}},
    "hybrid-2x2": {"parallel": {"method": "spectrain", "stages": 2, "replicas": 2}},
    "dp-4": {"parallel": {"method": "dp", "replicas": 4}},
}
DDP = "PyTorch DDP"
LEAST_OF_LINK = 0.90
FROM_PREDICTED = 0.25
SPECTRAIN_OVER_DP = 8.91
LEAST_STEPS, MOST_STEPS = 5, 500
TICK_S = 0.02


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--build", default="build", help="folder with forerun")
    p.add_argument("--models", default="mlp,vgg16")
    p.add_argument("--rates", default="1gbit,100mbit", help="beside unlimited")
    p.add_argument("--entrants", default=",".join(ENTRANTS))
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--seconds", type=float, default=15, help="approximate time of a run")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="sets")
    p.add_argument("--torch", action="store_true", help="include DistributedDataParallel")
    p.add_argument("--peer", default=os.environ.get("FORERUN_PEER"),
                   help="in place of bench/torch_ddp.py")
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    a.models, a.entrants = a.models.split(","), a.entrants.split(",")
    harness.check_names(p, a.models, NETWORKS)
    harness.check_names(p, a.entrants, ENTRANTS)
    if a.rounds < 1:
        p.error("--rounds must be at least 1")
    rates = [netns.read_rate(r) for r in a.rates.split(",")]
    a.rates = [None] + [r for r in rates if r]
    return a


# --- one run ---------------------------------------------------------------------------------------

def n_ranks(parallel):
    replicas = parallel.get("replicas", 1)
    return sum(replicas) if isinstance(replicas, list) else parallel.get("stages", 1) * replicas


def count_lines(path):
    try:
        with open(path, "rb") as f:
            return f.read().count(b"\n")
    except FileNotFoundError:
        return 0


def watch(child, net, metrics, window, patience_s):
    """Counters of the links, with times, at both ends of a window of mini-batches."""
    seen, until = [], time.monotonic() + patience_s
    while child.poll() is None:
        if time.monotonic() > until:
            harness.fail("still not done after %.0f s: %s" % (patience_s, " ".join(child.args)))
        while len(seen) < 2 and count_lines(metrics) >= window[len(seen)]:
            seen.append((time.monotonic(), net.counters()))
        time.sleep(TICK_S)
    return seen


def between(seen, window):
    """Per mini-batch: bytes sent by all nodes, bytes in the busiest direction, seconds."""
    (start, before), (end, after) = seen
    moved = [[y - x for x, y in zip(*way)] for way in zip(before, after)]  # [sent, received][node]
    n = window[1] - window[0]
    return sum(moved[0]) / n, max(moved[0] + moved[1]) / n, (end - start) / n


def run_forerun(a, model, entrant, rate, steps, expected_s):
    """One run on its own links: its results, and the counters of the links."""
    batch, window = NETWORKS[model]["batch"], (max(2, steps // 10), steps - 1)
    forerun = os.path.abspath(harness.find_program(a.build, "forerun"))
    with harness.Scratch() as scratch, netns.Network(n_ranks(entrant["parallel"]), rate) as net:
        config, out = os.path.join(scratch, "bench.yaml"), os.path.join(scratch, "run")
        harness.write_config(config, NETWORKS[model], steps, entrant["parallel"],
                             entrant.get("micro"))
        command = net.mpirun([forerun, "train", config, "--out", out, "--quiet", "--json"] +
                             harness.set_options(a.sets))
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                                 env=net.environment())
        seen = watch(child, net, os.path.join(out, "metrics.jsonl"), window, 90 + 4 * expected_s)
        text = child.stdout.read()
        if child.returncode != 0:
            harness.fail("%s ended with %d" % (" ".join(command), child.returncode))
        elapsed = harness.read_elapsed(out)
    if len(seen) < 2:
        harness.fail("%s: %d mini-batches went by unseen; give it more --seconds" % (model, steps))
    sent, busiest, seconds = between(seen, window)
    step_s = (elapsed[window[1] - 1] - elapsed[window[0] - 1]) / (window[1] - window[0])
    return {"ranks": net.n, "steps": steps, "s_per_batch": step_s, "samples_per_s": batch / step_s,
            "MB_per_sample": sent / batch / 1e6, "busiest_bytes_per_batch": busiest,
            "of_link": busiest * 8 / seconds / rate if rate else None,
            "summary": json.loads(text)}


def run_ddp(a, model, rate):
    """PyTorch's DistributedDataParallel on two nodes: samples/s."""
    with netns.Network(2, rate) as net:
        env = dict(harness.peer_environment(), **net.environment(), GLOO_SOCKET_IFNAME="eth0")
        words = harness.ddp_command(a.peer, model) + [
            "--steps", "2", "--repeats", "2", "--warmup", "1",
            "--rendezvous", "tcp://%s1:29500" % netns.SUBNET, "--rank"]
        children = [subprocess.Popen(net.at(i, words + [str(i)]), env=env, text=True,
                                     stdout=subprocess.PIPE) for i in range(2)]
        texts = [child.communicate(timeout=900)[0] for child in children]
        if any(child.returncode for child in children):
            harness.fail("PyTorch's data parallelism ended with an error")
    found = harness.read_rate(texts[0], "PyTorch")["samples_per_s"]
    return {"ranks": 2, "samples_per_s": found, "s_per_batch": NETWORKS[model]["batch"] / found}


# --- all of them -----------------------------------------------------------------------------------

def predict(entrant, rate, base):
    """Expected seconds per mini-batch on a link, from a run on an unlimited one."""
    t = base["s_per_batch"]
    if not rate:
        return t
    x = base["busiest_bytes_per_batch"] * 8 / rate
    return t + x if entrant.get("exposed") else max(t, x)


def measure(a, model):
    """{rate: {entrant: its fastest round}}, unlimited (None) first."""
    results = {rate: {} for rate in a.rates}
    for rate in a.rates:
        for number in range(a.rounds):
            for name in a.entrants + ([DDP] if a.torch else []):
                if name == DDP:
                    r = run_ddp(a, model, rate)
                else:
                    r = run_entrant(a, model, name, rate, results[None].get(name))
                best = results[rate].get(name)
                if not best or r["samples_per_s"] > best["samples_per_s"]:
                    results[rate][name] = r
                harness.say("%s, round %d of %d: %s %s: %.1f samples/s" % (
                    netns.rate_text(rate), number + 1, a.rounds, model, name, r["samples_per_s"]))
    return results


def run_entrant(a, model, name, rate, base):
    entrant, steps, expected_s = ENTRANTS[name], NETWORKS[model]["steps"], 1
    if base:
        expected_s = predict(entrant, rate, base)
        steps = int(min(max(LEAST_STEPS, a.seconds / expected_s), MOST_STEPS))
    r = run_forerun(a, model, entrant, rate, steps, steps * expected_s)
    return dict(r, predicted_s=predict(entrant, rate, base) if base else r["s_per_batch"])


def gains(r, name):
    """(measured, predicted) gain over dp of two ranks."""
    dp = r["dp"]
    return (dp["s_per_batch"] / r[name]["s_per_batch"],
            dp["predicted_s"] / r[name]["predicted_s"] if "predicted_s" in r[name] else None)


# --- what came out ---------------------------------------------------------------------------------

def table(model, results):
    """Markdown, for docs/network.md."""
    cores = len(os.sched_getaffinity(0))
    print("\n%s, batch %d" % (model, NETWORKS[model]["batch"]))
    print("\n| link | | ranks | samples/s | MB/sample | of the link | x dp | predicted |")
    print("|---|---|---|---|---|---|---|---|")
    for rate, row in results.items():
        for name, r in row.items():
            gain, predicted = gains(row, name) if "dp" in row else (None, None)
            cells = [netns.rate_text(rate), name,
                     "%d%s" % (r["ranks"], "*" if r["ranks"] > cores else ""),
                     "%.1f" % r["samples_per_s"],
                     "%.3f" % r["MB_per_sample"] if "MB_per_sample" in r else "",
                     "%.0f %%" % (100 * r["of_link"]) if r.get("of_link") else "",
                     "%.2f" % gain if gain else "", "%.2f" % predicted if predicted else ""]
            print("| " + " | ".join(cells) + " |")
    print("\n* on %d cores" % cores)


def shortfalls(model, results):
    """Missed requirements, as sentences."""
    missed = []
    for rate, row in results.items():
        if not rate or "dp" not in row:
            continue
        text = "%s at %s" % (model, netns.rate_text(rate))
        if rate == 1e9 and model == "mlp" and row["dp"]["of_link"] < LEAST_OF_LINK:
            missed.append("%s: dp fills %.1f %% of the link, floor %.0f %%" % (
                text, 100 * row["dp"]["of_link"], 100 * LEAST_OF_LINK))
        for name in row:
            gain, predicted = gains(row, name)
            if predicted and abs(gain / predicted - 1) > FROM_PREDICTED:
                missed.append("%s: %s is %.2fx dp, the traffic says %.2fx" % (
                    text, name, gain, predicted))
            if (model, rate, name) == ("mlp", 1e9, "spectrain") and gain < SPECTRAIN_OVER_DP:
                missed.append("%s: spectrain is %.2fx dp, floor %.2fx" % (
                    text, gain, SPECTRAIN_OVER_DP))
    return missed


def main():
    a = parse()
    netns.need()
    for sign in (signal.SIGINT, signal.SIGTERM):  # so that links are removed
        signal.signal(sign, lambda number, _: sys.exit(128 + number))
    results = {model: measure(a, model) for model in a.models}
    missed = []
    for model in a.models:
        table(model, results[model])
        missed += shortfalls(model, results[model])
    named = {m: {netns.rate_text(rate): row for rate, row in r.items()}
             for m, r in results.items()}
    harness.finish(a, named, missed)


if __name__ == "__main__":
    main()
