"""Weights of 8 bits: codes, and a scale for each output channel (docs/PRECISION.md)."""

import torch

from .graphs import scale_name

# Of magnitudes: a channel below it has codes 0.
_LEAST = 2.0**-119


@torch.no_grad()
def quantize(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes int8 [..., out, in] and scale float32 [..., out, 1] of a weight [..., out, in], which is about codes * scale.

    scale = amax / 127 and codes = round(weight * (127 / amax)), ties to even, for the largest magnitude amax of each row.
    ValueError: a weight with NaN or infinity.
    """
    weight = weight.float()
    amax = weight.abs().amax(-1, keepdim=True) if weight.shape[-1] else weight.new_zeros(*weight.shape[:-1], 1)
    if not torch.isfinite(amax).all():
        raise ValueError("a weight with NaN or infinity has no codes")
    tiny = amax < _LEAST
    codes = torch.round(weight * torch.where(tiny, 0.0, 127 / amax)).to(torch.int8)
    return codes, torch.where(tiny, 1.0, amax / 127)


def dequantize(codes: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """codes * scale, rounded once."""
    return (codes * scale).to(dtype)


@torch.no_grad()
def set_expert(layer: torch.nn.Module, row: int, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor):
    """Sets the weights of row `row` of a layer's parameters, an expert or a shard of one: gate and up [I, H] and down
    [H, I]. If the layer has codes, these are made of them."""
    half = layer.gate_up_weight.shape[1] // 2
    for name, rows, given in (
        ("gate_up_weight", slice(0, half), gate),
        ("gate_up_weight", slice(half, 2 * half), up),
        ("down_weight", slice(None), down),
    ):
        weight = getattr(layer, name)
        if weight.dtype == torch.int8:
            given, scale = quantize(given)
            getattr(layer, scale_name(name))[row, rows] = scale
        weight[row, rows] = given
