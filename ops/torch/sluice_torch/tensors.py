"""Tensors as the library takes them."""

import torch


def as_stored(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy, whose memory holds its values row after row. Others are left to whoever checks them."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
        return tensor
    return tensor.contiguous().resolve_neg()
