"""GGUF files, of versions 2 and 3: metadata, tensors by name, and the experts of a layer.

A file has a header, metadata, descriptions of tensors, and their data from a multiple of general.alignment on. All numbers
are little-endian; the first size of a tensor is that along a row. gguf_blocks.py has the types of tensors.

A model may be in several files, NAME-00001-of-00003.gguf and so on. Each says which part it is, from 0 on (split.no), how many
there are (split.count), and how many tensors all parts have together (split.tensors.count); the first has the metadata.
"""

import math
import mmap
import pathlib
import re
import struct
import typing

import torch

from ..base.writes import write
from .formats import Matrix
from .gguf_blocks import KINDS, Kind

NAMES = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
_STACKED = "_exps"
_MAGIC = b"GGUF"
_ALIGNMENT = "general.alignment"
_NAME_OF_PART = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})\.gguf", re.DOTALL)
# Types of metadata that are numbers, by their number in the file.
_NUMBERS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
# Dimensions of tensors in files, and those that tensor() takes.
_MAX_DIMENSIONS, _DECODED_DIMENSIONS = 4, 3
# Items of a list of metadata, and bytes of a text: more are a damaged length, not to be read from a file of many gigabytes.
_MAX_LENGTH = 1 << 26
# Numbers that tensor() decodes at a time, since each takes many bytes meanwhile.
_DECODED = 1 << 20


def is_gguf(path) -> bool:
    """Whether the path is of a file that begins like one of GGUF."""
    if not isinstance(path, (str, pathlib.Path)) or not pathlib.Path(path).is_file():
        return False
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


