"""The networks of docs/models.md in plain PyTorch, written from that page alone.

A network is a function of a dictionary of parameters (by Forerun's names) and a batch, and
returns logits. Depths and widths follow from the parameters that are there.
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.stateless import functional_call

NETWORKS = {}


HOW = None  # takes the decisions of relu and max_pool: something of decisions.py


def relu(x, bias):
    """`bias` is the parameter that is added last before it: its gradient shows which units are on."""
    return HOW.relu(x, bias)


def max_pool(x, name, kernel, stride=None, pad=0):
    return HOW.max_pool(x, name, kernel, stride or kernel, pad)


def network(function):
    NETWORKS[function.__name__] = function
    return function


class Batch:
    """One micro-batch and what the parameters cannot tell."""

    def __init__(self, x, length=None, heads=0):
        self.x, self.length, self.heads = x, length, heads

    @property
    def is_large(self):
        return self.x.shape[-1] >= 128


def indices(p, pattern):
    """0, 1, ... as long as there is a parameter of that name."""
    i = 0
    while pattern % i in p:
        yield i
        i += 1


def linear(p, x, name):
    return F.linear(x, p[name + ".weight"], p.get(name + ".bias"))


def linear_relu(p, x, name):
    return relu(linear(p, x, name), name + ".bias")


def conv(p, x, name, stride=1, pad=0):
    return F.conv2d(x, p[name + ".weight"], p.get(name + ".bias"), stride, pad)


def batch_norm(p, x, name, eps=1e-5):
    return F.batch_norm(x, None, None, p[name + ".weight"], p[name + ".bias"], training=True, eps=eps)


def conv_norm_relu(p, x, conv_name, norm_name, stride=1, pad=0, eps=1e-5):
    return relu(batch_norm(p, conv(p, x, conv_name, stride, pad), norm_name, eps), norm_name + ".bias")


def layer_norm(p, x, name):
    return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], 1e-5)


@network
def mlp(p, b):
    x = b.x.flatten(1)
    for i in indices(p, "fc.%d.weight"):
        x = linear_relu(p, x, f"fc.{i}")
    return linear(p, x, "head")


@network
def snn(p, b):
    x = b.x.flatten(1)
    for i in indices(p, "fc.%d.weight"):
        x = F.selu(linear(p, x, f"fc.{i}"))
    return linear(p, x, "head")


@network
def lenet(p, b):
    pad = 2 if b.x.shape[-1] < 32 else 0
    x = max_pool(relu(conv(p, b.x, "conv1", pad=pad), "conv1.bias"), "pool1", 2)
    x = max_pool(relu(conv(p, x, "conv2"), "conv2.bias"), "pool2", 2).flatten(1)
    return linear(p, linear_relu(p, linear_relu(p, x, "fc1"), "fc2"), "fc3")


@network
def cnn(p, b):
    x = b.x
    for block, n in ((1, 2), (2, 3), (3, 3)):
        for i in range(n):
            name = f"block{block}.{i}"
            x = conv_norm_relu(p, x, name + ".conv", name + ".bn", pad=1)
        if block < 3:
            x = max_pool(x, f"pool{block}", 2)
    return linear(p, x.mean((2, 3)), "fc")


@network
def alexnet(p, b):
    first, pool = (dict(stride=4, pad=2), (3, 2)) if b.is_large else (dict(pad=1), (2, 2))
    x = b.x
    for i, window in enumerate((first, dict(pad=2), dict(pad=1), dict(pad=1), dict(pad=1))):
        name = f"features.{i}"
        if name + ".bn.weight" in p:
            x = conv_norm_relu(p, x, name + ".conv", name + ".bn", **window)
        else:
            x = relu(conv(p, x, name + ".conv", **window), name + ".conv.bias")
        if i in (0, 1, 4):
            x = max_pool(x, f"pool{i}", *pool)
    x = linear_relu(p, linear_relu(p, x.flatten(1), "classifier.1"), "classifier.4")
    return linear(p, x, "classifier.6")


@network
def vgg16(p, b):
    x, n = b.x, 0
    for count in (2, 2, 3, 3, 3):
        for _ in range(count):
            x, n = conv(p, x, f"features.{n}", pad=1), n + 1
            if p.get(f"features.{n}.weight", x).dim() == 1:
                x, n = batch_norm(p, x, f"features.{n}"), n + 1
            x, n = relu(x, f"features.{n - 1}.bias"), n + 1
        x, n = max_pool(x, f"pool{n}", 2) if x.shape[-1] > 1 else x, n + 1
    x = x.flatten(1)
    if not b.is_large:
        return linear(p, x, "classifier")
    x = linear_relu(p, linear_relu(p, x, "classifier.0"), "classifier.3")
    return linear(p, x, "classifier.6")


def bottleneck(p, x, name, stride):
    y = conv_norm_relu(p, x, name + ".conv1", name + ".bn1")
    y = conv_norm_relu(p, y, name + ".conv2", name + ".bn2", stride, 1)
    y = batch_norm(p, conv(p, y, name + ".conv3"), name + ".bn3")
    if name + ".downsample.0.weight" in p:
        x = batch_norm(p, conv(p, x, name + ".downsample.0", stride), name + ".downsample.1")
    return relu(x + y, name + ".bn3.bias")


@network
def resnet50(p, b):
    x = conv_norm_relu(p, b.x, "conv1", "bn1", *((2, 3) if b.is_large else (1, 1)))
    if b.is_large:
        x = max_pool(x, "maxpool", 3, 2, 1)
    for layer in range(1, 5):
        for i in indices(p, f"layer{layer}.%d.conv1.weight"):
            x = bottleneck(p, x, f"layer{layer}.{i}", 2 if layer > 1 and i == 0 else 1)
    return linear(p, x.mean((2, 3)), "fc")


NETWORKS["resnet101"] = NETWORKS["resnet152"] = resnet50


class Inception:
    """Blocks are written as in the paper's tables: a branch is a chain of units."""

    def __init__(self, p):
        self.p = p

    def unit(self, x, name, stride=1, pad=0):
        return conv_norm_relu(self.p, x, name + ".conv", name + ".bn", stride, pad, 1e-3)

    def chain(self, x, block, *units):
        for name, stride, pad in units:
            x = self.unit(x, f"{block}.{name}", stride, pad)
        return x

    def pooled(self, x, block):
        return self.unit(F.avg_pool2d(x, 3, 1, 1), block + ".branch_pool")

    def a(self, x, block):
        return torch.cat([
            self.chain(x, block, ("branch1x1", 1, 0)),
            self.chain(x, block, ("branch5x5_1", 1, 0), ("branch5x5_2", 1, 2)),
            self.chain(x, block, ("branch3x3dbl_1", 1, 0), ("branch3x3dbl_2", 1, 1), ("branch3x3dbl_3", 1, 1)),
            self.pooled(x, block)], 1)

    def b(self, x, block):
        return torch.cat([
            self.chain(x, block, ("branch3x3", 2, 0)),
            self.chain(x, block, ("branch3x3dbl_1", 1, 0), ("branch3x3dbl_2", 1, 1), ("branch3x3dbl_3", 2, 0)),
            max_pool(x, block + ".branch_pool", 3, 2)], 1)

    def c(self, x, block):
        row, column = (0, 3), (3, 0)
        return torch.cat([
            self.chain(x, block, ("branch1x1", 1, 0)),
            self.chain(x, block, ("branch7x7_1", 1, 0), ("branch7x7_2", 1, row), ("branch7x7_3", 1, column)),
            self.chain(x, block, ("branch7x7dbl_1", 1, 0), ("branch7x7dbl_2", 1, column), ("branch7x7dbl_3", 1, row),
                       ("branch7x7dbl_4", 1, column), ("branch7x7dbl_5", 1, row)),
            self.pooled(x, block)], 1)

    def d(self, x, block):
        return torch.cat([
            self.chain(x, block, ("branch3x3_1", 1, 0), ("branch3x3_2", 2, 0)),
            self.chain(x, block, ("branch7x7x3_1", 1, 0), ("branch7x7x3_2", 1, (0, 3)), ("branch7x7x3_3", 1, (3, 0)),
                       ("branch7x7x3_4", 2, 0)),
            max_pool(x, block + ".branch_pool", 3, 2)], 1)

    def e(self, x, block):
        y = self.chain(x, block, ("branch3x3_1", 1, 0))
        z = self.chain(x, block, ("branch3x3dbl_1", 1, 0), ("branch3x3dbl_2", 1, 1))
        row, column = (0, 1), (1, 0)
        return torch.cat([
            self.chain(x, block, ("branch1x1", 1, 0)),
            self.chain(y, block, ("branch3x3_2a", 1, row)), self.chain(y, block, ("branch3x3_2b", 1, column)),
            self.chain(z, block, ("branch3x3dbl_3a", 1, row)), self.chain(z, block, ("branch3x3dbl_3b", 1, column)),
            self.pooled(x, block)], 1)


