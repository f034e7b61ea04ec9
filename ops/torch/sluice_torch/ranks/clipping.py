"""Clipping of gradients when each rank has its own experts."""

import math

import torch

from . import replicas


@torch.no_grad()
def clip_grad_norm_(
    parameters, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> torch.Tensor:
    """Like torch.nn.utils.clip_grad_norm_, with the norm over the experts of all ranks: scales the gradients (`.grad`)
    in place to a norm of at most `max_norm`, and returns the norm that they had.

    `parameters` are the parameters of one model at all ranks. Gradients of parameters that are not experts count once, and must
    be the same at all ranks. Collective over each ep_group among them, even at a rank without gradients.
    RuntimeError, with `error_if_nonfinite`: the norm is not finite.
    """
    parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    kind = float(norm_type)
    experts = replicas.experts()
    # gradients, and their parts with the number of times that the ranks have each, by the groups whose ranks have
    # different experts
    parts, groups = {None: []}, {None: None}
    for parameter in parameters:
        layer = experts.get(id(parameter))
        key = layer._group.key if layer else None
        groups[key] = layer and layer._group
        part = parts.setdefault(key, [])
        if parameter.grad is not None:
            part.append((parameter.grad, layer.by_copies(parameter, parameter.grad) if layer else [(parameter.grad, 1)]))
    total = torch.zeros((), dtype=torch.float64)
    for key, gradients in parts.items():
        pieces = [piece for _, each in gradients for piece in each]
        norms = [torch.linalg.vector_norm(piece, kind, dtype=torch.float32).double() for piece, _ in pieces]
        if math.isinf(kind):
            own = torch.stack(norms).amax() if norms else torch.zeros((), dtype=torch.float64)
        else:
            powers = (norm**kind / copies for norm, (_, copies) in zip(norms, pieces))
            own = sum(powers, torch.zeros((), dtype=torch.float64))
        if key is not None:
            groups[key].all_reduce(own, "norms of gradients", largest=math.isinf(kind))
        total = torch.maximum(total, own) if math.isinf(kind) else total + own
    if not math.isinf(kind):
        total = total ** (1 / kind)
    if error_if_nonfinite and not torch.isfinite(total):
        raise RuntimeError(f"the norm of the gradients, of type {kind}, is {total.item()}, expected a finite number")
    scale = (max_norm / (total + 1e-6)).clamp(max=1.0).item()
    for gradients in parts.values():
        for grad, _ in gradients:
            grad.mul_(scale)
    return total.float()
