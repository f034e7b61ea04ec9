"""The tensors that a step of MoE gets from its caller."""

import torch

from ..base.tensors import as_stored
from ..graphs import LayerShape

DTYPES = (torch.bfloat16, torch.float32)


def operands_of(shape: LayerShape, x, expert_ids, expert_weights, device: torch.device) -> tuple[torch.Tensor, ...]:
    """x [T, H], ids [T, K] and weights [T, K], in types that the op accepts if the tensors are otherwise correct.
    `device` is the device of the layer's parameters.
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
