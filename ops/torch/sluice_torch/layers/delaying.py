"""Weight gradients that a step of their own computes when the caller asks for them, after the backward."""

import torch

from ..base import recording


class _Given(torch.autograd.Function):
    """apply(grads, *weights): a zero whose backward gives each weight its gradient, and empties `grads`. So autograd keeps them as they
    are; torch.autograd.backward(weights, grads) would copy each, since its caller refers to them."""

    @staticmethod
    def forward(ctx, grads, *weights):
        ctx.grads = grads
        return torch.zeros(())

    @staticmethod
    def backward(ctx, zero):
        given = (None, *ctx.grads)
        ctx.grads.clear()
        return given


@torch.enable_grad()
def _give(weights: list[torch.Tensor], grads: list[torch.Tensor]):
    _Given.apply(grads, *weights).backward()


class PendingWeightGrads:
    """Submitted weight gradients; destroying it waits for the step, and drops them."""

    def __init__(self, weights: list[torch.Tensor], grads: list[torch.Tensor], step):
        self._weights, self._grads, self._step = weights, grads, step

    def wait(self):
        """Waits for the gradients and gives them to autograd; again it does nothing. RuntimeError: the step failed."""
        if self._step is not None:
            self._step.wait()
            self._step = None  # frees the saved set
            _give(self._weights, self._grads)

    def done(self) -> bool:
        return self._step is None or self._step.done()


class Delays:
    """Part of a layer with `delay_wgrad_compute`, a bool, and `_shared()`.

    A backward then computes the other gradients, and keeps what the weight gradients need: in its saved set, which is free
    after backward_dw(), as are tensors of the step (with one rank x and the gradient of y, which must not change until then).
    """

    _delayed = None  # a WeightGradQueue, from the first step on

    @recording.outside_graphs
    def backward_dw(self):
        """Computes the weight gradients of the oldest backward that has none yet, and gives them to autograd: to the `.grad` of
        parameters, or to their main_grad, and to hooks, all as the backward itself does without `delay_wgrad_compute`. Call it once
        per backward that requires gradients of parameters, in any order with later forwards and backwards, before the optimizer.
        Code that waits for gradients by hooks of autograd, such as Megatron's DistributedDataParallel, gets them here.

        A step: collective, and in the same order at all ranks among those of backward_dw(), although it sends no rows. RuntimeError: no
        backward waits; a tensor that it needs was changed in place since.
        """
        weights, grads, _ = self._compute(False)
        _give(weights, grads)

    @recording.outside_graphs
    def submit_backward_dw(self) -> "PendingWeightGrads":
        """Begins backward_dw() and returns at once: the step runs beside later forwards and backwards, while these wait for rows. The
        gradients are given to autograd by wait() of the result."""
        return PendingWeightGrads(*self._compute(True))

    def _compute(self, submits: bool) -> tuple:
        if not self.delay_wgrad_compute:
            raise RuntimeError("backward_dw without delay_wgrad_compute=True: the backward has computed the weight gradients")
        with self._shared().refusing(beside=True):
            self._queue().check()
        return self._queue().compute(submits)

    def _queue(self):
        """Where backwards put what is left to do; None: nothing is delayed."""
        if self.delay_wgrad_compute and self._delayed is None:
            self._delayed = torch.classes.sluice.WeightGradQueue()
        return self._delayed

    def _delaying(self, needed: tuple[bool, ...]) -> tuple[str, ...]:
        """The options of sluicec for these needed gradients of weights."""
        return ("--delay-weight-grads",) if self.delay_wgrad_compute and any(needed) else ()

    def _check_settled(self, what: str):
        """RuntimeError: weight gradients wait for backward_dw()."""
        if self._delayed is not None and self._delayed.size():
            raise RuntimeError(f"{what}: {self._delayed.size()} backwards wait for their weight gradients, expected backward_dw() before")
