"""The tensors that a step of MoE gets from its caller, and the result of one that was submitted."""

import torch

from .graphs import LayerShape
from .tensors import as_stored

DTYPES = (torch.bfloat16, torch.float32)


def operands_of(shape: LayerShape, x, expert_ids, expert_weights, device: torch.device) -> tuple[torch.Tensor, ...]:
    """x [T, H], ids [T, K] and weights [T, K], in types that the op accepts if the tensors are otherwise correct.
    `device` is that of the layer's parameters.
    ValueError: other types, devices, layouts or shapes."""
    for name, tensor in (("x", x), ("expert_ids", expert_ids), ("expert_weights", expert_weights)):
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{name} is of type {type(tensor).__name__}, expected a tensor")
        if tensor.device != device:
            raise ValueError(f"{name} is on {tensor.device}, expected {device}")
        if tensor.layout != torch.strided:
            raise ValueError(f"{name} has layout {tensor.layout}, expected a dense tensor: call to_dense()")
    hidden, top_k = shape.hidden, shape.top_k
    if x.dim() == 0 or x.shape[-1] != hidden:
        raise ValueError(f"x has shape {list(x.shape)}, expected [..., {hidden}]")
    if x.dtype not in DTYPES:
        raise ValueError(f"x is {x.dtype}, expected torch.bfloat16 or torch.float32")
    tokens = x.shape[:-1].numel()
    for name, tensor in (("expert_ids", expert_ids), ("expert_weights", expert_weights)):
        if tensor.shape != (tokens, top_k) and tensor.shape != (*x.shape[:-1], top_k):
            raise ValueError(f"{name} has shape {list(tensor.shape)}, expected [{tokens}, {top_k}] for x {list(x.shape)}")
    if not expert_weights.is_floating_point():
        raise ValueError(f"expert_weights is {expert_weights.dtype}, expected torch.float32")
    return (
        as_stored(x.reshape(tokens, hidden).to(torch.bfloat16)),
        as_stored(expert_ids.reshape(tokens, top_k)),
        as_stored(expert_weights.reshape(tokens, top_k).to(torch.float32)),
    )


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
