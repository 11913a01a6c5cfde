"""What the programs of bench/ share: running others, reading what they say, runs of forerun."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def fail(text):
    sys.exit("%s: %s" % (os.path.basename(sys.argv[0]), text))


def say(text):
    print(text, file=sys.stderr, flush=True)


def check_names(parser, given, known):
    unknown = [x for x in given if x not in known]
    if unknown:
        parser.error("unknown: %s; there are: %s" % (", ".join(unknown), ", ".join(known)))


def finish(a, results, missed):
    """The end of a bench: results as JSON, floors that were missed; with --check they count."""
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"results": results, "missed": missed}, f, indent=1)
    for line in missed:
        print("missed: " + line)
    if a.check and missed:
        sys.exit(1)


def find_program(build, name):
    path = os.path.join(build, name)
    if not os.access(path, os.X_OK):
        fail("no %s; build first (make), or name the folder by --build" % path)
    return path


def command_of(program):
    """Debian's torch belongs to Debian's python."""
    return ["/usr/bin/python3", program] if program.endswith(".py") else [program]


def peer_environment():
    """OpenBLAS picks a slower kernel than the best on AMD's cores, if left alone."""
    env = dict(os.environ)
    with open("/proc/cpuinfo") as f:
        if "AuthenticAMD" in f.read():
            env.setdefault("OPENBLAS_CORETYPE", "Zen")
    return env


def run(command, env=None):
    """Standard output and peak resident bytes of a program; its failure is ours."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        fail("%s ended with %d" % (" ".join(command), child.returncode))
    return text, usage.ru_maxrss * 1024


def read_rate(text, program):
    """What a speed program found: a JSON object, or at least "samples/s NUMBER"."""
    if text.lstrip().startswith("{"):
        return json.loads(text)
    found = re.search(r"samples/s\s+([0-9.]+)", text)
    if not found:
        fail("%s says neither JSON nor samples/s" % program)
    return {"samples_per_s": float(found.group(1))}


def ddp_command(peer, model):
    """PyTorch's data parallelism on two processes of one thread, by a peer or by torch_ddp.py."""
    name = "vgg" if peer and model == "vgg16" else model
    program = os.path.abspath(peer) if peer else os.path.join(HERE, "torch_ddp.py")
    return command_of(program) + ["--model", name, "--mode", "ddp", "--procs", "2",
                                  "--threads", "1"]


def sets(values):
    """--set arguments of a dict; a value may be anything that JSON, and so YAML, can say."""
    return [x for key, value in values.items() for x in ("--set", key + "=" + json.dumps(value))]


def write_config(path, net, steps, parallel, micro=None, predict=False):
    """A run on numbers out of the air; without `micro` the program chooses."""
    values = {"model": net["model"], "data": {"name": "synthetic", "n": 8 * net["batch"]},
              "train": {"batch": net["batch"], "steps": steps,
                        "optimizer": {"name": "sgd", "lr": 0.001, "momentum": 0.9}},
              "parallel": dict(parallel, threads=1),
              "run": {"eval_every": -1, "prediction_samples": 0, "trace": 0,
                      "stall_timeout": 300, "predict": predict}}
    if micro:
        values["train"]["micro"] = micro
    with open(path, "w") as f:
        json.dump(values, f)  # JSON is YAML


def profile(forerun, config, path):
    """What the nodes of a config's model cost, once, whatever the micro-batch: all that are compared
    go by the same."""
    run([forerun, "profile", config, "--format", "json", "--sizes", "all", "--out", path])
    return path


def read_elapsed(out):
    """Seconds from the start of a run to the end of each of its mini-batches."""
    with open(os.path.join(out, "metrics.jsonl")) as f:
        return [json.loads(line)["elapsed_s"] for line in f]


class Scratch:
    """A folder for runs that nobody keeps, in memory where that can be: no disk is timed."""

    def __enter__(self):
        place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.path = tempfile.mkdtemp(prefix="forerun-bench-", dir=place)
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)
