"""GGUF files, of versions 2 and 3: the stacked experts of a layer, plain or in the blocks of Q8_0, Q4_0, Q4_K, Q6_K and MXFP4.

A file has a header, metadata, descriptions of tensors, and their data from a multiple of general.alignment on. All numbers
are little-endian; the first size of a tensor is that along a row. Blocks are of consecutive numbers of a row:

    Q8_0   32 numbers in 34 bytes: scale F16, 32 codes int8; code * scale
    Q4_0   32 numbers in 18 bytes: scale F16, 16 bytes with the codes of i and i + 16; (code - 8) * scale
    MXFP4  32 numbers in 17 bytes: exponent of a power of two plus 127, 16 bytes with the codes of E2M1 of i and i + 16
    Q4_K   256 numbers in 144 bytes: d and least F16, 12 bytes with 6 bits of scale and of minimum for each of 8 groups,
           and for each two groups 32 bytes with a code of both; code * (d * scale) - least * minimum
    Q6_K   256 numbers in 210 bytes: for each half 64 bytes with the lower 4 bits of i and i + 64, then for each half 32 bytes
           with the upper 2 bits of i, i + 32, i + 64 and i + 96, 16 scales int8, d F16; (code - 32) * (d * scale of its 16)
"""

import math
import mmap
import pathlib
import struct

import torch

from .codes import in_pairs
from .formats import Matrix
from .writes import write

NAMES = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
_MAGIC = b"GGUF"
_ALIGNMENT = "general.alignment"
# Types of metadata that are numbers, by their number in the file.
_NUMBERS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
# Types of tensors by their number: name, numbers in a block, bytes of a block.
_TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    8: ("Q8_0", 32, 34),
    12: ("Q4_K", 256, 144),
    14: ("Q6_K", 256, 210),
    30: ("BF16", 1, 2),
    39: ("MXFP4", 32, 17),
}
_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def is_gguf(path) -> bool:
    """Whether the path is of a file that begins like one of GGUF."""
    if not pathlib.Path(path).is_file():
        return False
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


