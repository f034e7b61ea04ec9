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


def _placeholder(parameter: torch.Tensor) -> torch.Tensor | None:
    """What autograd gets as the gradient of a parameter whose own was added to its main_grad: None, or where the parameter has
    the attribute `grad_added_to_main_grad`, which becomes True, a tensor of its shape for code that waits for a gradient (zeros with
    `zero_out_wgrad`, else of any content)."""
    if not hasattr(parameter, "grad_added_to_main_grad"):
        return None
    parameter.grad_added_to_main_grad = True
    return torch.zeros_like(parameter) if getattr(parameter, "zero_out_wgrad", False) else torch.empty_like(parameter)


class AddedToMainGrad(torch.autograd.Function):
    """apply(parameter): the parameter, whose gradient the program of a step adds to its main_grad."""

    @staticmethod
    def forward(ctx, parameter: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.parameter = parameter
        return parameter.view_as(parameter)

    @staticmethod
    def backward(ctx, grad) -> torch.Tensor | None:
        return _placeholder(ctx.parameter)


class AddToMainGrad(torch.autograd.Function):
    """apply(parameter, main_grad): the parameter in float32, so that its gradient arrives in float32, too, and is added
    unrounded. A backward that does not need the parameter's gradient leaves main_grad unchanged."""

    @staticmethod
    def forward(ctx, parameter: torch.Tensor, main_grad: torch.Tensor) -> torch.Tensor:
        ctx.parameter, ctx.main_grad = parameter, main_grad
        return parameter.to(torch.float32)

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> tuple[torch.Tensor | None, None]:
        ctx.main_grad.add_(grad)
        return _placeholder(ctx.parameter), None
