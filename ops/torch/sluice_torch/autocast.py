"""fp8_autocast: the precision of the layers that were made without one, by the context in which their forward runs."""

import contextlib
import dataclasses
import functools
import threading

import torch

from .precision import BF16, Precision
from .recipe import MXFP8BlockScaling, Recipe


@dataclasses.dataclass(frozen=True)
class _Active:
    precision: Precision = BF16
    in_backward: bool = False  # began inside a backward


class _Thread(threading.local):
    active = _Active()


_thread = _Thread()


@contextlib.contextmanager
def fp8_autocast(enabled: bool = True, fp8_recipe: Recipe | None = None, fp8_group=None):
    """A context in which layers that were made without `precision` use a recipe of sluice_torch.recipe, by default
    MXFP8BlockScaling(), or bfloat16 if not `enabled`. A backward follows its forward, wherever it runs.

    The innermost context counts; each thread has its own. `fp8_group` has no effect on MXFP8BlockScaling, whose blocks are
    those of one rank. ValueError: what is no recipe, or one that is not supported yet.
    """
    del fp8_group
    precision = BF16
    if enabled:
        recipe = MXFP8BlockScaling() if fp8_recipe is None else fp8_recipe
        if not isinstance(recipe, Recipe):
            raise ValueError(f"fp8_recipe is of type {type(recipe).__name__}, expected a recipe of sluice_torch.recipe")
        precision = recipe.precision()
    with _activated(_Active(precision, _is_in_backward())):
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
    """The precision of each step of a layer: the layer's own or, if that is None, that of the context.

    A forward that is repeated in a backward, by torch.utils.checkpoint, outside of the context of the first one, has the
    precision of the layer's last forward before it in the same mode (training or not).
    """

    def __init__(self, own: Precision | None):
        self.own = own
        self._before = {}  # mode -> precision of the last forward outside of backwards

    def __str__(self) -> str:
        """For the description of a layer; empty without a precision of its own."""
        return "" if self.own is None else f", {self.own}"

    def apply(self, shape, training: bool):
        """`shape` with the precision of a step that begins now. ValueError: the shape does not have it."""
        precision = self._choose(training) if self.own is None else self.own
        return shape if shape.precision == precision else dataclasses.replace(shape, precision=precision)

    def _choose(self, training: bool) -> Precision:
        active = _thread.active
        before = self._before.get(training, active.precision)
        if before != active.precision and not active.in_backward and _is_in_backward():
            return before
        self._before[training] = active.precision
        return active.precision


def _is_in_backward() -> bool:
    """Whether autograd runs a backward in this thread."""
    if hasattr(torch._C, "_current_graph_task_id"):
        return torch._C._current_graph_task_id() != -1
    try:  # before PyTorch 2.1: only a backward takes callbacks
        torch.autograd.Variable._execution_engine.queue_callback(lambda: None)
    except RuntimeError:
        return False
    return True
