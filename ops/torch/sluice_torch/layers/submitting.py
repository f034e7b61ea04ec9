"""Steps of a layer in flight: begun, while the caller goes on."""

import torch

from ..base import recording


class PendingForward:
    """A submitted forward step; destroying it waits for the step."""

    def __init__(self, y: torch.Tensor, pending, shape: torch.Size, dtype: torch.dtype):
        self._y, self._pending, self._shape, self._dtype = y, pending, shape, dtype

    def wait(self) -> torch.Tensor:
        """Waits for y and returns it, with the gradients that were enabled when the step was submitted. RuntimeError: the step
        failed or was cancelled."""
        self._pending.wait()
        with torch.set_grad_enabled(self._y.requires_grad or torch.is_grad_enabled()):
            return self._y.to(self._dtype).view(self._shape)

    def done(self) -> bool:
        return self._pending.done()

    def cancel(self):
        """Cancels the step. If it has not begun, it never begins. A running step is aborted at all ranks, which then
        cannot continue."""
        self._pending.cancel()


def check_submitted(shape, *tensors: torch.Tensor):
    """RuntimeError: a gradient of these is required, and the step has scales of its own."""
    if torch.is_grad_enabled() and shape.encodings.facts.has_scales and any(each.requires_grad for each in tensors):
        raise RuntimeError(f"submit_forward has no gradients with {shape.encodings}: call it under torch.no_grad()")


class Submits:
    """What MoE inherits from here."""

    @recording.outside_graphs
    def submit_forward(
        self, x: torch.Tensor, expert_ids: torch.Tensor, expert_weights: torch.Tensor
    ) -> PendingForward:
        """Like forward(), but it begins the step and returns at once. Steps run in order, the backward of one included: it
        begins when those that were submitted before have ended.

        Do not change the tensors before the step is done. RuntimeError: a gradient is required, and the encodings have scales of
        their own in each step.
        """
        recording.refuse("sluice_torch.MoE", x, expert_ids, expert_weights)
        with self._shared().refusing():
            self.shape.refuse_per_rank("submit_forward")
        (y, pending), _ = self._request(self.shape, x, expert_ids, expert_weights, submits=True)
        return PendingForward(y, pending, x.shape, x.dtype)

    @property
    def spans_machines(self) -> bool:
        """Whether the layer's ranks are on several machines. Collective at first use."""
        return self._shared().spans_machines

    @property
    def step_encodings(self):
        """The encodings of a step that is requested now: the layer's, or the encodings of the context fp8_autocast."""
        return self._rounding(self.shape)[0].encodings
