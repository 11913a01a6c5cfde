"""Common code of the programs in bench/: runs other programs, reads their output, runs forerun."""
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
    """The end of a bench: results as JSON, and missed floors, which fail the bench with --check."""
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


DEBIAN_PYTHON = "/usr/bin/python3"  # the interpreter of Debian's torch


def add_peer_options(parser, ours):
    """--peer and --python, for programs that compare with PyTorch."""
    parser.add_argument("--peer", default=os.environ.get("FORERUN_PEER"),
                        help="program in place of %s" % ours)
    parser.add_argument("--python", default=DEBIAN_PYTHON,
                        help="interpreter of the peer, for a PyTorch of another place (%s)"
                        % DEBIAN_PYTHON)


def command_of(program, python=DEBIAN_PYTHON):
    return [python, program] if program.endswith(".py") else [program]


def options_of(command):
    """The options that the --help of a program lists."""
    done = subprocess.run(command + ["--help"], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        fail("%s --help ended with %d" % (" ".join(command), done.returncode))
    return set(re.findall(r"--[a-z][a-z-]*", done.stdout))


def step_ways(known, model):
    """Lists of options for PyTorch in one process; the best one counts."""
    ways = [[]]
    if "--compile" in known:
        ways.append(["--compile"])
    if "--channels-last" in known and model == "vgg16":
        ways += [way + ["--channels-last"] for way in ways]
    return ways


PRECISIONS = ("fp32", "bf16")


def add_numbers_options(parser):
    """--precisions and --optimizer."""
    parser.add_argument("--precisions", default="fp32", help="of %s (fp32)" % ",".join(PRECISIONS))
    parser.add_argument("--optimizer", default="sgd", choices=("sgd", "adamw"))


def numbers_options(known, precision, optimizer):
    """Arguments of a speed program; nothing where it has no choice."""
    options = []
    for option, value, default in (("--precision", precision, "fp32"),
                                   ("--optimizer", optimizer, "sgd")):
        if option in known:
            options += [option, value]
        elif value != default:
            fail("the peer has no %s" % option)
    return options


def set_options(sets):
    """Arguments of the command that change its config."""
    return [word for value in sets for word in ("--set", value)]


def best_way(ways, measure, must=True):
    """(way, result) of the fastest; ways that this PyTorch does not support are reported and
    skipped. None if there is no other and none must be."""
    tried = []
    for way in ways:
        try:
            tried.append((way, measure(way)))
        except ProgramFailed as problem:
            say("left out: %s" % problem)
    if not tried:
        return fail("no way to run it succeeded") if must else None
    return max(tried, key=lambda pair: pair[1]["samples_per_s"])


class ProgramFailed(Exception):
    pass


def peer_environment():
    """By default, OpenBLAS does not pick the fastest kernel on AMD's cores."""
    env = dict(os.environ)
    with open("/proc/cpuinfo") as f:
        if "AuthenticAMD" in f.read():
            env.setdefault("OPENBLAS_CORETYPE", "Zen")
    return env


def run(command, env=None):
    """Standard output and peak resident bytes of a program; exits if it fails."""
    try:
        return try_run(command, env)
    except ProgramFailed as problem:
        return fail(problem)


def try_run(command, env=None):
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise ProgramFailed("%s ended with %d" % (" ".join(command), child.returncode))
    return text, usage.ru_maxrss * 1024


def read_rate(text, program):
    """The result of a speed program: a JSON object, or at least "samples/s NUMBER"."""
    if text.lstrip().startswith("{"):
        return json.loads(text)
    found = re.search(r"samples/s\s+([0-9.]+)", text)
    if not found:
        fail("%s says neither JSON nor samples/s" % program)
    return {"samples_per_s": float(found.group(1))}


def peer_model(peer, model):
    """Other peers may use the short name of vgg16."""
    return "vgg" if peer and model == "vgg16" else model


def ddp_command(peer, model, python=DEBIAN_PYTHON):
    """PyTorch's data parallelism on two processes of one thread, by a peer or by torch_ddp.py."""
    program = os.path.abspath(peer) if peer else os.path.join(HERE, "torch_ddp.py")
    command = command_of(program, python)
    mode = ["--ddp"] if "--ddp" in options_of(command) else ["--mode", "ddp"]
    return command + ["--model", peer_model(peer, model)] + mode + ["--procs", "2",
                                                                    "--threads", "1"]


def sets(values):
    """--set arguments of a dict; a value may be any JSON value, which is also YAML."""
    return [x for key, value in values.items() for x in ("--set", key + "=" + json.dumps(value))]


def write_config(path, net, steps, parallel, micro=None, predict=False):
    """A run on synthetic data; without `micro` the program chooses it."""
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
    """Profile of a config's model, measured once for all sizes of micro-batches: all runs that are
    compared share it."""
    run([forerun, "profile", config, "--format", "json", "--sizes", "all", "--out", path])
    return path


def read_elapsed(out):
    """Seconds from the start of a run to the end of each of its mini-batches."""
    with open(os.path.join(out, "metrics.jsonl")) as f:
        return [json.loads(line)["elapsed_s"] for line in f]


class Scratch:
    """A temporary folder for runs, in memory if possible, so that no disk is timed."""

    def __enter__(self):
        place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.path = tempfile.mkdtemp(prefix="forerun-bench-", dir=place)
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)
