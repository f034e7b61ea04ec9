"""Weights of 8 or 4 bits: codes, and a scale for each output channel, group of it or square (docs/PRECISION.md)."""

import math

import torch

from .encodings import BLOCK
from .stored import SQUARE, Stored

# A block has equal codes if its largest magnitude, or with zeros its range, is below this.
_LEAST = 2.0**-119
# Numbers along the sum of a product that share a scale of codes of 4 bits; 0: all.
GROUPS = (0, 32, 64, 128)
# Numbers that are quantised at a time.
_AT_ONCE = 1 << 18
# What codes of 4 bits without zeros count from.
HALF = 8
_SCALE_TYPES = (torch.float32, torch.float16, torch.bfloat16)


@torch.no_grad()
def quantize(
    weight: torch.Tensor, bits: int = 8, group: int = 0, zeros: bool = False, scale_type: torch.dtype = torch.float32
) -> tuple[torch.Tensor, ...]:
    """Codes and scale of a weight [..., out, in], and with `zeros` its zero, both float32.

    bits 8  codes int8 [..., out, in], scale [..., out, 1]: the weight is about codes * scale, with
            scale = amax / 127 and codes = round(weight * (127 / amax)), ties to even, for the largest magnitude amax
            of each row.
    bits 4  codes uint8 [..., out, in / 2], two codes 0 to 15 per byte, the first in the lower half. Scale and zero are
            [..., out, in / group], by default one per row. Without zeros the weight is about (code - 8) * scale with
            scale = amax / 7; with them about code * scale + zero with scale = (max - min) / 15 and zero = min.
            With a `scale_type` of float16 or bfloat16 scales have that type, and codes are made for what they are rounded to. Zeros are
            then int8, the codes that stand for 0: the weight is about (code - zero) * scale, where 0 counts as one of its numbers.
    ValueError: a weight with NaN or infinity; sizes that do not fit; an unknown option.
    """
    if bits not in (8, 4) or group not in GROUPS or (bits == 8 and (group or zeros)):
        raise ValueError(f"bits={bits}, group={group}, zeros={zeros}: expected 8 bits, or 4 with one of the groups {GROUPS}")
    if scale_type not in _SCALE_TYPES or (bits == 8 and scale_type != torch.float32):
        raise ValueError(f"scale_type={scale_type} with {bits} bits: expected one of {', '.join(map(str, _SCALE_TYPES))}, with 8 bits the first")
    length = weight.shape[-1]
    if bits == 4 and length % (group or 2):
        raise ValueError(f"a weight with {length} columns, expected a multiple of {group or 2}")
    if scale_type != torch.float32:
        return _by_rows(lambda rows: _quantize_counted(rows, group, zeros, scale_type), weight)
    return _by_rows(lambda rows: _quantize(rows, bits, group, zeros), weight)


