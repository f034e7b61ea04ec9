"""Layers whose products round to MXFP8, in plain PyTorch in float64: tests compare layers of Sluice with them.

The quantiser follows docs/PRECISION.md, and shares no code with Sluice's.
"""

import dataclasses
import itertools

import torch

# Bits of the mantissa, the least exponent of a normal number, and the exponent of the largest one, 1.75 times its power.
E4M3, E5M2 = (3, -6, 8), (2, -14, 15)


def _exponent(x):
    """floor(log2 |x|); any number for 0."""
    return torch.frexp(x)[1] - 1


def nearest(x, format):
    """The nearest numbers of an 8-bit float, ties to even, cut at the largest."""
    bits, least, most = format
    step = torch.ldexp(torch.ones_like(x), torch.clamp(_exponent(x), min=least) - bits)
    return (torch.round(x / step) * step).clamp(-1.75 * 2.0**most, 1.75 * 2.0**most)


def quantise(x, along, format, floor, square=False):
    """x [R, C] in blocks of 32 along a dimension, the last one maybe shorter, or in squares."""
    if along == 0:
        return quantise(x.T, 1, format, floor, square).T
    rows, columns = x.shape
    padded = torch.nn.functional.pad(x, (0, -columns % 32))
    blocks = padded.view(rows, -1, 32)
    amax = blocks.abs().amax(-1)
    if square:
        amax = amax.view(rows // 32, 32, -1).amax(1).repeat_interleave(32, 0)
    mantissa, exponent = torch.frexp(amax)
    most = format[2]
    e = exponent - 1 - most + (torch.zeros_like(exponent) if floor else (2 * mantissa > 1.75).int())
    e = e.clamp(-126 - (format[1] - format[0]), 127 - most)
    power = torch.ldexp(torch.ones_like(amax), e)[..., None]
    return (nearest(blocks / power, format) * power).view(rows, -1)[:, :columns]


def as_bf16(x):
    return x.bfloat16().double()


@dataclasses.dataclass(frozen=True)
class Rounding:
    """How products round."""

    squares: bool = False
    hybrid: bool = False
    floor: bool = False

    @property
    def encode(self):
        """What says so to a layer."""
        floor = ":floor" * self.floor
        return "mxfp8" + ":32x32" * self.squares + floor + (",grads=mxfp8e5m2" + floor) * self.hybrid

    def _inputs(self, x, along, square=False):
        return quantise(x, along, E4M3, self.floor, square)

    def rows(self, x):
        """What a product multiplies x [R, C] as."""
        return self._inputs(x.double(), 1)

    def weight(self, weight, along):
        return self._inputs(weight, along, self.squares)

    def grads(self, grads, along):
        return quantise(grads, along, E5M2 if self.hybrid else E4M3, self.floor)

    def product(self, rows, weight):
        """rows [R, C] times weight [N, C] transposed."""
        return self._inputs(rows, 1) @ self.weight(weight, 1).T

    def product_grad(self, grads, weight):
        """The gradient of rows."""
        return self.grads(grads, 1) @ self.weight(weight, 0)

    def weight_grad(self, grads, rows):
        return self.grads(grads, 0).T @ self._inputs(rows, 0)

    def layer(self, x, ids, expert_weights, gate_up, down, dy) -> list:
        """y and the gradients of x, expert_weights, gate_up [E, 2I, H] and down [E, H, I] of a layer with swiglu. An
        expert's rows are in the order of tokens."""
        x, expert_weights, gate_up, down, dy = (each.detach().double() for each in (x, expert_weights, gate_up, down, dy))
        y, dx, of_weights = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(expert_weights)
        of_gate_up, of_down = torch.zeros_like(gate_up), torch.zeros_like(down)
        for expert in range(len(gate_up)):
            token, k = (ids == expert).nonzero(as_tuple=True)
            rows, weight, grads = x[token], expert_weights[token, k][:, None], dy[token]
            product = as_bf16(self.product(rows, gate_up[expert])).requires_grad_()
            gate, up = product.chunk(2, 1)
            act = torch.nn.functional.silu(gate) * up
            kept = as_bf16(act.detach())
            y.index_add_(0, token, as_bf16(self.product(kept, down[expert])) * weight)
            act_grad = as_bf16(self.product_grad(grads, down[expert]))
            of_weights[token, k] = (act_grad * kept).sum(1)
            of_product = as_bf16(torch.autograd.grad(act, product, act_grad * weight)[0])
            dx.index_add_(0, token, as_bf16(self.product_grad(of_product, gate_up[expert])))
            of_gate_up[expert] = self.weight_grad(of_product, rows)
            of_down[expert] = self.weight_grad(as_bf16(grads * weight), kept)
        return [y, dx, of_weights, of_gate_up, of_down]

    def linear(self, x, weight, dy) -> list:
        """y and the gradients of x [R, C] and weight [N, C]."""
        x, weight, dy = (each.detach().double() for each in (x, weight, dy))
        return [self.product(x, weight), self.product_grad(dy, weight), self.weight_grad(dy, x)]


ALL = [Rounding(*each) for each in itertools.product((False, True), repeat=3)]
