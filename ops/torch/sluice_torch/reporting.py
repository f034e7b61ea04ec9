"""What a layer is, or what it did in a trace, as a page, a picture or text."""

from __future__ import annotations

import os
import subprocess

from . import cache

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