@network
def inception3(p, b):
    net = Inception(p)
    stride, pad = (2, 0) if b.is_large else (1, 1)
    x = net.unit(b.x, "Conv2d_1a_3x3", stride, pad)
    x = net.unit(net.unit(x, "Conv2d_2a_3x3", 1, pad), "Conv2d_2b_3x3", 1, 1)
    x = net.unit(max_pool(x, "maxpool1", 3, 2, pad), "Conv2d_3b_1x1")
    x = net.unit(x, "Conv2d_4a_3x3", 1, pad)
    if b.is_large:
        x = max_pool(x, "maxpool2", 3, 2)
    for kind, blocks in (("a", "5b 5c 5d"), ("b", "6a"), ("c", "6b 6c 6d 6e"), ("d", "7a"), ("e", "7b 7c")):
        for block in blocks.split():
            x = getattr(net, kind)(x, "Mixed_" + block)
    return linear(p, x.mean((2, 3)), "fc")


def block(p, x, name, heads, **masks):
    """A pre-norm transformer block around torch's own multi-head attention."""
    width = x.shape[-1]
    attention = nn.MultiheadAttention(width, heads, batch_first=True, dtype=x.dtype)
    weights = {"in_proj_weight": p[name + ".attn.qkv.weight"], "in_proj_bias": p[name + ".attn.qkv.bias"],
               "out_proj.weight": p[name + ".attn.proj.weight"], "out_proj.bias": p[name + ".attn.proj.bias"]}
    y = layer_norm(p, x, name + ".ln_1")
    x = x + functional_call(attention, weights, (y, y, y), dict(masks, need_weights=False))[0]
    y = F.gelu(linear(p, layer_norm(p, x, name + ".ln_2"), name + ".mlp.up"), approximate="tanh")
    return x + linear(p, y, name + ".mlp.down")


