"""Decisions that rounding can turn: which units of a relu are on, which input a max pool takes.

A relu whose input is zero but for rounding may be on in one program and off in another; so with
two almost equal inputs of a max pool. Both are right, but one such case in a million moves the
gradients of a deep network by more than 1e-3: torch in float differs from torch in double by 2e-2
on resnet50, and by 1e-4 once it takes the same decisions. So the close ones, and only those, are
settled the way they were in the program under test, from the last layer to the first: a flip
changes all gradients before it. Close is what lies within four times the largest difference that
float and double torch have at that place.
"""
import itertools

import torch
import torch.nn.functional as F


class Recorder:
    """Plain operators that keep their inputs."""

    def __init__(self):
        self.inputs = {}

    def relu(self, x, bias):
        self.inputs.setdefault(bias, []).append(x)
        return x.relu()

    def max_pool(self, x, name, *window):
        self.inputs.setdefault(name, []).append(x)
        return F.max_pool2d(x, *window)


class Call:
    """One use of a relu (mask, close, grad) or of a max pool (chosen, second, close)."""

    def __init__(self, rounding):
        self.rounding = rounding

    def exchange(self, windows):
        for index in windows:
            self.chosen[index], self.second[index] = self.second[index].item(), self.chosen[index].item()


class Relu(torch.autograd.Function):
    """The mask in `call` may be changed before a backward."""

    @staticmethod
    def forward(ctx, x, call):
        ctx.call = call
        call.mask = x > 0
        call.close = (x.abs() < call.rounding).nonzero()
        return x * call.mask

    @staticmethod
    def backward(ctx, grad):
        ctx.call.grad = grad[tuple(ctx.call.close.T)]
        return grad * ctx.call.mask, None


class MaxPool(torch.autograd.Function):
    """The places in call.chosen may be exchanged for those in call.second before a backward."""

    @staticmethod
    def forward(ctx, x, call, kernel, stride, pad):
        padded = F.pad(x, (pad,) * 4, value=-torch.inf)
        windows = padded.unfold(2, kernel, stride).unfold(3, kernel, stride).flatten(4)
        top, which = windows.topk(2)
        rows = torch.arange(windows.shape[2])[:, None, None] * stride + which.div(kernel, rounding_mode="floor")
        columns = torch.arange(windows.shape[3])[:, None] * stride + which % kernel
        call.chosen, call.second = (rows * padded.shape[3] + columns).unbind(-1)
        # Where the largest is zero, the relu before it lets no gradient through anyway.
        call.close = ((top[..., 0] - top[..., 1] < call.rounding) & (top[..., 0] > 0)).nonzero()
        ctx.call, ctx.pad, ctx.padded_shape = call, pad, padded.shape
        return top[..., 0]

    @staticmethod
    def backward(ctx, grad):
        full = grad.new_zeros(ctx.padded_shape).flatten(2)
        full.scatter_add_(2, ctx.call.chosen.flatten(2), grad.flatten(2))
        full, pad = full.view(ctx.padded_shape), ctx.pad
        return full[:, :, pad:full.shape[2] - pad, pad:full.shape[3] - pad], None, None, None, None


class Decisions:
    """`rough` are the inputs of the same operators in float. Calls are kept by name (a relu's is
    that of the bias before it), one for each micro-batch, in the order of the network."""

    def __init__(self, rough):
        self.rough, self.calls, self.n_flips = rough, {}, 0

    def call(self, x, name):
        calls = self.calls.setdefault(name, [])
        error = (x.detach() - self.rough[name][len(calls)]).abs().max()
        calls.append(Call(4 * error))
        return calls[-1]

    def relu(self, x, bias):
        return Relu.apply(x, self.call(x, bias))

    def max_pool(self, x, name, kernel, stride, pad):
        return MaxPool.apply(x, self.call(x, name), kernel, stride, pad)

    def settle(self, ours, backward):
        """The gradients with all close decisions as `ours` has them."""
        grads = backward()
        for name in reversed(self.calls):
            settle = self.settle_relu if name in ours else self.settle_pool
            grads = settle(name, ours, grads, backward)
        return grads

    def settle_relu(self, bias, ours, grads, backward):
        """A unit adds its own gradient to that of the bias, or does not: find who does, by channel."""
        gap, units, flips = ours[bias].double() - grads[bias], {}, []
        for call in self.calls[bias]:
            for index, grad in zip(map(tuple, call.close.tolist()), call.grad.tolist()):
                units.setdefault(index[1], []).append((call, index, -grad if call.mask[index] else grad))
        for channel, few in units.items():
            sets = [s for n in range(min(len(few), 8) + 1) for s in itertools.combinations(few[:8], n)]
            flips += min(sets, key=lambda s: abs(gap[channel].item() - sum(effect for _, _, effect in s)))
        for call, index, _ in flips:
            call.mask[index] = ~call.mask[index]
        self.n_flips += len(flips)
        return backward() if flips else grads

    def settle_pool(self, name, ours, grads, backward):
        """What a pool takes shows most in one row of a weight: that of the channel it pools."""
        for call in self.calls[name]:
            pairs = {}  # windows overlap: those that choose between the same two go together
            for index in map(tuple, call.close.tolist()):
                two = frozenset((call.chosen[index].item(), call.second[index].item()))
                pairs.setdefault((index[:2], two), []).append(index)
            for windows in pairs.values():
                call.exchange(windows)
                trial = backward()
                weight, row = most_changed(grads, trial)
                before, after = (ours[weight][row] - g[weight][row] for g in (grads, trial))
                if after.norm() < before.norm():
                    grads, self.n_flips = trial, self.n_flips + 1
                else:
                    call.exchange(windows)
        return grads


def most_changed(before, after):
    """Name and row of the convolution weight whose gradient differs most, as a part of its norm."""
    most = (0.0, None, 0)
    for k, g in before.items():
        if g.dim() == 4:
            norms = g.flatten(1).norm(dim=1)
            change = (after[k] - g).flatten(1).norm(dim=1) / norms.clamp_min(1e-2 * norms.median())
            most = max(most, (change.max().item(), k, change.argmax().item()))
    return most[1:]
