"""Weights of 8 or 4 bits: codes, and a scale for each output channel or group of it (docs/PRECISION.md)."""

import torch

from .graphs import GROUPS, LayerShape
from .writes import write

# Of magnitudes, or ranges with zeros: a block below it has equal codes.
_LEAST = 2.0**-119
# What codes of 4 bits without zeros count from.
_HALF = 8


@torch.no_grad()
def quantize(weight: torch.Tensor, bits: int = 8, group: int = 0, zeros: bool = False) -> tuple[torch.Tensor, ...]:
    """Codes and float32 scale of a weight [..., out, in], and with `zeros` its float32 zero.

    bits 8  codes int8 [..., out, in], scale [..., out, 1]: the weight is about codes * scale, with
            scale = amax / 127 and codes = round(weight * (127 / amax)), ties to even, for the largest magnitude amax
            of each row.
    bits 4  codes uint8 [..., out, in / 2], two codes 0 to 15 per byte, the first in the lower half. Scale and zero are
            [..., out, in / group], by default one per row. Without zeros the weight is about (code - 8) * scale with
            scale = amax / 7; with them about code * scale + zero with scale = (max - min) / 15 and zero = min.
    ValueError: a weight with NaN or infinity; sizes that do not fit; an unknown option.
    """
    if bits not in (8, 4) or group not in GROUPS or (bits == 8 and (group or zeros)):
        raise ValueError(f"bits={bits}, group={group}, zeros={zeros}: expected 8 bits, or 4 with one of the groups {GROUPS}")
    weight = weight.float()
    length = weight.shape[-1]
    if bits == 4 and length % (group or 2):
        raise ValueError(f"a weight with {length} columns, expected a multiple of {group or 2}")
    if not torch.isfinite(weight).all():
        raise ValueError("a weight with NaN or infinity has no codes")
    blocks = weight.unflatten(-1, (-1, group)) if group else weight.unsqueeze(-2)
    if not length:
        blocks = torch.zeros(*weight.shape[:-1], 1, 1)
    if zeros:
        least = blocks.amin(-1, keepdim=True)
        most, span, first = 15, blocks.amax(-1, keepdim=True) - least, 0
        blocks = blocks - least
    else:
        most, first = (127, 0) if bits == 8 else (7, _HALF)
        span = blocks.abs().amax(-1, keepdim=True)
    tiny = span < _LEAST  # no scale is subnormal
    made = torch.round(blocks * torch.where(tiny, 0.0, most / span)) + first
    scale = torch.where(tiny, 1.0, span / most).squeeze(-1)
    made = made.flatten(-2)[..., :length]
    beside = (scale, least.squeeze(-1).contiguous()) if zeros else (scale,)
    if bits == 8:
        return made.to(torch.int8), *beside
    made = made.to(torch.uint8)
    return made[..., ::2] | made[..., 1::2] << 4, *beside


def dequantize(
    codes: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None = None, dtype: torch.dtype = torch.bfloat16
) -> torch.Tensor:
    """The numbers of codes as quantize() makes them, rounded once at the end."""
    if codes.dtype == torch.uint8:
        codes = torch.stack((codes & 15, codes >> 4), -1).flatten(-2).float() - (_HALF if zero is None else 0)
    if codes.shape[-1]:
        scale, zero = (
            each if each is None else each.repeat_interleave(codes.shape[-1] // each.shape[-1], -1) for each in (scale, zero)
        )
    numbers = codes * scale
    return (numbers if zero is None else numbers + zero).to(dtype)


def tensors_of(shape: LayerShape, name: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """The parameters of a layer for its weight `name` or a part of its rows: the weight itself, or codes and what they
    have beside them."""
    if not shape.has_codes:
        return {name: weight}
    return dict(zip((name, *shape.beside(name)), quantize(weight, shape.bits, shape.group, shape.zeros)))


@torch.no_grad()
def set_expert(layer: torch.nn.Module, row: int, *matrices: torch.Tensor):
    """Sets the weights of row `row` of a layer's parameters, an expert or a shard of one: gate, if there is one, and up
    [I, H], and down [H, I]. If the layer has codes, these are made of them."""
    *before, down = matrices
    part = layer.gate_up_weight.shape[1] // len(before)
    places = [("gate_up_weight", slice(number * part, (number + 1) * part), each) for number, each in enumerate(before)]
    for name, rows, given in (*places, ("down_weight", slice(None), down)):
        plain = getattr(layer, name).is_floating_point()
        for each, tensor in ({name: given} if plain else tensors_of(layer.shape, name, given)).items():
            write(getattr(layer, each)[row, rows], tensor)