def embedded(p, ids):
    x = F.embedding(ids, p["embed.weight"])
    return x + p["embed.position"][:ids.shape[1]] if "embed.position" in p else x


def padding(b):
    """(batch, time), true beyond the length of a sample."""
    return torch.arange(b.x.shape[1])[None, :] >= b.length[:, None]


def mean_over_valid(x, b):
    return x.masked_fill(padding(b)[:, :, None], 0).sum(1) / b.length[:, None].to(x.dtype)


@network
def gpt(p, b):
    x = embedded(p, b.x)
    future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    for i in indices(p, "h.%d.ln_1.weight"):
        x = block(p, x, f"h.{i}", b.heads, attn_mask=future)
    x = layer_norm(p, x, "ln_f")
    return linear(p, x, "head") if "head.weight" in p else F.linear(x, p["embed.weight"])


@network
def transformer(p, b):
    x = embedded(p, b.x)
    for i in indices(p, "h.%d.ln_1.weight"):
        x = block(p, x, f"h.{i}", b.heads, key_padding_mask=padding(b))
    return linear(p, mean_over_valid(layer_norm(p, x, "ln_f"), b), "head")


def lstm(p, x, name):
    weights = [p[f"{name}.{k}"] for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    hidden, out = p[name + ".weight_ih"].shape[0] // 4, p[name + ".weight_hh"].shape[1]
    if name + ".weight_hr" in p:
        weights.append(p[name + ".weight_hr"])
    start = x.new_zeros(1, x.shape[0], out), x.new_zeros(1, x.shape[0], hidden)
    return torch.lstm(x, start, weights, True, 1, 0.0, True, False, True)[0]


@network
def reslstm(p, b):
    x = embedded(p, b.x)
    for i in indices(p, "layers.%d.lstm.weight_ih"):
        x = x + lstm(p, x, f"layers.{i}.lstm")
    return linear(p, mean_over_valid(x, b), "head")


@network
def biglstm(p, b):
    x = embedded(p, b.x)
    for i in indices(p, "layers.%d.lstm.weight_ih"):
        x = lstm(p, x, f"layers.{i}.lstm")
    return linear(p, x, "head")


def reversed_valid(x, b):
    """The first `length` steps of each sample the other way round."""
    return torch.stack([torch.cat((s[:n].flip(0), s[n:])) for s, n in zip(x, b.length.tolist())])


@network
def gnmt(p, b):
    steps = b.x.shape[1] // 2
    x = F.embedding(b.x[:, :steps], p["encoder.embed.weight"])
    back = lstm(p, reversed_valid(x, b), "encoder.0.lstm_back")
    x = torch.cat((lstm(p, x, "encoder.0.lstm"), reversed_valid(back, b)), -1)
    for i in indices(p, "encoder.%d.lstm.weight_ih"):
        if i > 0:
            y = lstm(p, x, f"encoder.{i}.lstm")
            x = x + y if i > 1 else y
    keys, values = linear(p, x, "attention.kv").chunk(2, -1)
    x = lstm(p, F.embedding(b.x[:, steps:], p["decoder.embed.weight"]), "decoder.0.lstm")
    scores = linear(p, x, "attention.q") @ keys.transpose(1, 2) / keys.shape[-1] ** 0.5
    hidden = torch.arange(steps)[None, None, :] >= b.length[:, None, None]
    context = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ values
    for i in indices(p, "decoder.%d.lstm.weight_ih"):
        if i > 0:
            y = lstm(p, torch.cat((x, context), -1), f"decoder.{i}.lstm")
            x = x + y if i > 1 else y
    if "decoder.1.lstm.weight_ih" not in p:
        x = torch.cat((x, context), -1)
    return linear(p, x, "head")
