"""What records a model instead of running it: layers of Sluice are called in eager PyTorch.

Their programs are chosen at each call, by the gradients asked for and the ranks there are, and forwards keep what
backwards need: a recording of one call would be wrong for the next.
"""

import torch

_ADVICE = "call the layer in eager PyTorch"


def refuse_script(what: str):
    raise RuntimeError(f"{what} cannot be compiled by torch.jit.script: {_ADVICE}")


def refuse(what: str, *tensors):
    """RuntimeError while torch.jit.trace or torch.fx records."""
    if torch.jit.is_tracing():
        raise RuntimeError(f"{what} cannot be recorded by torch.jit.trace: {_ADVICE}")
    if any(type(tensor).__name__ == "Proxy" and type(tensor).__module__.startswith("torch.fx") for tensor in tensors):
        raise RuntimeError(
            f"{what} cannot be recorded by torch.fx: {_ADVICE}, or let is_leaf_module() of a torch.fx.Tracer be true of it"
        )


def outside_graphs(function):
    """The function, which torch.compile, where there is one, leaves to eager PyTorch: graphs end before it."""
    disable = getattr(getattr(torch, "compiler", None), "disable", None)
    try:
        return function if disable is None else disable(function)
    except ImportError:  # a PyTorch without what its compiler needs
        return function
