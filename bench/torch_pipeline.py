#!/usr/bin/python3
"""PyTorch as a pipeline of two processes on two cores: 1F1B with flush over gloo.

    bench/torch_pipeline.py --model mlp|vgg16|gpt|gpt2 [--chunks N] [--pin] [--batch N] [--steps N]
                            [--repeats N] [--warmup N] [--precision fp32|bf16]
                            [--optimizer sgd|adamw] [--compile | --official]

Networks, batches and optimizer are those of torch_step.py, cut where the slower half is fastest.
Each mini-batch is split into --chunks micro-batches. The first process is one forward ahead of the
second, sends do not wait, and both update after the last backward. With PyTorch 2.x, --compile runs
each half through torch.compile, and --official leaves passes and transfers to
torch.distributed.pipelining's Schedule1F1B. bf16: torch.autocast, and messages of bf16. A tied weight
becomes one of each half. Prints one JSON object with the keys that
bench/pipeline.py reads.
"""
import argparse
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time

import torch_step


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--model", choices=tuple(torch_step.BATCH), required=True)
    p.add_argument("--chunks", type=int, default=4, help="micro-batches of a mini-batch")
    p.add_argument("--pin", action="store_true", help="process r on core r")
    p.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    p.add_argument("--optimizer", choices=("sgd", "adamw"), default="sgd")
    p.add_argument("--compile", action="store_true", help="torch.compile, of PyTorch 2.x")
    p.add_argument("--official", action="store_true",
                   help="torch.distributed.pipelining, of PyTorch 2.x")
    p.add_argument("--batch", type=int)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--repeats", type=int, default=5)
    p.add_argument("--warmup", type=int, default=3)
    a = p.parse_args()
    a.batch = a.batch or torch_step.BATCH[a.model]
    if a.chunks < 1 or a.batch % a.chunks:
        p.error("--batch must be a multiple of --chunks")
    if a.compile and a.official:
        p.error("--compile and --official exclude each other")
    return a


def half_way(net, x):
    """(cut, shape at the cut): the cut with the fastest slower side."""
    best = [float("inf")] * len(net)
    for _ in range(3):
        h, shapes = x, []
        for i, module in enumerate(net):
            h = h.detach().requires_grad_(h.is_floating_point())
            start = time.perf_counter()
            # A module that works in place must not modify a leaf that requires a gradient.
            h_out = module(h.clone() if h.requires_grad else h)
            h_out.backward(h_out.detach())
            best[i] = min(best[i], time.perf_counter() - start)
            h = h_out
            shapes.append(h.shape)
    net.zero_grad(set_to_none=True)
    cut = min(range(1, len(net)), key=lambda i: max(sum(best[:i]), sum(best[i:])))
    return cut, shapes[cut - 1]


def in_autocast(stage, to):
    """The stage in autocast; its output has the type `to`."""
    import torch

    class Cast(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.stage = stage

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.stage(x).to(to)

    return Cast()


class Half:
    """One process: passes of one micro-batch, and the micro-batches in flight."""

    def __init__(self, dist, rank, stage, shape, dtype, xs, ys):
        self.dtype = dtype  # of messages
        self.dist, self.is_last, self.peer = dist, rank == 1, 1 - rank
        self.stage, self.shape, self.xs, self.ys = stage, shape, xs, ys
        self.held, self.sends, self.loss = [], [], 0.0

    def send(self, tensor):
        tensor = tensor.contiguous()
        self.sends.append((self.dist.isend(tensor, self.peer), tensor))

    def receive(self):
        import torch
        tensor = torch.empty(self.shape, dtype=self.dtype)
        self.dist.recv(tensor, self.peer)
        return tensor

    def forward(self, i):
        if not self.is_last:
            out = self.stage(self.xs[i])
            self.send(out.detach())
            self.held.append((None, out))
            return
        value = self.receive().requires_grad_()
        loss = torch_step.loss_of(self.stage(value.clone()), self.ys[i]) / len(self.ys)
        self.loss += loss.item()
        self.held.append((value, loss))

    def backward(self):
        value, out = self.held.pop(0)
        if self.is_last:
            out.backward()
            self.send(value.grad)
        else:
            out.backward(self.receive())

    def step(self):
        self.loss = 0.0
        ahead = 0 if self.is_last else 1
        for i in range(len(self.xs) + ahead):
            if i < len(self.xs):
                self.forward(i)
            if i >= ahead:
                self.backward()
        for work, _ in self.sends:
            work.wait()
        self.sends.clear()


class Official:
    """The same by torch.distributed.pipelining."""

    def __init__(self, a, rank, stage, x, y):
        import torch
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B
        part = PipelineStage(stage, rank, 2, torch.device("cpu"))
        self.schedule = Schedule1F1B(part, a.chunks, loss_fn=torch_step.loss_of)
        self.is_last, self.x, self.y, self.loss = rank == 1, x, y, 0.0

    def step(self):
        if not self.is_last:
            self.schedule.step(self.x)
            return
        losses = []
        self.schedule.step(target=self.y, losses=losses)
        self.loss = sum(x.item() for x in losses) / len(losses)


def work(rank, a, meeting, results):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    if a.pin:
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=2)
    # A stage of --official receives leaves that require gradients, which modules must not modify.
    net, x, y = torch_step.build(a.model, a.batch, inplace=not a.official)
    size = a.batch // a.chunks
    cut, shape = torch_step.in_precision(a.precision, half_way)(net, x[:size])
    agreed = torch.tensor([cut])
    dist.broadcast(agreed, 0)
    if agreed.item() != cut:  # the other process measured another time; its result counts
        cut = agreed.item()
        with torch.no_grad():
            shape = net[:cut](x[:size]).shape
    stage = net[cut:] if rank else net[:cut]
    opt = torch_step.optimizer(a.optimizer, stage.parameters())
    run, dtype = stage, torch.float32
    if a.precision == "bf16":
        dtype = torch.bfloat16
        run = in_autocast(stage, torch.float32 if rank else dtype)
    run = torch_step.compiled(run) if a.compile else run
    if a.official:
        half = Official(a, rank, run, x, y)
    else:
        half = Half(dist, rank, run, shape, dtype, x.split(size), y.split(size))

    def step():
        opt.zero_grad(set_to_none=True)
        half.step()
        opt.step()

    for _ in range(a.warmup):
        step()
    rates = []
    for _ in range(a.repeats):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(a.steps):
            step()
        dist.barrier()
        rates.append(a.batch * a.steps / (time.perf_counter() - start))
    if rank == 1:
        results.put({"model": a.model, "about": "PyTorch " + torch.__version__, "batch": a.batch,
                     "chunks": a.chunks, "pin": a.pin, "compile": a.compile,
                     "official": a.official, "steps": a.steps, "repeats": a.repeats,
                     "precision": a.precision, "optimizer": a.optimizer,
                     "modules": [cut, len(net) - cut], "loss": half.loss,
                     "samples_per_s": max(rates), "median_samples_per_s": statistics.median(rates)})
    dist.destroy_process_group()


def main():
    a = parse()
    torch_step.tune(1)
    import torch
    import torch.multiprocessing as mp
    if a.official and importlib.util.find_spec("torch.distributed.pipelining") is None:
        sys.exit("torch_pipeline.py: PyTorch %s has no torch.distributed.pipelining"
                 % torch.__version__)
    results = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, args=(a, os.path.join(folder, "store"), results), nprocs=2, join=True)
    print(json.dumps(results.get()))


if __name__ == "__main__":
    main()
