"""What kt.KTMoEWrapper keeps between steps: gradients that an optimizer owns, and an output for a checkpoint."""

import torch

from ..base.writes import write


class Gradients:
    """Where gradients go, by name: to a tensor that each backward writes anew, or to a view of an optimizer's memory, which becomes
    the .grad of a parameter. The first backward of a window overwrites the views, later ones add to them, until release()."""

    def __init__(self):
        self.tensors, self.views = {}, {}  # views: parameter and view
        self.is_open = False

    def register(self, name: str, parameter: torch.Tensor, view: torch.Tensor):
        """ValueError: tensors that do not fit the gradient. RuntimeError: within a window."""
        if name not in self.tensors:
            raise ValueError(f"name is {name!r}, expected one of {', '.join(self.tensors) or 'none: there are no gradients yet'}")
        if self.is_open:
            raise RuntimeError(f"register {name} while gradients are being added: call release_authoritative_optimizer_grads first")
        sizes = list(self.tensors[name].shape)
        for what, each in (("parameter", parameter), ("grad_view", view)):
            if not isinstance(each, torch.Tensor) or not each.is_floating_point():
                raise ValueError(f"{what} of {name} is no tensor of a floating type")
            if list(each.shape) != sizes or each.device.type != "cpu":
                raise ValueError(f"{what} of {name} has shape {list(each.shape)} on {each.device}, expected {sizes} on the CPU")
        if view.dtype != parameter.dtype:
            raise ValueError(f"grad_view of {name} is {view.dtype}, expected {parameter.dtype} of its parameter")
        parameter.grad = None
        self.views[name] = (parameter, view)

    def state(self) -> str:
        """ "empty" if nothing is registered, "open" in a window, else "closed". RuntimeError: the .grad of a parameter is something
        else."""
        for name, (parameter, view) in self.views.items():
            if parameter.grad is not (view if self.is_open else None):
                found = "None" if parameter.grad is None else "another tensor"
                wanted = "the registered view" if self.is_open else "None, as after release_authoritative_optimizer_grads"
                raise RuntimeError(f"the .grad of {name} is {found}, expected {wanted}")
        if not self.views:
            return "empty"
        return "open" if self.is_open else "closed"

    def deliver(self, found: dict[str, torch.Tensor], scale: float):
        """Takes the gradients of a backward, times `scale`; one that is absent is 0."""
        for name, tensor in self.tensors.items():
            grad = found[name] * scale if name in found else torch.zeros_like(tensor)
            if name not in self.views:
                write(tensor, grad)
                continue
            parameter, view = self.views[name]
            write(view, view + grad if self.is_open else grad)
            parameter.grad = view
        self.is_open = bool(self.views)

    def release(self):
        """Ends the window."""
        for parameter, _ in self.views.values():
            parameter.grad = None
        self.is_open = False


class CheckpointOutput:
    """An output that is kept from a first forward to the one that a checkpoint runs again."""

    def __init__(self, layer_idx: int):
        self.layer_idx, self.y, self.error = layer_idx, None, None

    def check(self, qlen: int | None):
        """RuntimeError: there is none of so many tokens; or, with None, there is one."""
        if self.error is not None:
            raise RuntimeError(f"layer {self.layer_idx}: the output of a checkpoint is not valid: {self.error}")
        if qlen is None and self.y is not None:
            raise RuntimeError(f"layer {self.layer_idx} keeps an output of {len(self.y)} tokens of a checkpoint, expected none")
        if qlen is not None and (self.y is None or len(self.y) != qlen):
            found = "none" if self.y is None else f"one of {len(self.y)} tokens"
            raise RuntimeError(f"layer {self.layer_idx} keeps {found} as the output of a checkpoint, expected one of {qlen} tokens")

    def keep(self, output: torch.Tensor, qlen: int):
        self.check(None)
        if len(output) < qlen:
            raise ValueError(f"output_cpu has {len(output)} tokens, expected at least {qlen}")
        self.y = output[:qlen].detach().clone()
