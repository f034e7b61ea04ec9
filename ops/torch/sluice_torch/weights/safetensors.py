"""Writes safetensors files; checkpoint.py reads them."""

import contextlib
import ctypes
import json
import os
import struct
import tempfile

import torch

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
# Tensors begin at a multiple of so many bytes if their sizes are multiples: lines of a cache.
_ALIGNMENT = 64


@contextlib.contextmanager
def replacing(path):
    """A context manager: a file, open for writing bytes, that has the name `path` when the body ends, and is removed if it
    fails. So no reader finds a part of it."""
    folder, name = os.path.split(os.path.abspath(path))
    descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
        raise


def write(path, tensors: dict[str, torch.Tensor], kinds: dict[str, str] | None = None):
    """Writes a file with these tensors, which are of a type in _NAMES; `kinds`: other names of types, such as F8_E4M3 for codes in
    uint8. OSError: it cannot be written."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        kind = (kinds or {}).get(name) or _NAMES[tensor.dtype]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    with replacing(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            own = tensor.detach().contiguous()
            if own.numel():
                file.write((ctypes.c_char * (own.numel() * own.element_size())).from_address(own.data_ptr()))


def _umask() -> int:
    """That of this process, which only setting it returns; files of mkstemp() are for their owner alone."""
    found = os.umask(0)
    os.umask(found)
    return found
