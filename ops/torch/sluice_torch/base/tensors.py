"""Tensors in the form that the library accepts, and in memory that it reads fast."""

import ctypes
import functools
import mmap
import os

import torch

# Smaller ones would waste most of a huge page.
_LEAST_BYTES = 4 << 20


def empty_weight(*sizes, dtype: torch.dtype | None = None) -> torch.Tensor:
    """torch.empty(), and where the system leaves the choice to programs, in huge pages: kernels read rows of a weight that
    are pages apart."""
    made = torch.empty(*sizes, dtype=dtype)
    bytes_of_it = made.numel() * made.element_size()
    has_memory = type(made) is torch.Tensor and made.device.type == "cpu"
    if has_memory and bytes_of_it >= _LEAST_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        begin = -(-made.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (made.data_ptr() + bytes_of_it) // mmap.PAGESIZE * mmap.PAGESIZE
        # a hint: where it is refused, pages stay small
        ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_HUGEPAGE)
    return made


# What mallopt() calls the size from which each allocation is a mapping of its own, and the size of free memory that is given back.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1


@functools.lru_cache(maxsize=None)
def keep_freed_memory():
    """Lets the C library keep freed memory for the next allocation. A step of training makes temporary tensors as large as all experts of a
    layer (gradients, and what optimizers compute), and the system would clear their pages anew each time. A process that has set
    variables of malloc itself keeps its settings."""
    is_set = any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)
    library = ctypes.CDLL(None)
    if not is_set and hasattr(library, "mallopt"):
        library.mallopt(_MMAP_THRESHOLD, 1 << 30)
        library.mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)


def in_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Memory for a parameter or buffer on meta, with undefined numbers."""
    made = empty_weight(tensor.shape, dtype=tensor.dtype)
    return torch.nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else made


def as_stored(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy, whose memory holds its values row after row. Returns other tensors unchanged, to be
    refused."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
        return tensor
    return tensor.contiguous().resolve_neg()
