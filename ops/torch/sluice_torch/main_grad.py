"""Gradients that are added to the float32 tensor `main_grad` of their parameter instead of to its `.grad`."""

import torch


def main_grad_of(name: str, parameter: torch.nn.Parameter) -> torch.Tensor | None:
    """The tensor that the gradient of `parameter` is added to; None if it goes to `.grad`, or there is none.

    ValueError: a main_grad to which the gradient cannot be added.
    """
    grad = getattr(parameter, "main_grad", None) if parameter.requires_grad else None
    if grad is None:
        return None
    if not isinstance(grad, torch.Tensor):
        raise ValueError(f"main_grad of {name} is of type {type(grad).__name__}, expected a tensor")
    if grad.dtype != torch.float32:
        raise ValueError(f"main_grad of {name} is {grad.dtype}, expected torch.float32")
    if grad.device != parameter.device:
        raise ValueError(f"main_grad of {name} is on {grad.device}, expected {parameter.device}")
    if grad.shape != parameter.shape:
        raise ValueError(f"main_grad of {name} has shape {list(grad.shape)}, expected {list(parameter.shape)}")
    return grad


class AddToMainGrad(torch.autograd.Function):
    """apply(parameter, main_grad): the parameter in float32, so that its gradient arrives in float32, too, and is added
    unrounded. A backward that does not need the parameter's gradient leaves main_grad unchanged."""

    @staticmethod
    def forward(ctx, parameter: torch.Tensor, main_grad: torch.Tensor) -> torch.Tensor:
        ctx.main_grad = main_grad
        return parameter.to(torch.float32)

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> tuple[None, None]:
        ctx.main_grad.add_(grad)
        return None, None
