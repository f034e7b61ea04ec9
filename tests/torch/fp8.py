"""Layers whose products round to FP8 with a scale per tensor, in plain PyTorch in float64: tests compare layers of Sluice
with them.

The quantiser follows docs/PRECISION.md and the rules of delayed scaling docs/ENCODINGS.md; they share no code with Sluice's.
"""

import dataclasses

import torch
from mxfp8 import E4M3, E5M2, as_bf16, nearest

LARGEST = {E4M3: 448.0, E5M2: 57344.0}
ROWS, GRADS = ("rows_x", "act"), ("rows_dy", "gate_up_grad")


def factor(amax, format):
    """s of an amax, a number or a tensor, rounded to float32."""
    amax = torch.as_tensor(amax).double()
    usable = torch.isfinite(amax) & (amax >= 2.0**-110)
    return torch.where(usable, LARGEST[format] / torch.where(usable, amax, 1.0), 1.0).float()


def codes(x, amax, format):
    return nearest((x.float() * factor(amax, format)).double(), format)


def quantise(x, amax, format):
    """The numbers that codes of x stand for."""
    return codes(x, amax, format) * factor(amax, format).reciprocal().double()


def amax_of(x, dim=None):
    finite = torch.where(torch.isfinite(x), x, 0.0).abs()
    if not finite.numel():
        return torch.zeros((), dtype=torch.float64)
    return finite.max() if dim is None else finite.amax(dim)


@dataclasses.dataclass(frozen=True)
class Rounding:
    hybrid: bool = False
    tp: int = 1  # ranks that share each expert, each of which scales its part

    def encode(self, amaxes=""):
        """What says so to a layer, with ":delayed" or nothing."""
        return "fp8e4m3" + amaxes + ",grads=fp8e5m2" * self.hybrid

    @property
    def grads(self):
        return E5M2 if self.hybrid else E4M3

    def layer(self, x, ids, expert_weights, gate_up, down, dy, used=None):
        """y and the gradients of x, expert_weights, gate_up [E, 2I, H] and down [E, H, I] of a layer with swiglu; and the
        amaxes of rows and gradients, by name [E]. `used`: the amaxes that scales are for, by name [E], instead of those."""
        x, expert_weights, gate_up, down, dy = (each.detach().double() for each in (x, expert_weights, gate_up, down, dy))
        y, dx, of_weights = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(expert_weights)
        of_gate_up, of_down = torch.zeros_like(gate_up), torch.zeros_like(down)
        found = {name: torch.zeros(len(gate_up), dtype=torch.float64) for name in (*ROWS, *GRADS)}
        columns = down.shape[2] // self.tp

        def parts(amaxes):
            """One amax per column of intermediate, from one per shard."""
            return torch.stack(list(amaxes)).repeat_interleave(columns)

        for expert in range(len(gate_up)):

            def amax(name, rows, expert=expert):
                found[name][expert] = amax_of(rows)
                if used is not None:
                    return used[name][expert]
                if name in ("act", "gate_up_grad") and self.tp > 1:  # each rank has its columns
                    halves = rows.chunk(rows.shape[1] // down.shape[2], 1)
                    own = [torch.cat(shard, 1) for shard in zip(*(half.split(columns, 1) for half in halves))]
                    return parts(map(amax_of, own)).repeat(len(halves))
                return found[name][expert]

            token, k = (ids == expert).nonzero(as_tuple=True)
            rows, weight, grads = x[token], expert_weights[token, k][:, None], dy[token]
            halves = gate_up[expert].chunk(2)
            shards = [torch.cat(each) for each in zip(*(half.split(columns) for half in halves))]
            before = quantise(gate_up[expert], parts(map(amax_of, shards)).repeat(2)[:, None], E4M3)
            after = quantise(down[expert], parts(map(amax_of, down[expert].split(columns, 1))), E4M3)
            rounded = quantise(rows, amax("rows_x", rows), E4M3)
            product = as_bf16(rounded @ before.T).requires_grad_()
            gate, up = product.chunk(2, 1)
            act = torch.nn.functional.silu(gate) * up
            kept = as_bf16(act.detach())
            of_act = amax("act", kept)
            y.index_add_(0, token, as_bf16(quantise(kept, of_act, E4M3) @ after.T) * weight)
            dy_rounded = quantise(grads, amax("rows_dy", grads), self.grads)
            act_grad = as_bf16(dy_rounded @ after)
            of_weights[token, k] = (act_grad * kept).sum(1)
            of_product = as_bf16(torch.autograd.grad(act, product, act_grad * weight)[0])
            product_rounded = quantise(of_product, amax("gate_up_grad", of_product), self.grads)
            dx.index_add_(0, token, as_bf16(product_rounded @ before))
            of_gate_up[expert] = product_rounded.T @ rounded
            weighted = as_bf16(codes(kept, of_act, E4M3) * weight) / factor(of_act, E4M3).double()
            of_down[expert] = dy_rounded.T @ weighted
        return [y, dx, of_weights, of_gate_up, of_down], found

    def linear(self, x, weight, dy, used=None):
        """y and the gradients of x [R, C] and weight [N, C]; and the amaxes of x and dy. `used`: what scales are for."""
        x, weight, dy = (each.detach().double() for each in (x, weight, dy))
        found = amax_of(x), amax_of(dy)
        used = found if used is None else used
        rows, grads = quantise(x, used[0], E4M3), quantise(dy, used[1], self.grads)
        rounded = quantise(weight, amax_of(weight), E4M3)
        return [rows @ rounded.T, grads @ rounded, grads.T @ rows], found


class Rule:
    """Delayed scaling of one tensor, as docs/ENCODINGS.md says it."""

    def __init__(self, length=1024, algorithm="max", margin=0, interval=1):
        self.length, self.algorithm, self.margin, self.interval = length, algorithm, margin, interval
        self.history, self.used, self.steps = [], None, 0

    def add(self, amax):
        self.history = [*self.history, amax][-self.length :]
        if self.used is None:
            self.used = torch.zeros_like(amax)
        if self.steps % self.interval == 0:
            chosen = torch.stack(self.history).max(0).values if self.algorithm == "max" else amax
            self.used = torch.where(chosen > 0, chosen * 2.0**self.margin, self.used)
        self.steps += 1


ALL = [Rounding(), Rounding(hybrid=True)]
