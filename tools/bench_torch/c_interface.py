"""The C interface (runtime/api/sluice.h) by ctypes, as far as one step of a layer needs it."""

import ctypes
import os

import torch

_TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.int32: 3}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("type", ctypes.c_int32),
        ("dim_count", ctypes.c_int32),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("data", ctypes.c_void_p),
        ("flags", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class _ContextOptions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("workspace", ctypes.c_void_p),
        ("threads", ctypes.c_int32),
        ("pinning", ctypes.c_int32),
        ("executor", ctypes.c_int32),
        ("pack_each_step", ctypes.c_int32),
        ("timeout_seconds", ctypes.c_double),
        ("packed_bytes", ctypes.c_int64),
    ]


def find_library() -> str:
    """libsluice.so: $SLUICE_LIBRARY, or in the Bazel tree."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    place = os.environ.get("SLUICE_LIBRARY") or os.path.join(root, "bazel-bin/runtime/api/libsluice.so")
    if not os.path.exists(place):
        raise RuntimeError(f"{place} is not there: SLUICE_LIBRARY names another")
    return place


class BareLayer:
    """A program in a context of its own, alone. Lives as long as its process."""

    def __init__(self, path: str, tensors: dict, threads: int):
        self._library = ctypes.CDLL(find_library())
        self._library.sluice_last_error.restype = ctypes.c_char_p
        program, alone, self._context = (ctypes.c_void_p() for _ in range(3))
        options = _ContextOptions(size=ctypes.sizeof(_ContextOptions), threads=threads)
        self._call("sluice_program_load", path.encode(), ctypes.byref(program))
        self._call("sluice_transport_alone", ctypes.byref(alone))
        self._call("sluice_context_create", program, alone, ctypes.byref(options), ctypes.byref(self._context))
        self._kept = tensors
        for name, tensor in tensors.items():
            dims = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
            kind = _TYPES[tensor.dtype]
            view = _Tensor(ctypes.sizeof(_Tensor), kind, tensor.dim(), dims, tensor.data_ptr(), 0, 0)
            self._call("sluice_context_bind", self._context, name.encode(), ctypes.byref(view))
        self._run = self._library.sluice_context_run
        self._run.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32]

    def run(self):
        if self._run(self._context, b"forward", 0) != 0:
            raise RuntimeError(self._library.sluice_last_error().decode())

    def _call(self, name: str, *arguments):
        if getattr(self._library, name)(*arguments) != 0:
            raise RuntimeError(f"{name}: {self._library.sluice_last_error().decode()}")
