"""Emulated hosts: network namespaces on this machine, connected by links of a given rate.

    with netns.Network(2, 1e9) as net:
        subprocess.run(net.mpirun([program, ...]), env=net.environment())

Two nodes share one cable (a veth pair). More nodes are connected to a switch (a bridge in its own
namespace) by one cable each. A token bucket at each end limits the rate, in both directions at
once. Each node has its own addresses and host name, so that Open MPI treats it as another machine,
and one core. Names contain the number of this process. Nothing else is changed. At the end of the
block, everything is removed, including processes that still run in it.

Packets are limited to 16 kB, so that a link reaches its rate in both directions. By default the
kernel passes packets of 64 kB to an interface, more than the bucket holds (32 kB, so that short
messages do not exceed the rate); it then splits them in software and drops parts.
"""
import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time

import harness

AGENT = os.path.join(harness.HERE, "netns_agent.sh")
SUBNET = "10.213.77."
BUCKET = "32kb"
PACKET = "16384"
HEADERS = 1448 / 1514  # payload share of a packet of 1500 bytes after Ethernet, IP and TCP


def rate_text(rate):
    if rate is None:
        return "unlimited"
    return "%g Gbit/s" % (rate / 1e9) if rate >= 1e9 else "%g Mbit/s" % (rate / 1e6)


def read_rate(text):
    """Bits per second of "1gbit", "100mbit"; None for "unlimited"."""
    if text == "unlimited":
        return None
    for unit, factor in (("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3)):
        if text.endswith(unit):
            try:
                rate = float(text[:-len(unit)]) * factor
            except ValueError:
                break
            if rate > 0:
                return rate
    harness.fail("no rate: %s; say 1gbit, 100mbit, ..., or unlimited" % text)


def need():
    """Exits with a message if namespaces cannot be created."""
    if os.geteuid() != 0:
        harness.fail("making network namespaces needs root; run it as root, or by sudo")
    for tool in ("ip", "tc", "mpirun", "taskset", "unshare"):
        if not shutil.which(tool):
            harness.fail("no %s; scripts/install-deps.sh --bench installs it" % tool)


def call(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise RuntimeError("%s: %s" % (" ".join(words), done.stderr.strip() or done.returncode))
    return done.stdout


class Network:
    """n nodes at `rate` bits per second in each direction; None: as fast as memory."""

    def __init__(self, n, rate):
        self.n, self.rate = n, rate
        self.nodes = ["fr%d-%d" % (os.getpid(), i) for i in range(n)]
        self.switch = "fr%d-sw" % os.getpid()
        self.made = []

    # --- making and unmaking ---------------------------------------------------------------------

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="fr-net-")  # short: Open MPI puts sockets below it
        try:
            for name in self.nodes + ([self.switch] if self.n > 2 else []):
                call("ip", "netns", "add", name)
                self.made.append(name)
            for i, node in enumerate(self.nodes):
                call("ip", "-n", node, "link", "set", "lo", "up")
            self.lay_cables()
            for i, node in enumerate(self.nodes):
                call("ip", "-n", node, "addr", "add", SUBNET + "%d/24" % (i + 1), "dev", "eth0")
        except BaseException:
            self.__exit__()
            raise
        return self

    def lay_cables(self):
        if self.n == 2:
            return self.cable(self.nodes[0], "eth0", self.nodes[1], "eth0")
        call("ip", "-n", self.switch, "link", "add", "switch", "type", "bridge")
        call("ip", "-n", self.switch, "link", "set", "switch", "up")
        for i, node in enumerate(self.nodes):
            self.cable(node, "eth0", self.switch, "port%d" % i)
            call("ip", "-n", self.switch, "link", "set", "port%d" % i, "master", "switch")

    def cable(self, here, name, there, peer):
        call("ip", "link", "add", name, "netns", here, "type", "veth",
             "peer", "name", peer, "netns", there)
        for space, end in ((here, name), (there, peer)):
            kind, packet = ["pfifo", "limit", "10000"], []  # for its counters
            if self.rate:
                kind = ["tbf", "rate", "%d" % self.rate, "burst", BUCKET, "latency", "50ms"]
                packet = ["gso_max_size", PACKET]
            call("ip", "-n", space, "link", "set", end, *packet, "up")
            call("tc", "-n", space, "qdisc", "add", "dev", end, "root", *kind)

    def __exit__(self, *_):
        """A second Ctrl-C must not interrupt the clean-up."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            for sign in (signal.SIGTERM, signal.SIGKILL):
                self.end_processes(sign)
            for name in self.made:
                subprocess.run(["ip", "netns", "del", name])
            self.made = []
            shutil.rmtree(self.folder, ignore_errors=True)
        finally:
            signal.signal(signal.SIGINT, before)

    def processes(self):
        return [int(p) for name in self.made for p in call("ip", "netns", "pids", name).split()]

    def end_processes(self, sign):
        for pid in self.processes():
            try:
                os.kill(pid, sign)
            except ProcessLookupError:
                pass
        for _ in range(20):
            if not self.processes():
                return
            time.sleep(0.1)

    # --- using it --------------------------------------------------------------------------------

    def core(self, node):
        may = sorted(os.sched_getaffinity(0))
        return may[node % len(may)]

    def at(self, node, command):
        """The command line that runs a command on a node."""
        return [AGENT, self.nodes[node], shlex.join(command)]

    def mpirun(self, command):
        """The command line that runs one process per node; they communicate over the cables
        only."""
        words = ["mpirun", "-n", str(self.n), "--bind-to", "none",
                 "--host", ",".join(node + ":1" for node in self.nodes)]
        for key, value in (("plm_rsh_agent", AGENT), ("plm_rsh_no_tree_spawn", "1"),
                           ("pml", "ob1"), ("btl", "tcp,self"),
                           ("btl_tcp_if_include", SUBNET + "0/24"),
                           ("oob_tcp_if_include", SUBNET + "0/24")):
            words += ["--mca", key, value]
        return self.at(0, words + command)

    def environment(self):
        cores = " ".join(str(self.core(i)) for i in range(self.n))
        return dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                    FR_NETNS_CORES=cores, FR_NETNS_FOLDER=self.folder)

    def counters(self):
        """Bytes on the wire so far, including headers: (sent, received), lists by node."""
        sent = [self.passed(node, "eth0") for node in self.nodes]
        if self.n == 2:
            return sent, sent[::-1]
        return sent, [self.passed(self.switch, "port%d" % i) for i in range(self.n)]

    def passed(self, space, end):
        found = json.loads(call("tc", "-n", space, "-s", "-j", "qdisc", "show", "dev", end))
        return next(q["bytes"] for q in found if q.get("root"))
