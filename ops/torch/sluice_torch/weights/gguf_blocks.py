"""The types of tensors in GGUF files: blocks of consecutive numbers of a row, and which numbers their bytes stand for.

All numbers are little-endian.

    Q8_0    32 numbers in 34 bytes: scale F16, 32 codes int8; code * scale
    Q4_0    32 numbers in 18 bytes: scale F16, 16 bytes with the codes of i and i + 16; (code - 8) * scale
    Q4_1    32 numbers in 20 bytes: scale and least F16, 16 bytes as in Q4_0; code * scale + least
    Q5_0    32 numbers in 22 bytes: scale F16, 32 bits with the fifth bit of each code, 16 bytes with the lower 4 bits of i and
            i + 16; (code - 16) * scale
    Q5_1    32 numbers in 24 bytes: scale and least F16, then as Q5_0; code * scale + least
    MXFP4   32 numbers in 17 bytes: exponent of a power of two plus 127, 16 bytes with the codes of E2M1 of i and i + 16
    IQ4_NL  32 numbers in 18 bytes: scale F16, 16 bytes as in Q4_0, whose codes are places in a table of 16 numbers; number * scale
    Q2_K    256 numbers in 84 bytes: 16 bytes with 4 bits of scale and of minimum for each 16 numbers, for each half 32 bytes with
            2 bits of i, i + 32, i + 64 and i + 96, d and least F16; code * (d * scale) - least * minimum
    Q3_K    256 numbers in 110 bytes: 32 bytes whose bits are the third ones of i, i + 32, ..., i + 224, for each half 32 bytes as in
            Q2_K, 12 bytes with 6 bits of scale for each 16 numbers, d F16; (code - 4) * (d * (scale - 32))
    Q4_K    256 numbers in 144 bytes: d and least F16, 12 bytes with 6 bits of scale and of minimum for each of 8 groups,
            and for each two groups 32 bytes with a code of both; code * (d * scale) - least * minimum
    Q5_K    256 numbers in 176 bytes: the first 16 bytes as in Q4_K, 32 bytes whose bits are the fifth ones of i, i + 32, ...,
            i + 224, and the lower 4 bits as in Q4_K
    Q6_K    256 numbers in 210 bytes: for each half 64 bytes with the lower 4 bits of i and i + 64, then for each half 32 bytes
            with the upper 2 bits of i, i + 32, i + 64 and i + 96, 16 scales int8, d F16; (code - 32) * (d * scale of its 16)
"""

import typing

import torch

from ..encodings.codes import in_pairs
from ..encodings.encodings import stored_of
from .formats import Matrix, in_groups

# The numbers of the codes of IQ4_NL, in ascending order.
_IQ4_NL = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


class Kind(typing.NamedTuple):
    """A type of tensors. `matrix` makes a Matrix of a name and uint8 [out, blocks of a row, bytes of a block]."""

    name: str
    numbers: int  # in a block
    size: int  # of a block, in bytes
    matrix: typing.Callable[[str, torch.Tensor], Matrix]

    @property
    def is_plain(self) -> bool:
        return self.numbers == 1


def _plain(dtype: torch.dtype):
    return lambda name, blocks: Matrix(name, blocks.clone().view(dtype).flatten(1))


def _q8_0(name: str, blocks: torch.Tensor) -> Matrix:
    scale, made = _halves(blocks[..., :2]), blocks[..., 2:].contiguous().view(torch.int8)
    return Matrix(name, (made * scale.float()).flatten(1))


def _q4_0(name: str, blocks: torch.Tensor) -> Matrix:
    return in_groups(name, _pairs(_split(blocks[..., 2:])), _halves(blocks[..., :2]).squeeze(-1))


def _q4_1(name: str, blocks: torch.Tensor) -> Matrix:
    scale, least = _halves(blocks[..., :4]).unbind(-1)
    return in_groups(name, _pairs(_split(blocks[..., 4:])), scale.float(), least.float())


def _q5_0(name: str, blocks: torch.Tensor) -> Matrix:
    made = _fives(blocks[..., 2:6], blocks[..., 6:]).to(torch.int8) - 16
    return Matrix(name, (made * _halves(blocks[..., :2]).float()).flatten(1))


def _q5_1(name: str, blocks: torch.Tensor) -> Matrix:
    scale, least = _halves(blocks[..., :4]).float().split(1, -1)
    return Matrix(name, (_fives(blocks[..., 4:8], blocks[..., 8:]) * scale + least).flatten(1))


def _mxfp4(name: str, blocks: torch.Tensor) -> Matrix:
    return Matrix(name, _pairs(_split(blocks[..., 1:])), stored_of("mxfp4"), (blocks[..., 0].contiguous(),))


def _iq4_nl(name: str, blocks: torch.Tensor) -> Matrix:
    numbers = torch.tensor(_IQ4_NL, dtype=torch.float32)[_split(blocks[..., 2:]).long()]
    return Matrix(name, (numbers * _halves(blocks[..., :2]).float()).flatten(1))


def _q2_k(name: str, blocks: torch.Tensor) -> Matrix:
    d, least = _halves(blocks[..., 80:]).float().split(1, -1)
    scale, minimum = d * (blocks[..., :16] & 15), least * (blocks[..., :16] >> 4)
    made = _quarters(blocks[..., 16:80]).unflatten(-1, (16, 16))
    return Matrix(name, (made * scale.unsqueeze(-1) - minimum.unsqueeze(-1)).flatten(1))


