"""trace: what all layers of this process do in some steps, as a file for ui.perfetto.dev."""

import contextlib
import os

import torch

from . import library


@contextlib.contextmanager
def trace(path):
    """Records what every worker does in the steps of all layers inside the context, forward and backward, and writes it
    to `path` at its end: a process of the file is a layer's program at this rank, with every task and wait
    (docs/TRACE.md). "{rank}" in the path is replaced by RANK, or 0. Layers of the same sizes share a program.

    Results keep their bits; recording costs 20 to 60 ns per task. An exception inside ends the recording and writes
    nothing. RuntimeError: a trace inside a trace; no layer ran; the file cannot be written.
    """
    library.load()
    path = os.fspath(path).replace("{rank}", os.environ.get("RANK", "0"))
    torch.ops.sluice.trace_start()
    try:
        yield
    except BaseException:
        torch.ops.sluice.trace_write("")
        raise
    torch.ops.sluice.trace_write(path)
