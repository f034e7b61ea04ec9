"""Loads a layer of pack-quantised experts from a safetensors file: time, against reading the file, and peak memory."""

import concurrent.futures
import dataclasses
import json
import mmap
import multiprocessing
import os
import pathlib
import shutil
import struct
import tempfile
import time

import torch

from bench_torch.memory import field, forget_peak

PREFIX = "model.layers.0.mlp.experts"
NAMES = ("gate_proj", "up_proj", "down_proj")
_CHUNK = 4 << 20  # of read()
_BLOCK = 64 << 20  # of random bytes, of which each tensor has a stretch


@dataclasses.dataclass(frozen=True)
class Experts:
    """Pack-quantised experts in one file: 4-bit codes, a BF16 scale per group."""

    experts: int
    hidden: int
    intermediate: int
    group: int

    def __str__(self) -> str:
        return f"{self.experts} experts, H {self.hidden}, I {self.intermediate}, groups of {self.group}"

    def tensors(self):
        """(name, type, shape, bytes) in the order of the file."""
        for expert in range(self.experts):
            for name in NAMES:
                out, length = (self.hidden, self.intermediate) if name == "down_proj" else (self.intermediate, self.hidden)
                base = f"{PREFIX}.{expert}.{name}"
                yield f"{base}.weight_packed", "I32", [out, length // 8], out * length // 2
                yield f"{base}.weight_scale", "BF16", [out, length // self.group], out * length // self.group * 2
                yield f"{base}.weight_shape", "I64", [2], 16

    @property
    def file_bytes(self) -> int:
        """Counts the bytes of the tensors: codes, scales, and two sizes."""
        numbers = 3 * self.experts * self.hidden * self.intermediate
        return numbers // 2 + numbers // self.group * 2 + 3 * self.experts * 16

    @property
    def layer_bytes(self) -> int:
        """Codes, and scales as the file has them."""
        numbers = 3 * self.experts * self.hidden * self.intermediate
        return numbers // 2 + numbers // self.group * 2


def measure(shape: Experts, folder: str | None, threads: int) -> dict:
    """All results that `bench-torch load` prints. ValueError: too little memory or disk."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        _check_room(shape, own)
        path = pathlib.Path(own) / "experts.safetensors"
        block = torch.randint(0, 256, (_BLOCK,), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
        _write(path, shape, block.numpy())
        found = {"shape": vars(shape) | {"text": str(shape)}, "file_bytes": path.stat().st_size, "layer_bytes": shape.layer_bytes}
        for name, is_cold in (("disk", True), ("page_cache", False)):
            with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                found[name] = process.submit(_measure, path, shape, threads, is_cold).result(timeout=1800)
        return found


def _check_room(shape: Experts, folder: str):
    free, needed = shutil.disk_usage(folder).free, shape.file_bytes
    if free < 1.05 * needed:
        raise ValueError(f"{folder} has {free / 1e9:.1f} GB free, expected {1.05 * needed / 1e9:.1f} for {shape}: --folder, --experts")
    available, needed = field("MemAvailable", "/proc/meminfo") * 2**20, shape.file_bytes + 1.1 * shape.layer_bytes
    if available < needed:
        raise ValueError(f"{available / 1e9:.1f} GB of memory are available, expected {needed / 1e9:.1f} for {shape}: --experts")


def _stretch(number: int, size: int) -> tuple[int, int]:
    """Where tensor `number` begins in the random block, and how much of it there is at a time."""
    return number * 4096 % (_BLOCK // 2), min(size, _BLOCK // 2)


def _write(path: pathlib.Path, shape: Experts, block):
    header, end = {}, 0
    for name, kind, sizes, size in shape.tensors():
        header[name] = {"dtype": kind, "shape": sizes, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for number, (name, kind, sizes, size) in enumerate(shape.tensors()):
            if kind == "I64":
                base = header[name.replace("_shape", "_packed")]["shape"]
                file.write(struct.pack("<2q", base[0], 8 * base[1]))
                continue
            begin, most = _stretch(number, size)
            for done in range(0, size, most):
                file.write(block[begin : begin + min(most, size - done)])
        file.flush()
        os.fsync(file.fileno())


def _measure(path: pathlib.Path, shape: Experts, threads: int, is_cold: bool) -> dict:
    """In this process alone: seconds of reading the file, of loading a new layer, of loading it again, and of taking as much
    memory once the layer is gone; MiB before the first load, and at its peak."""
    import sluice_torch

    torch.set_num_threads(threads)
    found = {"read": _seconds(lambda: _read(path), path, is_cold)}
    options = {"encode": f"int4:g{shape.group}:bf16,rows=int8", "steps": sluice_torch.Steps(threads=threads), "initialise": False}
    layer = sluice_torch.MoE(shape.hidden, shape.intermediate, shape.experts, 1, **options)
    found["before"] = field("VmRSS")
    forget_peak()
    found["new"] = _seconds(lambda: sluice_torch.load_experts(path, layer, PREFIX), path, is_cold)
    found["peak"] = field("VmHWM")
    found["again"] = _seconds(lambda: sluice_torch.load_experts(path, layer, PREFIX), path, is_cold)
    _check(path, layer)
    del layer
    found["memory"] = _seconds(lambda: _hand_out(shape.layer_bytes), path, False)
    return found


def _seconds(run, path: pathlib.Path, is_cold: bool) -> float:
    if is_cold:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _read(path: pathlib.Path):
    """By read() into a buffer that is used again and again."""
    buffer = bytearray(_CHUNK)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def _hand_out(size: int):
    """Sets one byte of each page of new memory."""
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        torch.frombuffer(memory, dtype=torch.uint8)[::4096].fill_(1)


def _check(path: pathlib.Path, layer):
    """RuntimeError: the last expert's down has other codes than the file."""
    import sluice_torch

    expert = layer.shape.experts - 1
    expected = sluice_torch.Checkpoint(path)[f"{PREFIX}.{expert}.down_proj.weight_packed"].view(torch.uint8)
    if not torch.equal(layer.down_weight[expert], expected):
        raise RuntimeError(f"expert {expert} of the layer has other codes than {path}")


def print_load(found: dict):
    file, layer = found["file_bytes"], found["layer_bytes"]
    print(f"{found['shape']['text']}: file {file / 1e9:.2f} GB, layer {layer / 1e9:.2f} GB")
    print(f"{'':24}{'read()':>22}{'a new layer':>22}{'a layer in use':>22}{'peak memory / layer':>22}")
    for name in ("disk", "page_cache"):
        each = found[name]
        times = "".join(f"{each[what]:12.2f} s{file / each[what] / 1e9:6.2f} GB/s".rjust(22) for what in ("read", "new", "again"))
        peak = (each["peak"] - each["before"]) * 2**20
        print(f"from the {name.replace('_', ' '):15}{times}{peak / layer:22.2f}")
    print(f"one byte of each page of as much new memory: {found['disk']['memory']:.2f} and {found['page_cache']['memory']:.2f} s")
