#!/usr/bin/python3
"""PyTorch's training step on the networks of bench_step, for PyTorch 1.13 and 2.x.

    bench/torch_step.py --model mlp|vgg16|gpt|gpt2 [--threads N] [--batch N] [--steps N] [--repeats N]
                        [--precision fp32|bf16] [--optimizer sgd|adamw] [--compile] [--channels-last]

Prints one JSON object with the keys that bench/compare.py reads. Same sizes, same optimizer (sgd has
momentum 0.9), a fixed batch of random numbers; only forward, backward and update are timed. bf16:
forward and loss in torch.autocast, weights and optimizer in fp32. Fused
attention and the fused optimizer are used if this PyTorch has them. The faster of --compile
(torch.compile, 2.x only) and --channels-last depends on model and machine: bench/compare.py and
bench/pipeline.py try them and use the best.
"""
import argparse
import ctypes
import json
import os
import resource
import statistics
import sys
import time

BATCH = {"mlp": 64, "vgg16": 32, "gpt": 16, "gpt2": 4}
GPT2 = {"width": 768, "heads": 12, "context": 64, "vocab": 50257, "n_blocks": 12, "tied": True}


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--model", choices=tuple(BATCH), required=True)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--batch", type=int)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--repeats", type=int, default=5)
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    p.add_argument("--optimizer", choices=("sgd", "adamw"), default="sgd")
    p.add_argument("--compile", action="store_true", help="torch.compile, of PyTorch 2.x")
    p.add_argument("--channels-last", action="store_true", help="vgg16: images as NHWC")
    a = p.parse_args()
    a.batch = a.batch or BATCH[a.model]
    if a.channels_last and a.model != "vgg16":
        p.error("--channels-last is for vgg16, which has images")
    return a


def tune(threads):
    """Libraries read these once, when torch is loaded."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    if threads > 1:
        os.environ.setdefault("OMP_PROC_BIND", "true")
        try:
            blas = ctypes.CDLL("libblas.so.3")
        except OSError:  # wheels contain their own BLAS
            blas = None
        if getattr(blas, "openblas_get_parallel", lambda: 0)() == 1:
            # OpenBLAS with its own threads, which would compete with torch's spinning ones.
            os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    with open("/proc/cpuinfo") as f:
        if "AuthenticAMD" in f.read():  # its default is a slower kernel
            os.environ.setdefault("OPENBLAS_CORETYPE", "Zen")


def mlp(nn, relu, width=2048, depth=8):
    hidden = [m for _ in range(depth) for m in (nn.Linear(width, width), relu())]
    return nn.Sequential(*hidden, nn.Linear(width, 10))


def vgg16(nn, relu):
    layers, channels = [], 3
    for width, n in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(n):
            layers += [nn.Conv2d(channels, width, 3, padding=1), relu()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))


def gpt(torch, nn, width=384, heads=6, context=128, vocab=256, n_blocks=6, tied=False):
    fused = getattr(nn.functional, "scaled_dot_product_attention", None)  # 2.x

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_a, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"),
                                     nn.Linear(4 * width, width))
            future = torch.ones(context, context, dtype=torch.bool).triu(1)
            mask = torch.zeros(context, context).masked_fill(future, float("-inf"))
            self.register_buffer("mask", mask)

        def attend(self, x):
            n = x.shape[0]
            split = self.qkv(x).view(n, context, 3, heads, width // heads)
            q, k, v = split.permute(2, 0, 3, 1, 4)
            if fused:
                mixed = fused(q, k, v, is_causal=True)
            else:
                score = (q * (width // heads) ** -0.5) @ k.transpose(-2, -1) + self.mask
                mixed = score.softmax(-1) @ v
            return self.proj(mixed.transpose(1, 2).reshape(n, context, width))

        def forward(self, x):
            x = x + self.attend(self.norm_a(x))
            return x + self.mlp(self.norm_b(x))

    class Embed(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Embedding(vocab, width)
            self.position = nn.Parameter(torch.randn(context, width) * 0.02)

        def forward(self, ids):
            return self.token(ids) + self.position

    net = nn.Sequential(Embed(), *[Block() for _ in range(n_blocks)], nn.LayerNorm(width),
                        nn.Linear(width, vocab, bias=not tied))
    if tied:
        net[-1].weight = nn.init.normal_(net[0].token.weight, std=0.02)
    return net


def build(model, batch, inplace=True):
    """The network as a flat nn.Sequential, a batch of random numbers, its targets."""
    import torch
    from torch import nn
    torch.manual_seed(1)

    def relu():
        return nn.ReLU(inplace=inplace)

    if model == "mlp":
        return mlp(nn, relu), torch.randn(batch, 2048), torch.randint(10, (batch,))
    if model == "vgg16":
        return vgg16(nn, relu), torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))
    sizes = GPT2 if model == "gpt2" else {"context": 128, "vocab": 256}
    ids = torch.randint(sizes["vocab"], (batch, sizes["context"] + 1))
    return gpt(torch, nn, **sizes), ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def loss_of(logits, target):
    import torch
    return torch.nn.functional.cross_entropy(logits.flatten(0, -2).float(), target.flatten())


def optimizer(name, parameters):
    """Fused if this PyTorch supports it on CPUs (2.4 and later)."""
    import torch
    parameters = list(parameters)
    kind, options = {"sgd": (torch.optim.SGD, {"lr": 1e-3, "momentum": 0.9}),
                     "adamw": (torch.optim.AdamW, {"lr": 1e-3})}[name]
    try:
        return kind(parameters, fused=True, **options)
    except (TypeError, RuntimeError):
        return kind(parameters, **options)


def in_precision(name, call):
    """The call; for bf16 in autocast."""
    import torch
    if name == "fp32":
        return call

    def cast(*args):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return call(*args)
    return cast


def compiled(net):
    import torch
    if not hasattr(torch, "compile"):
        sys.exit("torch_step.py: PyTorch %s has no torch.compile" % torch.__version__)
    return torch.compile(net)


def main():
    a = parse()
    tune(a.threads)
    import torch
    torch.set_num_threads(a.threads)
    net, x, y = build(a.model, a.batch)
    if a.channels_last:
        net, x = (t.to(memory_format=torch.channels_last) for t in (net, x))
    opt = optimizer(a.optimizer, net.parameters())
    run = compiled(net) if a.compile else net
    forward = in_precision(a.precision, lambda: loss_of(run(x), y))

    def step():
        opt.zero_grad(set_to_none=True)
        loss = forward()
        loss.backward()
        opt.step()
        return loss

    for _ in range(a.warmup):
        step()
    rates = []
    for _ in range(a.repeats):
        start = time.perf_counter()
        for _ in range(a.steps):
            loss = step()
        rates.append(a.batch * a.steps / (time.perf_counter() - start))
    print(json.dumps({
        "model": a.model, "about": "PyTorch " + torch.__version__, "threads": a.threads,
        "batch": a.batch, "steps": a.steps, "repeats": a.repeats, "compile": a.compile,
        "precision": a.precision, "optimizer": a.optimizer, "channels_last": a.channels_last,
        "parameters": sum(p.numel() for p in net.parameters()), "loss": loss.item(),
        "samples_per_s": max(rates), "median_samples_per_s": statistics.median(rates),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


if __name__ == "__main__":
    main()
