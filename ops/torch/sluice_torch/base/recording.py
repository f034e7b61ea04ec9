"""Guards against code that records a model instead of running it: layers of Sluice run in eager PyTorch.

The program is chosen at each call, by the requested gradients and the ranks, and forwards keep what backwards need:
a recording of one call would be wrong for the next.
"""

import functools
import sys

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
    """Returns the function, marked so that torch.compile leaves it to eager PyTorch: graphs end before it.

    If one whole graph is required (fullgraph=True, torch.export), torch.compile refuses and names the function.
    """
    if not hasattr(torch, "compiler"):
        return function  # before PyTorch 2.1
    from torch._C._dynamo.eval_frame import skip_code

    disabled = None

    @functools.wraps(function)
    def run(*arguments, **options):
        nonlocal disabled
        # Not torch.compiler.disable() from the start, because it imports PyTorch's compiler, which takes a second.
        if disabled is None:
            if "torch._dynamo" not in sys.modules:
                return function(*arguments, **options)
            disabled = torch.compiler.disable(function)
        return disabled(*arguments, **options)

    # Like disable(): the compiler neither makes this part of a graph, nor inspects it (and guards each layer) when it
    # is called between graphs.
    run._torchdynamo_disable = True
    skip_code(run.__code__)
    return run