def _q3_k(name: str, blocks: torch.Tensor) -> Matrix:
    made = (_quarters(blocks[..., 32:96]) | _bits(blocks[..., :32]).flatten(-2) << 2).to(torch.int8) - 4
    upper = blocks[..., 104:108].unsqueeze(-2) >> 2 * _counted(4).view(4, 1) & 3
    scale = (_split(blocks[..., 96:104]) | upper.flatten(-2) << 4).to(torch.int8) - 32
    steps = _halves(blocks[..., 108:]).float() * scale
    return Matrix(name, (made * steps.repeat_interleave(16, -1)).flatten(1))


def _q4_k(name: str, blocks: torch.Tensor) -> Matrix:
    scale, minimum = _scales_and_minima(blocks[..., :16])
    return in_groups(name, _pairs(_groups(blocks[..., 16:]).flatten(-2)), scale.flatten(1), -minimum.flatten(1))


def _q5_k(name: str, blocks: torch.Tensor) -> Matrix:
    scale, minimum = _scales_and_minima(blocks[..., :16])
    made = _groups(blocks[..., 48:]) | _bits(blocks[..., 16:48]) << 4
    return Matrix(name, (made * scale.unsqueeze(-1) - minimum.unsqueeze(-1)).flatten(1))


def _q6_k(name: str, blocks: torch.Tensor) -> Matrix:
    lower, scales = blocks[..., :128].unflatten(-1, (2, 64)), blocks[..., 192:208]
    upper = _quarters(blocks[..., 128:192]).unflatten(-1, (2, 128))
    made = (_split(lower) | upper << 4).flatten(-2).to(torch.int8) - 32
    steps = _halves(blocks[..., 208:]).float() * scales.contiguous().view(torch.int8)
    return Matrix(name, (made * steps.repeat_interleave(16, -1)).flatten(1))


def _halves(two_bytes: torch.Tensor) -> torch.Tensor:
    return two_bytes.contiguous().view(torch.float16)


def _split(bytes_of_block: torch.Tensor) -> torch.Tensor:
    """The codes of the lower halves, then the codes of the upper ones."""
    return torch.cat((bytes_of_block & 15, bytes_of_block >> 4), -1)


def _pairs(numbers: torch.Tensor) -> torch.Tensor:
    """[out, blocks, numbers of a block] codes -> [out, in / 2], two per byte."""
    return in_pairs(numbers.flatten(1))


def _counted(end: int) -> torch.Tensor:
    return torch.arange(end, dtype=torch.uint8)


def _fives(fifths: torch.Tensor, lower: torch.Tensor) -> torch.Tensor:
    """Codes of 32 numbers of 5 bits: from 4 bytes with their fifth bits in order, and 16 with the lower bits of i and i + 16."""
    return _split(lower) | (fifths.unsqueeze(-1) >> _counted(8) & 1).flatten(-2) << 4


def _bits(bytes_of_block: torch.Tensor) -> torch.Tensor:
    """32 bytes -> [..., 8, 32]: the lowest bit of each, then the second one of each, and so on."""
    return bytes_of_block.unsqueeze(-2) >> _counted(8).view(8, 1) & 1


def _quarters(bytes_of_block: torch.Tensor) -> torch.Tensor:
    """64 bytes -> 256 codes of 2 bits: for each half the lowest two bits of each byte, then the next two, and so on."""
    return (bytes_of_block.unflatten(-1, (2, 1, 32)) >> 2 * _counted(4).view(4, 1) & 3).flatten(-3)


def _groups(bytes_of_block: torch.Tensor) -> torch.Tensor:
    """128 bytes -> codes of 4 bits of the groups of Q4_K and Q5_K, [..., 8, 32]."""
    made = bytes_of_block.unflatten(-1, (4, 1, 32))
    return torch.cat((made & 15, made >> 4), -2).flatten(-3, -2)


def _scales_and_minima(head: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first 16 bytes of Q4_K and Q5_K -> float32 [..., 8] for the groups: d * scale and least * minimum."""
    d, least = _halves(head[..., :4]).float().split(1, -1)
    first, second, third = head[..., 4:].split(4, -1)  # of groups 0 to 3: scales, minima; of groups 4 to 7: the lower bits of both
    scale = torch.cat((first & 63, third & 15 | first >> 6 << 4), -1)
    minimum = torch.cat((second & 63, third >> 4 | second >> 6 << 4), -1)
    return d * scale, least * minimum


# The types by their number in files.
KINDS = {
    0: Kind("F32", 1, 4, _plain(torch.float32)),
    1: Kind("F16", 1, 2, _plain(torch.float16)),
    2: Kind("Q4_0", 32, 18, _q4_0),
    3: Kind("Q4_1", 32, 20, _q4_1),
    6: Kind("Q5_0", 32, 22, _q5_0),
    7: Kind("Q5_1", 32, 24, _q5_1),
    8: Kind("Q8_0", 32, 34, _q8_0),
    10: Kind("Q2_K", 256, 84, _q2_k),
    11: Kind("Q3_K", 256, 110, _q3_k),
    12: Kind("Q4_K", 256, 144, _q4_k),
    13: Kind("Q5_K", 256, 176, _q5_k),
    14: Kind("Q6_K", 256, 210, _q6_k),
    20: Kind("IQ4_NL", 32, 18, _iq4_nl),
    30: Kind("BF16", 1, 2, _plain(torch.bfloat16)),
    39: Kind("MXFP4", 32, 17, _mxfp4),
}
