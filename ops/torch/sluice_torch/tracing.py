"""trace: what all layers of this process do in some steps, as a file for ui.perfetto.dev."""

import contextlib
import os
import warnings

import torch

from . import library


@contextlib.contextmanager
def trace(path):
    """Records what every worker does in the steps of all layers inside the context, forward and backward, and writes it
    to `path` at its end: a process of the file is a layer's program at this rank, with every task and wait
    (docs/TRACE.md). "{rank}" in the path is replaced by RANK, or 0. Layers of the same sizes share a program. Yields the
    path as it was given: layer.report(..., trace=path) shows what a layer did.

    Results keep their bits; recording costs 20 to 60 ns per task. An exception inside ends the recording and writes
    nothing, unless ranks had begun a step and it failed: then the file shows for what each worker waited.
    RuntimeError: a trace inside a trace; no layer ran; the file cannot be written.
    """
    library.load()
    given = os.fspath(path)
    own = given.replace("{rank}", os.environ.get("RANK", "0"))
    torch.ops.sluice.trace_start()
    try:
        yield given
    except BaseException:
        try:
            torch.ops.sluice.trace_write(own, True)
        except RuntimeError as error:  # the other one matters more
            warnings.warn(str(error), stacklevel=3)
        raise
    torch.ops.sluice.trace_write(own, False)
