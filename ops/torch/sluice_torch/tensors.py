"""Tensors in the form that the library accepts."""

import torch


def as_stored(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy, whose memory holds its values row after row. Returns other tensors unchanged, to be
    refused."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
        return tensor
    return tensor.contiguous().resolve_neg()
