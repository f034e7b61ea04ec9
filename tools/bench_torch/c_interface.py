"""One step of a layer through the C interface (runtime/api/sluice.h)."""

import ctypes
import os

import torch

from bench_torch.c_library import TYPES, ContextOptions, Library, Tensor

_TYPES = {torch.float32: TYPES["F32"], torch.bfloat16: TYPES["BF16"], torch.int32: TYPES["I32"]}


def find_library() -> str:
    """libsluice.so: $SLUICE_LIBRARY, or in the Bazel tree."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    place = os.environ.get("SLUICE_LIBRARY") or os.path.join(root, "bazel-bin/runtime/api/libsluice.so")
    if not os.path.exists(place):
        raise RuntimeError(f"there is no {place}: SLUICE_LIBRARY can specify another")
    return place


class BareLayer:
    """A program in its own context, with one rank. Lives as long as the process."""

    def __init__(self, path: str, tensors: dict, threads: int):
        self._library = Library(find_library())
        program = self._library.make("program_load", path.encode())
        alone = self._library.make("transport_threads", 1)
        options = ContextOptions(size=ctypes.sizeof(ContextOptions), threads=threads)
        self._context = self._library.make("context_create", program, alone, ctypes.byref(options))
        self._kept = tensors
        for name, tensor in tensors.items():
            dims = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
            kind = _TYPES[tensor.dtype]
            view = Tensor(ctypes.sizeof(Tensor), kind, tensor.dim(), dims, tensor.data_ptr(), 0, 0)
            self._library.call("context_bind", self._context, name.encode(), ctypes.byref(view))

    def run(self):
        self._library.call("context_run", self._context, b"forward", 0)