class Gguf:
    """The experts in a file, from mapped memory. ValueError: a file of another version, truncated or damaged; a tensor that it
    has twice."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        with open(path, "rb") as file:
            self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self._at, self._tensors = len(_MAGIC), {}
        try:
            self._read_header()
        except RecursionError:
            raise ValueError(f"{self.path}: metadata has arrays in arrays, nested too deeply") from None
        except (struct.error, UnicodeDecodeError):
            raise ValueError(f"{self.path}: the header ends within the file's {len(self._memory)} bytes or is damaged") from None

    def matrix(self, prefix: str, expert: int, name: str, experts: int | None) -> Matrix:
        """That of an expert, [out, in]; `experts` is how many there must be, or None. ValueError: it is not there, or is of an
        unknown type."""
        full = f"{prefix}.{name}.weight"
        if full not in self._tensors:
            raise ValueError(f"{self.path} has no {full}")
        sizes, kind, offset = self._tensors[full]
        if len(sizes) != 3 or not all(sizes):
            raise ValueError(f"{full} has sizes {sizes}, expected [in, out, experts]")
        length, out, count = sizes
        if expert >= count or experts not in (None, count):
            raise ValueError(f"{full} has {count} experts, expected {max(expert + 1, experts or 0)}")
        if kind not in _TYPES:
            raise ValueError(f"{full} has type {kind}, expected one of {', '.join(f'{n} ({t[0]})' for n, t in _TYPES.items())}")
        of, numbers, size = _TYPES[kind]
        if length % numbers:
            raise ValueError(f"{full} has rows of {length}, expected a multiple of the {numbers} of a block of {of}")
        bytes_of_expert = out * length // numbers * size
        begin = self._begin + offset + expert * bytes_of_expert
        if begin + bytes_of_expert > len(self._memory):
            raise ValueError(
                f"{self.path}: expert {expert} of {full} ends at byte {begin + bytes_of_expert} of {len(self._memory)}: the file "
                "is truncated"
            )
        data = torch.frombuffer(self._memory, dtype=torch.uint8, count=bytes_of_expert, offset=begin)
        if of in _PLAIN:
            return Matrix(full, data.clone().view(_PLAIN[of]).view(out, length))
        blocks = data.view(out, length // numbers, size)
        return {"Q8_0": _q8_0, "Q4_0": _q4_0, "Q4_K": _q4_k, "Q6_K": _q6_k, "MXFP4": _mxfp4}[of](full, blocks)

    def copy_into(self, target: torch.Tensor, tensor: torch.Tensor):
        write(target, tensor)

    def release(self):
        """Gives back the pages that were read."""
        self._memory.madvise(mmap.MADV_DONTNEED)

    def _read_header(self):
        version = self._number("I")
        if version not in (2, 3):
            raise ValueError(f"{self.path}: GGUF of version {version}, expected 2 or 3")
        tensors, entries = self._number("Q"), self._number("Q")
        alignment = 32
        for _ in range(entries):
            name, value = self._text(), self._value(self._number("I"))
            if name == _ALIGNMENT:
                alignment = value
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"{self.path}: {_ALIGNMENT} is {alignment!r}, expected a whole number from 1 on")
        for _ in range(tensors):
            name = self._text()
            if name in self._tensors:
                raise ValueError(f"{self.path} has {name} twice")
            sizes = [self._number("Q") for _ in range(self._number("I"))]
            self._tensors[name] = sizes, self._number("I"), self._number("Q")
        self._begin = math.ceil(self._at / alignment) * alignment

    def _number(self, code: str):
        (found,) = struct.unpack_from("<" + code, self._memory, self._at)
        self._at += struct.calcsize("<" + code)
        return found

    def _text(self) -> str:
        (found,) = struct.unpack_from(f"<{self._counted()}s", self._memory, self._at)
        self._at += len(found)
        return found.decode()

    def _counted(self) -> int:
        """The length of what follows, which the rest of the file must have room for."""
        length = self._number("Q")
        if length > len(self._memory) - self._at:
            raise struct.error
        return length

    def _value(self, kind: int):
        """A number of metadata; of texts and arrays None."""
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind == _TEXT:
            self._text()
        elif kind == _ARRAY:
            of, count = self._number("I"), self._counted()
            if of in _NUMBERS:
                self._at += count * struct.calcsize("<" + _NUMBERS[of])
            else:
                for _ in range(count):
                    self._value(of)
        else:
            raise ValueError(f"{self.path}: metadata of type {kind}, expected 0 to 12")
        return None


def _q8_0(name: str, blocks: torch.Tensor) -> Matrix:
    scale, made = _halves(blocks[..., :2]), blocks[..., 2:].contiguous().view(torch.int8)
    return Matrix(name, (made * scale.float()).flatten(1))


def _q4_0(name: str, blocks: torch.Tensor) -> Matrix:
    return Matrix(name, pairs=_pairs(_split(blocks[..., 2:])), scale=_halves(blocks[..., :2]).squeeze(-1))


def _mxfp4(name: str, blocks: torch.Tensor) -> Matrix:
    return Matrix(name, pairs=_pairs(_split(blocks[..., 1:])), scale=blocks[..., 0].contiguous())


def _q4_k(name: str, blocks: torch.Tensor) -> Matrix:
    d, least = _halves(blocks[..., :4]).float().split(1, -1)
    first, second, third = blocks[..., 4:16].split(4, -1)  # of groups 0 to 3: scales, minima; of groups 4 to 7: the lower bits of both
    scale = torch.cat((first & 63, third & 15 | first >> 6 << 4), -1)
    minimum = torch.cat((second & 63, third >> 4 | second >> 6 << 4), -1)
    made = blocks[..., 16:].unflatten(-1, (4, 1, 32))
    numbers = torch.cat((made & 15, made >> 4), -2).flatten(-3)
    return Matrix(name, pairs=_pairs(numbers), scale=(d * scale).flatten(1), zero=-(least * minimum).flatten(1))


def _q6_k(name: str, blocks: torch.Tensor) -> Matrix:
    lower, upper, scales = blocks[..., :128].unflatten(-1, (2, 64)), blocks[..., 128:192].unflatten(-1, (2, 1, 32)), blocks[..., 192:208]
    upper = upper >> 2 * torch.arange(4, dtype=torch.uint8).view(4, 1) & 3
    made = (_split(lower) | upper.flatten(-2) << 4).flatten(-2).to(torch.int8) - 32
    steps = _halves(blocks[..., 208:]).float() * scales.contiguous().view(torch.int8)
    return Matrix(name, (made * steps.repeat_interleave(16, -1)).flatten(1))


def _halves(two_bytes: torch.Tensor) -> torch.Tensor:
    return two_bytes.contiguous().view(torch.float16)


def _split(bytes_of_block: torch.Tensor) -> torch.Tensor:
    """The codes of the lower halves, then those of the upper ones."""
    return torch.cat((bytes_of_block & 15, bytes_of_block >> 4), -1)


def _pairs(numbers: torch.Tensor) -> torch.Tensor:
    """[out, blocks, numbers of a block] codes -> [out, in / 2], two per byte."""
    return in_pairs(numbers.flatten(1))
