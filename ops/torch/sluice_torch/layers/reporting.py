"""A report of a layer, as a page, a picture or text; and a trace of the steps of all layers."""

import contextlib
import os
import subprocess
import warnings

import torch

from .. import cache
from ..base import library

_FORMATS = {".html": "html", ".svg": "svg", ".txt": "text"}


class Reports:
    """For modules whose programs are the values of _layers."""

    def report(self, path="report.html", trace=None) -> str:
        """Writes a report (docs/REPORT.md) to `path` and returns it. The end of the path says what it is: .html (a page
        that needs no network), .svg (a picture of a run) or .txt.

        Without `trace` it shows the program that this layer made last: families, events, lanes, memory. With the
        path that sluice_torch.trace() got, it shows what this layer and others with the same program did there; a
        "{rank}" in it stands for the files of all ranks, which must have been written, so call it at one rank, after a
        barrier.

        ValueError: another end of the path. RuntimeError: the layer has no program before its first step or prepare();
        the trace cannot be read, or does not have the layer; the file cannot be written.
        """
        path = os.fspath(path)
        form = _FORMATS.get(os.path.splitext(path)[1])
        if form is None:
            raise ValueError(f"found path {path!r}, expected an end of {', '.join(_FORMATS)}")
        programs = [held.path for held in reversed(self._layers.values())]
        if not programs:
            raise RuntimeError("the layer has no program: run a step, or call prepare()")
        output = ["-o", path, "--format", form]
        if trace is None:
            _run(["report", programs[0], *output])
        else:
            choices = [argument for program in programs for argument in ("--program", program)]
            _run(["report", os.fspath(trace), *choices, *output])
        return path


def _run(arguments: list[str]):
    done = subprocess.run([cache.find_tool("sluice"), *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().replace("sluice: error: ", "sluice: ", 1))


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
