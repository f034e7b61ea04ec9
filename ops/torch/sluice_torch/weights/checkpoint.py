"""Checkpoints in safetensors files, read tensor by tensor from mapped memory."""

import collections.abc
import copy
import math
import mmap
import os
import pathlib
import struct
import weakref

import torch

from ..base.writes import read_file, write
from .json_objects import is_size, read_object

INDEX = "model.safetensors.index.json"
# Names of the format -> types. Numbers of 8 bits are their codes: PyTorch 1.13 has no type for them.
_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.uint8,
    "F8_E5M2": torch.uint8,
    "F8_E8M0": torch.uint8,
}
# Those that are numbers as they are.
NUMBERS = ("F64", "F32", "F16", "BF16")
_MAX_DIMENSIONS = 16
# Numbers that are converted at a time: they stay in the cache, and PyTorch converts so few in one thread. Where other
# processes have the cores, its threads wait milliseconds for each other.
_CONVERTED = 32 * 1024 - 1


def _content(path: pathlib.Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: cannot read: {error.strerror}") from None


def _check_name(path: pathlib.Path):
    """ValueError: what no file can be called."""
    try:
        possible = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        possible = False
    if not possible:
        raise ValueError(f"{str(path)!a}: cannot read: no file can have this name")


class _File:
    """The header of one file, and its memory."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        _check_name(path)
        try:
            self.file = open(path, "rb", buffering=0)
            weakref.finalize(self, self.file.close)
            size = os.fstat(self.file.fileno()).st_size
            if size < 8:
                raise ValueError(f"{path}: {size} bytes, expected a safetensors file")
            # pages are read when they are used, and none is ever written back
            self.memory = mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_COPY)
        except OSError as error:
            raise ValueError(f"{path}: cannot read: {error.strerror}") from None
        self.size = size
        self.address = torch.frombuffer(self.memory, dtype=torch.uint8).data_ptr()
        if self.memory[:4] == b"GGUF":
            raise ValueError(f"{path}: a GGUF file, expected a safetensors file")
        (length,) = struct.unpack("<Q", self.memory[:8])
        if length > size - 8:
            raise ValueError(f"{path}: a header of {length} bytes in a file of {size}: truncated, or no safetensors file")
        self.tensors = read_object(self.memory[8 : 8 + length], f"{path}: the header is not that of a safetensors file")
        self.tensors.pop("__metadata__", None)
        if self.tensors.doubled is not None:
            raise ValueError(f"{path}: the header describes {self.tensors.doubled} twice")
        self.begin = 8 + length

    def type_of(self, name: str) -> str:
        return self._entry(name)[0]

    def shape_of(self, name: str) -> tuple[int, ...]:
        return tuple(self._entry(name)[1])

    def read(self, name: str) -> torch.Tensor:
        kind, shape, first, last = self._entry(name)
        dtype = _TYPES[kind]
        width = _width(kind)
        if last == first:
            return torch.empty(shape, dtype=dtype)
        data = torch.frombuffer(self.memory, dtype=torch.uint8, count=last - first, offset=first)
        return (data if first % width == 0 else data.clone()).view(dtype).view(shape)

    def read_into(self, target: torch.Tensor, offset: int):
        """Fills the contiguous `target` with the bytes from `offset` on. If a layer has it, for writes.write()."""
        done = read_file(self.file.fileno(), offset, target)
        if done < target.numel() * target.element_size():
            raise ValueError(f"{self.path}: ends at byte {offset + done} of {self.size}: it was truncated meanwhile")

    def _entry(self, name: str) -> tuple[str, list[int], int, int]:
        entry = self.tensors.get(name)
        kind, shape, offsets = (entry.get(key) if isinstance(entry, dict) else None for key in ("dtype", "shape", "data_offsets"))
        good = isinstance(shape, list) and isinstance(offsets, list) and len(offsets) == 2 and all(map(is_size, shape + offsets))
        if not good or len(shape) > _MAX_DIMENSIONS or math.prod(shape) >= 1 << 62:
            raise ValueError(f"{self.path}: the header does not describe {name}")
        first, last = offsets
        if not isinstance(kind, str) or kind not in _TYPES:
            raise ValueError(f"{self.path}: {name} has type {kind!r}, expected one of {', '.join(_TYPES)}")
        if not first <= last <= self.size - self.begin:
            raise ValueError(
                f"{self.path}: {name} is in bytes {first} to {last} of {self.size - self.begin}: the file is truncated"
            )
        if last - first != math.prod(shape) * _width(kind):
            raise ValueError(f"{self.path}: {name} is {kind} {shape} in {last - first} bytes, expected {math.prod(shape) * _width(kind)}")
        return kind, shape, self.begin + first, self.begin + last


def _width(kind: str) -> int:
    return torch.empty(0, dtype=_TYPES[kind]).element_size()


class Checkpoint(collections.abc.Mapping):
    """The tensors of a safetensors file, or of a folder with such files, by name.

    A folder has an index (model.safetensors.index.json), or all its *.safetensors files are read. Tensors are views of
    mapped memory: pages are read when they are used, and a change of a tensor reaches no file. Numbers of 8 bits (FP8)
    are uint8; type_of() has the name of their type.
    ValueError: a file that is missing, truncated or something else; a tensor that several files have; at access, one
    that its file has not. KeyError: a name that no file has.
    """

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self._files, self._file_of = {}, {}
        index = self.path / INDEX
        if index.is_file():
            error = f"{index}: no index of safetensors files: expected an object 'weight_map' of names of files"
            files = read_object(_content(index), error).get("weight_map")
            if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
                raise ValueError(error)
            self._file_of = {name: self.path / file for name, file in files.items()}
            if files.doubled is not None:
                raise ValueError(f"{index}: {files.doubled} is there twice")
            return
        paths = sorted(self.path.glob("*.safetensors")) if self.path.is_dir() else [self.path]
        if not paths:
            raise ValueError(f"{self.path}: has neither {INDEX} nor *.safetensors")
        for each in paths:
            for name in self._open(each).tensors:
                if name in self._file_of:
                    raise ValueError(f"{name} is in {self._file_of[name]} and in {each}")
                self._file_of[name] = each

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._open(self._file_of[name]).read(name)

    def __iter__(self):
        return iter(self._file_of)

    def __len__(self) -> int:
        return len(self._file_of)

    def type_of(self, name: str) -> str:
        """The type of a tensor in the words of the format."""
        return self._open(self._file_of[name]).type_of(name)

    def shape_of(self, name: str) -> tuple[int, ...]:
        """What the header says of a tensor."""
        return self._open(self._file_of[name]).shape_of(name)

    def has_numbers(self, name: str) -> bool:
        """Whether a tensor is of floating-point numbers, neither codes nor whole numbers."""
        return self.type_of(name) in NUMBERS

    def in_file(self, name: str) -> str:
        """The name of the tensor that has this one: itself."""
        return name

    def paths(self) -> list[pathlib.Path]:
        """The files."""
        return sorted(set(self._file_of.values()))

    def reopened(self) -> "Checkpoint":
        """The same files, mapped anew: without changes of this one's tensors, and for release()."""
        other = copy.copy(self)
        other._files = {}
        return other

    def has_memory(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is memory of the files, row after row."""
        return tensor.is_contiguous() and self._of(tensor) is not None

    def _of(self, tensor: torch.Tensor) -> _File | None:
        address = tensor.data_ptr()
        return next((each for each in self._files.values() if 0 <= address - each.address < each.size), None)

    def copy_into(self, target: torch.Tensor, tensor: torch.Tensor):
        """write(target, tensor) for a tensor of this checkpoint, a part of one, or any other. What is contiguous in a file is
        read, which is faster than to map its pages, and takes no memory."""
        address, file = tensor.data_ptr(), self._of(tensor)
        if file is None or not tensor.is_contiguous():
            write(target, tensor)
        elif tensor.dtype == target.dtype and tensor.shape == target.shape and target.is_contiguous():
            write(target, lambda memory: file.read_into(memory, address - file.address))
        else:
            rows = max(1, _CONVERTED // max(1, tensor[:1].numel()))
            for to, part in zip(target.split(rows), tensor.split(rows)):
                own = torch.empty_like(part)
                file.read_into(own, part.data_ptr() - file.address)
                write(to, own)

    def release(self):
        """Gives back the pages that were read; tensors keep their numbers unless they were changed."""
        for file in self._files.values():
            file.memory.madvise(mmap.MADV_DONTNEED)

    def config(self) -> dict:
        """What config.json beside the files says; empty if there is none."""
        path = (self.path if self.path.is_dir() else self.path.parent) / "config.json"
        return read_object(_content(path), f"{path}: expected a JSON object") if path.is_file() else {}

    def _open(self, path: pathlib.Path) -> _File:
        if path not in self._files:
            self._files[path] = _File(path)
        return self._files[path]
