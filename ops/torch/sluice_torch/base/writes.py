"""All writes of Sluice into parameters, buffers, codes, scales and adapters.

What a layer keeps for a weight between steps (packed weights, amaxes) is used as long as the weight's version, autograd's
count of its changes, stays as it is. A write that does not raise the version leaves the old numbers in use. So write() is
the only function that writes there, and tools/ci/check_style.py refuses other ways.
"""

import contextlib
import ctypes
import os

import torch


def write(target: torch.Tensor, content):
    """Sets a tensor with one dimension or more, or a view of one, and raises its version.

    content  a tensor of that shape, whose numbers are converted like by copy_(); or a function fill(memory) that changes
             `memory`, the same numbers without a version. If it fails, the version is raised, too.
    """
    with _writing(target):
        if isinstance(content, torch.Tensor):
            target.copy_(content)
            return
        try:
            content(target.detach())
        finally:
            target[:0].zero_()  # writes nothing, and counts as a change


def read_file(descriptor: int, offset: int, memory: torch.Tensor) -> int:
    """Fills contiguous `memory` with the bytes of a file from `offset` on. Returns how many there were. For the `fill` of
    write(), or a tensor that no layer has."""
    done, size = 0, memory.numel() * memory.element_size()
    while done < size:
        rest = (ctypes.c_char * (size - done)).from_address(memory.data_ptr() + done)
        got = os.preadv(descriptor, [rest], offset + done)
        if not got:
            break
        done += got
    return done


def free(parameter: torch.nn.Parameter):
    """Makes a parameter, whose weights a layer has taken over, and its gradient empty."""
    parameter.data = torch.empty(0, dtype=parameter.dtype)
    parameter.grad = None


@contextlib.contextmanager
def _writing(target: torch.Tensor):
    """Without gradients; tensors of inference mode can be changed only in it, and have no version."""
    with torch.inference_mode(target.is_inference()), torch.no_grad():
        yield
