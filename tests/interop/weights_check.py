"""Forerun and PyTorch on the same weights: the same loss, and the same tensors after a round trip.

    weights_check.py FORERUN FOLDER [NETWORK...]

For each network PyTorch saves weights with random running statistics. Forerun must have its loss on
the same samples (eval, within 1e-5), and its export must hold the same bytes under the same names.
After some updates PyTorch opens the export and must have Forerun's loss.
"""
import json
import os
import subprocess
import sys

import numpy as np
import torch
import torch.nn.functional as F
import torchvision
import transformers
from safetensors.torch import load_file, save_file

FORERUN, FOLDER = sys.argv[1:3]
NAMES = sys.argv[3:] or ["gpt2", "resnet50", "alexnet", "vgg16"]
LIMIT = 1e-5


def forerun(*words):
    done = subprocess.run([FORERUN, *words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit("forerun %s: %s" % (" ".join(words), done.stderr))
    return done.stdout


def config(path, model, weights, out, more=""):
    with open(path, "w") as f:
        f.write("model: {%s, weights: %s}\n" % (model, weights))
        f.write("data: {name: npy, input: x.npy, target: y.npy, eval_input: x.npy, eval_target: y.npy}\n")
        f.write("train: {batch: 2, steps: 2, optimizer: {name: sgd, lr: 0.001}%s}\n" % more)
        f.write("run: {out: %s, predict: false}\n" % out)
    return path


def eval_loss(path, *words):
    return json.loads(forerun("eval", path, "--json", *words))["eval_loss"]


def judge(what, ours, theirs):
    print("%-28s forerun %.7f  torch %.7f  difference %.1e" % (what, ours, theirs, abs(ours - theirs)))
    if not abs(ours - theirs) <= LIMIT * max(1, abs(theirs)):
        sys.exit("%s: the losses differ" % what)


def tensors(folder):
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            found.update(load_file(os.path.join(folder, name)))
    return found


def same(what, a, b):
    if set(a) != set(b):
        sys.exit("%s: other names: %s" % (what, sorted(set(a) ^ set(b))[:5]))
    for name in a:
        x, y = a[name].contiguous(), b[name].contiguous()
        if x.dtype != y.dtype or x.shape != y.shape or not torch.equal(x.view(torch.uint8) if x.dim() else x,
                                                                      y.view(torch.uint8) if y.dim() else y):
            sys.exit("%s: %s differs" % (what, name))
    print("%-28s %d tensors, byte for byte" % (what + ", there and back", len(a)))


def loss_of(model, x, y, classes):
    with torch.no_grad():
        logits = model(x)
    logits = getattr(logits, "logits", logits)
    return F.cross_entropy(logits.double().reshape(-1, classes), y.reshape(-1)).item()


def gpt2():
    vocab, context = 300, 24
    net = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=vocab, n_positions=32, n_embd=48, n_layer=3, n_head=4, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0, bos_token_id=None, eos_token_id=None)).eval()
    for p in net.parameters():
        p.data += 0.1 * torch.randn_like(p)
    tokens = torch.randint(0, vocab, (8, context + 1))
    x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    np.save("x.npy", x.numpy().astype(np.int32))
    np.save("y.npy", y.numpy().astype(np.int32))
    model = "name: gpt, layers: 3, width: 48, heads: 4, context: %d, positions: 32, vocab: %d, tied: true" % (
        context, vocab)
    for kind, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16), ("f16", torch.float16)):
        folder = "gpt2-" + kind
        net.to(dtype).save_pretrained(folder, max_shard_size="100KB")
        path = config(folder + ".yaml", model, folder, "runs/" + folder)
        judge("gpt2 " + kind, eval_loss(path), loss_of(net.float(), x, y, vocab))
        forerun("export", path, "--out", folder + "-back", "--dtype", kind, "--shard-size", "50KB")
        same("gpt2 " + kind, tensors(folder), tensors(folder + "-back"))
    forerun("train", path, "--quiet", "--set", "train.optimizer.lr=0.1")
    forerun("export", path, "--out", "gpt2-trained")
    again = transformers.GPT2LMHeadModel.from_pretrained("gpt2-trained").eval()
    judge("gpt2 trained", eval_loss(path), loss_of(again, x, y, vocab))


def images(name, size, classes=1000):
    net = getattr(torchvision.models, name)(num_classes=classes).eval()
    for m in net.modules():
        if isinstance(m, torch.nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.5, 2)
            m.num_batches_tracked += 17
    x, y = torch.randn(4, 3, size, size), torch.randint(0, classes, (4,))
    np.save("x.npy", x.numpy())
    np.save("y.npy", y.numpy().astype(np.int32))
    save_file(net.state_dict(), name + ".safetensors")
    path = config(name + ".yaml", "name: %s, classes: %d, image: %d" % (name, classes, size),
                  name + ".safetensors", "runs/" + name)
    judge(name, eval_loss(path), loss_of(net, x, y, classes))
    forerun("export", path, "--out", name + "-back", "--shard-size", "80MB")
    same(name, load_file(name + ".safetensors"), tensors(name + "-back"))
    if name != "vgg16":  # its updates take long
        forerun("train", path, "--quiet")
        forerun("export", path, "--out", name + "-trained")
        net.load_state_dict(tensors(name + "-trained"))
        judge(name + " trained", eval_loss(path), loss_of(net, x, y, classes))
    for suffix in (".safetensors", "-back", "-trained", ""):
        subprocess.run(["rm", "-rf", (("runs/" + name) if not suffix else name + suffix)], check=True)


FORERUN = os.path.abspath(FORERUN)
os.chdir(FOLDER)
torch.manual_seed(3)
for network in NAMES:
    if network == "gpt2":
        gpt2()
    else:
        images(network, 128 if network.startswith("resnet") else 224)
print("weights agree with PyTorch %s" % torch.__version__)