def _by_rows(function, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The results for all rows of a weight, of a function of some of them: each makes several tensors of float32 meanwhile."""
    some = max(1, _AT_ONCE // max(1, math.prod((*weight.shape[:-2], weight.shape[-1]))))
    made = [function(rows) for rows in weight.split(some, -2)]
    return tuple(torch.cat(parts, -2) for parts in zip(*made))


def _in_groups(weight: torch.Tensor, group: int) -> torch.Tensor:
    """float32 [..., out, groups, numbers of one]."""
    if not torch.isfinite(weight).all():
        raise ValueError("a weight with NaN or infinity has no codes")
    if not weight.shape[-1]:
        return torch.zeros(*weight.shape[:-1], 1, 1)
    return weight.float().unflatten(-1, (-1, group)) if group else weight.float().unsqueeze(-2)


def _quantize_counted(weight: torch.Tensor, group: int, zeros: bool, scale_type: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Codes of 4 bits for scales as they are rounded, counted from 8 or from zeros."""
    blocks = _in_groups(weight, group)
    least, most = blocks.amin(-1, keepdim=True).clamp(max=0), blocks.amax(-1, keepdim=True).clamp(min=0)
    span = (most - least) / 15 if zeros else torch.maximum(most, -least) / 7
    scale = span.to(scale_type)
    if not torch.isfinite(scale).all():
        raise ValueError(f"a weight with a scale of {span.max().item():.3g} has none of {scale_type}")
    scale = torch.where((span < _LEAST) | (scale == 0), 1.0, scale.float())  # no scale is subnormal as float32
    zero = torch.round(-least / scale).clamp(0, 15) if zeros else torch.full_like(scale, HALF)
    made = (torch.round(blocks / scale) + zero).clamp(0, 15).flatten(-2)[..., : weight.shape[-1]]
    beside = (scale.to(scale_type).squeeze(-1), zero.to(torch.int8).squeeze(-1))
    return in_pairs(made.to(torch.uint8)), *beside[: 2 if zeros else 1]


def _quantize(weight: torch.Tensor, bits: int, group: int, zeros: bool) -> tuple[torch.Tensor, ...]:
    blocks, length = _in_groups(weight, group), weight.shape[-1]
    if zeros:
        least = blocks.amin(-1, keepdim=True)
        most, span, first = 15, blocks.amax(-1, keepdim=True) - least, 0
        blocks = blocks - least
    else:
        most, first = (127, 0) if bits == 8 else (7, HALF)
        span = blocks.abs().amax(-1, keepdim=True)
    tiny = span < _LEAST  # no scale is subnormal
    made = torch.round(blocks * torch.where(tiny, 0.0, most / span)) + first
    scale = torch.where(tiny, 1.0, span / most).squeeze(-1)
    made = made.flatten(-2)[..., :length]
    beside = (scale, least.squeeze(-1).contiguous()) if zeros else (scale,)
    if bits == 8:
        return made.to(torch.int8), *beside
    return in_pairs(made.to(torch.uint8)), *beside


def dequantize(
    codes: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None = None, dtype: torch.dtype = torch.bfloat16
) -> torch.Tensor:
    """The numbers of codes as quantize() makes them, rounded once at the end."""
    scale = scale.float()
    if zero is not None and zero.dtype == torch.int8:
        zero = -zero.float() * scale
    if codes.dtype == torch.uint8:
        codes = from_pairs(codes).float() - (HALF if zero is None else 0)
    if codes.shape[-1]:
        scale, zero = (
            each if each is None else each.repeat_interleave(codes.shape[-1] // each.shape[-1], -1) for each in (scale, zero)
        )
    numbers = codes * scale
    return (numbers if zero is None else numbers + zero).to(dtype)


def in_pairs(codes: torch.Tensor) -> torch.Tensor:
    """[..., in] codes of 4 bits -> [..., in / 2], two per byte, the first in the lower half."""
    return codes[..., ::2] | codes[..., 1::2] << 4


def from_pairs(pairs: torch.Tensor) -> torch.Tensor:
    return torch.stack((pairs & 15, pairs >> 4), -1).flatten(-2)


def _nearest(sizes: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
    """The codes, indices into the ascending `known`, of the numbers nearest to `sizes`; of two that are as near the even one."""
    between = (known[1:] + known[:-1]) / 2
    codes = torch.bucketize(sizes.contiguous(), between)  # a number in the middle gets the smaller of its neighbours
    return codes + ((codes % 2 == 1) & (sizes == between[codes.clamp(max=len(between) - 1)]))


def e4m3() -> torch.Tensor:
    """The numbers of all codes of 4 bits of exponent and 3 of fraction; codes 127 and 255 are NaN."""
    code = torch.arange(256)
    exponent, fraction = code >> 3 & 15, (code & 7).float()
    size = torch.where(exponent == 0, fraction / 8 * 2.0**-6, (1 + fraction / 8) * torch.exp2(exponent.float() - 7))
    return torch.where(code & 127 == 127, float("nan"), torch.where(code < 128, size, -size))


def _over_numbers(scale: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    return scale.repeat_interleave(SQUARE, -2)[..., :rows, :].repeat_interleave(SQUARE, -1)[..., :columns]


@torch.no_grad()
def quantize_fp8(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes of E4M3, uint8 [..., out, in], and float32 scale [..., out / 128, in / 128], rounded up, of a weight: the nearest
    numbers, ties to even, to weight / scale with scale = amax / 448 for the largest magnitude amax of each square.

    ValueError: a weight with NaN or infinity.
    """
    weight = weight.float()
    if not torch.isfinite(weight).all():
        raise ValueError("a weight with NaN or infinity has no codes")
    rows, columns = weight.shape[-2:]
    padded = torch.nn.functional.pad(weight.abs(), (0, -columns % SQUARE, 0, -rows % SQUARE))
    amax = padded.unflatten(-1, (-1, SQUARE)).amax(-1).unflatten(-2, (-1, SQUARE)).amax(-2)
    tiny = amax < 4 * _LEAST
    scale = torch.where(tiny, 1.0, amax / 448)
    numbers = weight / _over_numbers(scale, rows, columns) * ~_over_numbers(tiny, rows, columns)
    codes = _nearest(numbers.abs(), e4m3()[:127])
    return (codes + 128 * (numbers < 0)).to(torch.uint8), scale


def dequantize_fp8(codes: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """The numbers of codes as quantize_fp8() makes them, rounded once at the end."""
    return (e4m3()[codes.long()] * _over_numbers(scale, *codes.shape[-2:])).to(dtype)


def e8m0() -> torch.Tensor:
    """The powers of two of all codes, in float64; code 255 is NaN."""
    return torch.tensor([2.0 ** (code - _POWER_BIAS) for code in range(255)] + [float("nan")], dtype=torch.float64)


_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # the numbers of codes
_POWER_BIAS = 127


def _in_blocks(weight: torch.Tensor, each: int) -> torch.Tensor:
    """float32 [..., out, in] -> [..., out, in / each, each]. ValueError: not a multiple of so many columns, NaN or infinity."""
    if weight.shape[-1] % each:
        raise ValueError(f"a weight with {weight.shape[-1]} columns, expected a multiple of {each}")
    if not torch.isfinite(weight).all():
        raise ValueError("a weight with NaN or infinity has no codes")
    return weight.float().unflatten(-1, (-1, each))


@torch.no_grad()
def quantize_mxfp4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes of E2M1, uint8 [..., out, in / 2], two per byte, the first in the lower half, and powers of two, E8M0 in uint8 [..., out,
    in / 32], of a weight: the nearest numbers, ties to even codes, to weight / power, where power is 2^(e - 2) for the exponent e
    of the largest magnitude of each block, as OCP's specification of MX formats proposes; magnitudes above 6 become 6.

    ValueError: a weight with NaN or infinity; rows of other lengths than multiples of 32.
    """
    return _by_rows(_quantize_mxfp4, weight)


def _quantize_mxfp4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    blocks = _in_blocks(weight, BLOCK)
    amax = blocks.abs().amax(-1)
    # frexp() gives fractions from 0.5 on, and the largest number, 6, has the exponent 2
    powers = torch.where(amax > 0, torch.frexp(amax).exponent - 3 + _POWER_BIAS, 0).clamp(min=0)
    size = (blocks.abs() / e8m0()[powers.long()].unsqueeze(-1)).flatten(-2)
    codes = _nearest(size, torch.tensor(_E2M1, dtype=torch.double))
    return in_pairs((codes + 8 * ((weight < 0) & (codes > 0))).to(torch.uint8)), powers.to(torch.uint8)


def dequantize_mxfp4(codes: torch.Tensor, powers: torch.Tensor, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """The numbers of codes as quantize_mxfp4() makes them; code 8 is 0, as code 0."""
    return _by_scales(codes, e8m0()[powers.long()]).to(dtype)


def _by_scales(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The numbers of pairs of E2M1 times those of the scales of their blocks, in float64."""
    known = torch.tensor((*_E2M1, *(0.0 - each for each in _E2M1)), dtype=torch.float64)
    numbers = known[from_pairs(codes).long()]
    return (numbers.unflatten(-1, (scales.shape[-1], -1)) * scales.unsqueeze(-1)).flatten(-2)


# Numbers along a sum that share a scale of NVFP4.
NV_BLOCK = 16
_LARGEST_E2M1, _LARGEST_E4M3 = 6, 448


@torch.no_grad()
def quantize_nvfp4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes of E2M1, uint8 [..., out, in / 2], two per byte, the first in the lower half, scales of E4M3, uint8 [..., out, in / 16],
    and a factor of them, float32 [..., 1], of a weight: factor = amax / (6 * 448) for its largest magnitude amax, the nearest scales
    to amax / (6 * factor) for that of each block, and the nearest numbers to weight / (scale * factor), ties to even codes. The weight
    is about code * scale * factor.

    ValueError: a weight with NaN or infinity; rows of other lengths than multiples of 16.
    """
    blocks = _in_blocks(weight, NV_BLOCK).double()
    amax = blocks.abs().amax(-1)
    largest = amax.flatten(-2).amax(-1, keepdim=True)
    factor = torch.where(largest < _LEAST, 1.0, largest / (_LARGEST_E2M1 * _LARGEST_E4M3)).float()
    of_matrix = factor.double().unsqueeze(-1)
    scales = _nearest(amax / (_LARGEST_E2M1 * of_matrix), e4m3()[:127].double())
    step = (e4m3().double()[scales] * of_matrix).unsqueeze(-1)
    size = torch.where(step > 0, blocks.abs() / step, 0).flatten(-2)
    made = _nearest(size, torch.tensor(_E2M1, dtype=torch.double))
    return in_pairs((made + 8 * ((weight < 0) & (made > 0))).to(torch.uint8)), scales.to(torch.uint8), factor


def dequantize_nvfp4(
    codes: torch.Tensor, scales: torch.Tensor, factor: torch.Tensor, dtype: torch.dtype = torch.bfloat16
) -> torch.Tensor:
    """The numbers of codes as quantize_nvfp4() makes them, rounded once at the end; code 8 is 0, as code 0."""
    return (_by_scales(codes, e4m3().double()[scales.long()]) * factor.double().unsqueeze(-1)).to(dtype)


# How floats of 4 bits are made and read, by the elements of their scales.
_OF_FLOATS = {"F8_E8M0": (quantize_mxfp4, dequantize_mxfp4), "F8_E4M3": (quantize_nvfp4, dequantize_nvfp4)}


def numbers_of(stored: Stored, weight: torch.Tensor, *beside: torch.Tensor, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """The numbers of a weight: the weight itself, or what its codes and the tensors beside them stand for."""
    if not stored.has_codes:
        return weight
    if stored.has_squares:
        return dequantize_fp8(weight, *beside, dtype=dtype)
    made = _OF_FLOATS[stored.scale][1] if stored.scale in _OF_FLOATS else dequantize
    return made(weight, *beside, dtype=dtype)


def tensors_of(stored: Stored, name: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """The parameters of a layer for its weight `name`: the weight itself, or codes and what they have beside them."""
    if not stored.has_codes:
        return {name: weight}
    if stored.has_squares:
        made = quantize_fp8(weight)
    elif stored.scale in _OF_FLOATS:
        made = _OF_FLOATS[stored.scale][0](weight)
    else:
        made = quantize(weight, stored.bits, stored.group, stored.has_zeros, stored.dtype_beside("scale"))
    return dict(zip((name, *stored.beside(name)), made))
