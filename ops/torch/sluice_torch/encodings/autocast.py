"""fp8_autocast: the encodings of the layers that were made without any, by the context in which their forward runs."""

import contextlib
import dataclasses
import functools
import threading
import weakref

import torch
import torch.distributed as dist

from ..recipe import MXFP8BlockScaling, Recipe
from .encodings import BF16, Encodings


@dataclasses.dataclass(frozen=True)
class _Active:
    encodings: Encodings = BF16
    group: object = None  # over whose ranks amaxes are the largest
    in_backward: bool = False  # began inside a backward


class _Thread(threading.local):
    active = _Active()


_thread = _Thread()


@contextlib.contextmanager
def fp8_autocast(enabled: bool = True, fp8_recipe: Recipe | None = None, fp8_group=None):
    """A context in which layers that were made without `encode` use a recipe of sluice_torch.recipe, by default
    MXFP8BlockScaling(), or bfloat16 if not `enabled`. A backward follows its forward, wherever it runs.

    The innermost context counts; each thread has its own. With DelayedScaling, amaxes are the largest of the ranks of
    `fp8_group`, a group of torch.distributed: all its ranks run the same layers in the same order. Other recipes ignore it,
    because their scales follow from one rank's numbers. ValueError: what is no recipe, or no group that has this process.
    """
    if fp8_group is not None and not (dist.is_available() and isinstance(fp8_group, dist.ProcessGroup)):
        raise ValueError(f"fp8_group is of type {type(fp8_group).__name__}, expected a group of torch.distributed with this process")
    encodings = BF16
    if enabled:
        recipe = MXFP8BlockScaling() if fp8_recipe is None else fp8_recipe
        if not isinstance(recipe, Recipe):
            raise ValueError(f"fp8_recipe is of type {type(recipe).__name__}, expected a recipe of sluice_torch.recipe")
        encodings = recipe.encodings()
    reduces = encodings.delayed is not None and encodings.delayed.reduce
    with _activated(_Active(encodings, fp8_group if reduces else None, is_in_backward())):
        yield


@contextlib.contextmanager
def _activated(active: _Active):
    before, _thread.active = _thread.active, active
    try:
        yield
    finally:
        _thread.active = before


def carry(function):
    """Returns the function, to be run in another thread, with the context of this one."""
    active = _thread.active

    @functools.wraps(function)
    def run(*arguments):
        with _activated(active):
            return function(*arguments)

    return run


class Chooser:
    """The encodings of each step of a layer: the layer's own or, if these are None, the context's.

    A forward that is repeated in a backward, by torch.utils.checkpoint, outside of the context of the first one, has the
    encodings of the layer's last forward before it in the same mode (training or not).
    """

    def __init__(self, own: Encodings | None):
        self.own = own
        self._before = {}  # mode -> encodings and group of the last forward outside of backwards

    def __str__(self) -> str:
        """For the description of a layer; empty without encodings of its own."""
        return "" if self.own is None else f", {self.own}"

    def apply(self, shape, training: bool) -> tuple:
        """`shape` with the encodings of a step that begins now, and the fp8_group of its context, if it matters. ValueError:
        sizes that these do not allow."""
        encodings, group = self._choose(training) if self.own is None else (self.own, None)
        shape = shape if shape.encodings == encodings else dataclasses.replace(shape, encodings=encodings)
        return shape, group

    def _choose(self, training: bool) -> tuple:
        active = _thread.active
        encodings, group = self._before.get(training, (active.encodings, None))
        if encodings != active.encodings and not active.in_backward and is_in_backward():
            return encodings, group and group()
        # no layer keeps a process group
        self._before[training] = active.encodings, active.group and weakref.ref(active.group)
        return active.encodings, active.group

    def __getstate__(self):
        return {"own": self.own, "_before": {}}


def is_in_backward() -> bool:
    """Whether autograd runs a backward in this thread."""
    if hasattr(torch._C, "_current_graph_task_id"):
        return torch._C._current_graph_task_id() != -1
    try:  # before PyTorch 2.1: only a backward takes callbacks
        torch.autograd.Variable._execution_engine.queue_callback(lambda: None)
    except RuntimeError:
        return False
    return True
