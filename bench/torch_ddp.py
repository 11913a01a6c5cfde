#!/usr/bin/python3
"""PyTorch's DistributedDataParallel over gloo: processes of one thread, each with a share of the
batch.

    bench/torch_ddp.py --model mlp|vgg16|gpt [--procs N] [--pin] [--batch N] [--steps N]
                       [--repeats N] [--warmup N] [--rank R --rendezvous tcp://HOST:PORT]

Networks, batches and optimizer are those of torch_step.py; --batch is the total of all processes.
--rank: run this process only; the others are started separately (GLOO_SOCKET_IFNAME: its
interface). Rank 0 prints one JSON object with the keys that bench/dp.py and bench/network.py read.
"""
import argparse
import json
import os
import statistics
import tempfile
import time

import torch_step


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--model", choices=tuple(torch_step.BATCH), required=True)
    p.add_argument("--mode", choices=("ddp",), default="ddp")
    p.add_argument("--procs", type=int, default=2)
    p.add_argument("--threads", type=int, default=1, help="of each process")
    p.add_argument("--pin", action="store_true", help="process r on core r")
    p.add_argument("--batch", type=int)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--repeats", type=int, default=5)
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--rank", type=int)
    p.add_argument("--rendezvous")
    a = p.parse_args()
    a.batch = a.batch or torch_step.BATCH[a.model]
    if a.batch % a.procs:
        p.error("--batch must be a multiple of --procs")
    if (a.rank is None) != (a.rendezvous is None):
        p.error("--rank and --rendezvous go together")
    return a


def work(rank, a, meeting):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    torch.set_num_threads(a.threads)
    if a.pin:
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=a.procs)
    net, x, y = torch_step.build(a.model, a.batch)
    share = a.batch // a.procs
    x, y = x[rank * share:(rank + 1) * share], y[rank * share:(rank + 1) * share]
    # A view: gradients are computed in the send buffer, which saves a copy.
    ddp = DistributedDataParallel(net, gradient_as_bucket_view=True)
    opt = torch_step.optimizer("sgd", ddp.parameters())

    def step():
        opt.zero_grad(set_to_none=True)
        loss = torch_step.loss_of(ddp(x), y)
        loss.backward()
        opt.step()
        return loss

    for _ in range(a.warmup):
        step()
    rates = []
    for _ in range(a.repeats):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(a.steps):
            loss = step()
        dist.barrier()
        rates.append(a.batch * a.steps / (time.perf_counter() - start))
    if rank == 0:
        print(json.dumps({
            "model": a.model, "about": "PyTorch " + torch.__version__, "batch": a.batch,
            "procs": a.procs, "threads": a.threads, "pin": a.pin, "steps": a.steps,
            "repeats": a.repeats, "loss": loss.item(), "samples_per_s": max(rates),
            "median_samples_per_s": statistics.median(rates)}), flush=True)
    dist.destroy_process_group()


def main():
    a = parse()
    torch_step.tune(a.threads)
    if a.rank is not None:
        return work(a.rank, a, a.rendezvous)
    import torch.multiprocessing as mp
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, args=(a, "file://" + os.path.join(folder, "store")), nprocs=a.procs)


if __name__ == "__main__":
    main()