class Gguf:
    """The tensors in a file, or in all parts of a model if the file is one of them, from mapped memory.

    metadata  name -> number, text or list of them, of the first part. Bytes of a text that are not UTF-8 are there as
              surrogates, as os.fsdecode() has them.
    ValueError: a file that is missing, truncated, damaged or of another version; a tensor or metadata that is there twice; parts
    that do not belong together.
    """

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self._parts, self._tensors = _parts_of(self.path), {}
        self.metadata = self._parts[0].metadata
        for part in self._parts:
            for name, described in part.tensors.items():
                if name in self._tensors:
                    raise ValueError(f"{name} is in {self._tensors[name].part.path} and in {part.path}")
                self._tensors[name] = _Tensor(part, *described)
        for part in self._parts:
            part.check_split("split.tensors.count", len(self._tensors), len(self._parts), "the tensors of all parts")

    def names(self) -> list[str]:
        """The names of all tensors, in the order of the files."""
        return list(self._tensors)

    def paths(self) -> list[pathlib.Path]:
        """The files of all parts."""
        return [part.path for part in self._parts]

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor in PyTorch's order. ValueError: it is not there."""
        return tuple(reversed(self._tensor(name).sizes))

    def type_of(self, name: str) -> str:
        """The type of a tensor in the words of the format, or its number if it is unknown. ValueError: it is not there."""
        number = self._tensor(name).kind
        return KINDS[number].name if number in KINDS else f"type {number}"

    def tensor(self, name: str) -> torch.Tensor:
        """A tensor with one to three dimensions: of F32, F16 and BF16 as it is, of blocks as float32. ValueError: it is not there,
        is of an unknown type, or goes beyond its file."""
        part, sizes, *_ = self._tensor(name)
        if not 1 <= len(sizes) <= _DECODED_DIMENSIONS or not all(sizes):
            raise ValueError(f"{part.path}: {name} has sizes {sizes}, expected 1 to {_DECODED_DIMENSIONS} of them, each from 1 on")
        kind, blocks = self._rows(name, name, 0, math.prod(sizes[1:]))
        if kind.is_plain:
            return kind.matrix(name, blocks).tensor.view(*reversed(sizes))
        made, rows = torch.empty(len(blocks), sizes[0]), max(1, _DECODED // sizes[0])
        for to, some in zip(made.split(rows), blocks.split(rows)):
            write(to, kind.matrix(name, some).decoded())
        return made.view(*reversed(sizes))

    def matrix(self, prefix: str, expert: int, name: str, experts: int | None) -> Matrix:
        """The matrix of an expert, [out, in], from a tensor with all of them, or from one of its own ("ffn_gate.7" beside
        "ffn_gate_exps"); `experts` is how many there must be, or None. ValueError: it is not there, or is of an unknown type."""
        full = f"{prefix}.{name}.weight"
        if full not in self._tensors:
            return self._matrix_of_one(prefix, expert, name, experts)
        sizes = self._tensors[full].sizes
        if len(sizes) != 3 or not all(sizes):
            raise ValueError(f"{full} has sizes {sizes}, expected [in, out, experts]")
        _, out, count = sizes
        _check_count(full, expert, count, experts)
        kind, blocks = self._rows(full, f"expert {expert} of {full}", expert * out, out)
        return kind.matrix(full, blocks)

    def bases(self, prefix: str, name: str, experts: int) -> list[str]:
        """What matrix() reads for these experts, without ".weight": a tensor of all of them, or one of each."""
        own = [f"{prefix}.{name.removesuffix(_STACKED)}.{expert}" for expert in range(experts)]
        return own if f"{own[0]}.weight" in self._tensors else [f"{prefix}.{name}"]

    def copy_into(self, target: torch.Tensor, tensor: torch.Tensor):
        write(target, tensor)

    def release(self):
        """Gives back the pages that were read."""
        for part in self._parts:
            part.memory.madvise(mmap.MADV_DONTNEED)

    def _matrix_of_one(self, prefix: str, expert: int, name: str, experts: int | None) -> Matrix:
        stem = f"{prefix}.{name.removesuffix(_STACKED)}"
        count = 0
        while f"{stem}.{count}.weight" in self._tensors:
            count += 1
        if not count:
            raise ValueError(f"{self.path} has no {prefix}.{name}.weight, and no {stem}.0.weight")
        _check_count(f"{stem}.*.weight", expert, count, experts)
        full = f"{stem}.{expert}.weight"
        sizes = self._tensors[full].sizes
        if len(sizes) != 2 or not all(sizes):
            raise ValueError(f"{full} has sizes {sizes}, expected [in, out]")
        kind, blocks = self._rows(full, full, 0, sizes[1])
        return kind.matrix(full, blocks)

    def _tensor(self, name: str) -> "_Tensor":
        if name not in self._tensors:
            raise ValueError(f"{self.path} has no {name}")
        return self._tensors[name]

    def _rows(self, name: str, what: str, first: int, count: int) -> tuple[Kind, torch.Tensor]:
        """Rows of a tensor, `what` in errors: their type and blocks, uint8 [count, blocks of a row, bytes of a block]."""
        part, sizes, number, offset = self._tensors[name]
        if number not in KINDS:
            known = ", ".join(f"{each} ({kind.name})" for each, kind in KINDS.items())
            raise ValueError(f"{part.path}: {name} has type {number}, expected one of {known}")
        kind = KINDS[number]
        if sizes[0] % kind.numbers:
            raise ValueError(
                f"{part.path}: {name} has rows of {sizes[0]}, expected a multiple of the {kind.numbers} of a block of {kind.name}"
            )
        each = sizes[0] // kind.numbers * kind.size
        begin, end = (part.begin + offset + row * each for row in (first, first + count))
        if end > len(part.memory):
            raise ValueError(f"{part.path}: {what} ends at byte {end} of {len(part.memory)}: the file is truncated")
        data = torch.frombuffer(part.memory, dtype=torch.uint8, count=end - begin, offset=begin)
        return kind, data.view(count, -1, kind.size)


def _check_count(name: str, expert: int, count: int, experts: int | None):
    if expert >= count or experts not in (None, count):
        raise ValueError(f"{name} has {count} experts, expected {max(expert + 1, experts or 0)}")


def _parts_of(path: pathlib.Path) -> list["_Part"]:
    """All parts of the model that a file belongs to, in order, which is the file alone if its name is not that of a part."""
    match = _NAME_OF_PART.fullmatch(path.name)
    name, number, count = (match[1], int(match[2]), int(match[3])) if match else (None, 1, 1)
    if not 1 <= number <= count:
        raise ValueError(f"{path}: the name is that of part {number} of {count}, expected one of 1 to {count}")
    why = "as the name of the file says" if match else "since the name of the file is not NAME-00001-of-00002.gguf"
    parts = []
    for place in range(count):
        part = _Part(path if place == number - 1 else path.with_name(f"{name}-{place + 1:05}-of-{count:05}.gguf"))
        part.check_split("split.count", count, count, why)
        part.check_split("split.no", place, count, why)
        parts.append(part)
    return parts


class _Tensor(typing.NamedTuple):
    part: "_Part"
    sizes: list[int]  # the first one is that along a row
    kind: int
    offset: int  # from the beginning of the part's data


class _Part:
    """A file: its metadata, its tensors (name -> sizes, type, offset), its memory, and where in it data begin."""

    def __init__(self, path: pathlib.Path):
        self.path, self.metadata, self.tensors = path, {}, {}
        try:
            with open(path, "rb") as file:
                if file.read(len(_MAGIC)) != _MAGIC:
                    raise ValueError(f"{path}: expected a GGUF file, which begins with {_MAGIC.decode()}")
                self.memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except OSError as error:
            raise ValueError(f"{path}: cannot read: {error.strerror}") from None
        self._at = len(_MAGIC)
        try:
            self._read_header()
        except RecursionError:
            raise ValueError(f"{path}: metadata has arrays in arrays, nested too deeply") from None
        except (struct.error, UnicodeDecodeError):
            raise ValueError(f"{path}: the header ends within the file's {len(self.memory)} bytes or is damaged") from None

    def check_split(self, key: str, expected: int, count: int, why: str):
        """ValueError: metadata says something else than that of one of `count` parts; a file that is alone may say nothing."""
        if key not in self.metadata and count == 1:
            return
        found = f"{self.metadata[key]!r:.99}" if key in self.metadata else "absent"
        if found != str(expected):
            raise ValueError(f"{self.path}: {key} is {found}, expected {expected}, {why}")

    def _read_header(self):
        version = self._number("I")
        if version not in (2, 3):
            raise ValueError(f"{self.path}: GGUF of version {version}, expected 2 or 3")
        tensors, entries = self._number("Q"), self._number("Q")
        for _ in range(entries):
            name = self._once(self.metadata)
            self.metadata[name] = self._value(self._number("I"))
        alignment = self.metadata.get(_ALIGNMENT, 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"{self.path}: {_ALIGNMENT} is {alignment!r:.99}, expected a whole number from 1 on")
        for _ in range(tensors):
            name = self._once(self.tensors)
            dimensions = self._number("I")
            if dimensions > _MAX_DIMENSIONS:
                raise ValueError(f"{self.path}: {name} has {dimensions} dimensions, expected at most {_MAX_DIMENSIONS}")
            self.tensors[name] = list(self._numbers("Q", dimensions)), self._number("I"), self._number("Q")
        self.begin = -(-self._at // alignment) * alignment

    def _once(self, known: dict) -> str:
        """A name that is not yet known."""
        (name,) = self._texts(1)
        if name in known:
            raise ValueError(f"{self.path} has {name} twice")
        return name

    def _number(self, code: str):
        return self._numbers(code, 1)[0]

    def _numbers(self, code: str, count: int) -> tuple:
        form = f"<{count}{code}"
        found = struct.unpack_from(form, self.memory, self._at)
        self._at += struct.calcsize(form)
        return found

    def _texts(self, count: int, errors: str = "strict") -> list[str]:
        # one loop without calls: vocabularies have hundreds of thousands
        read, memory, at, found = struct.Struct("<Q").unpack_from, self.memory, self._at, []
        for _ in range(count):
            (length,) = read(memory, at)
            at += 8 + length
            if length > _MAX_LENGTH or at > len(memory):
                raise struct.error
            found.append(memory[at - length : at].decode(errors=errors))
        self._at = at
        return found

    def _value(self, kind: int):
        """A number, text or list of metadata."""
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind == _TEXT:
            return self._texts(1, "surrogateescape")[0]
        if kind != _ARRAY:
            raise ValueError(f"{self.path}: metadata of type {kind}, expected 0 to 12")
        of, count = self._number("I"), self._number("Q")
        if count > min(_MAX_LENGTH, len(self.memory) - self._at):  # each takes a byte or more
            raise struct.error
        if of in _NUMBERS:
            return list(self._numbers(_NUMBERS[of], count))
        if of == _TEXT:
            return self._texts(count, "surrogateescape")
        return [self._value(of) for _ in range(count)]
