"""Protects the experts of an ep_group from code that makes parameters equal at all ranks.

A layer with an ep_group has different experts at each rank under the same names. Code that treats parameters of one
name as copies of each other would overwrite them with the parameters of one rank, or average gradients of different experts:

* DistributedDataParallel ignores the experts when it wraps a model that has some; gradients of experts, which are sums
  over the tokens of all ranks, are divided as it divides the others;
* other code that is known to do this is refused by name before it changes anything: FullyShardedDataParallel and
  fully_shard, tensors that are already distributed, ZeroRedundancyOptimizer, averaging of models, and
  torch.nn.utils.clip_grad_norm_, whose norm would differ between ranks.

PyTorch has no hook for a module in any of these, so their entry points are wrapped once, when a process makes its first
layer with an ep_group. Models without such a layer are not affected.
"""

import functools
import inspect
import weakref

import torch
import torch.distributed as dist

# All layers of this process with an ep_group of several ranks.
_layers: "weakref.WeakSet[torch.nn.Module]" = weakref.WeakSet()
_guarded = False

_CLIP = (
    "with experts of an ep_group the norm differs from rank to rank, and so would the other parameters afterwards: "
    "call sluice_torch.clip_grad_norm_"
)
_ZERO = "ZeroRedundancyOptimizer would send experts of an ep_group from one rank to all: give them their own optimizer"
_MAIN_GRAD = "{} has a main_grad, to which DistributedDataParallel could not give the mean over ranks: leave its .grad"


def watch(layer: torch.nn.Module):
    """Protects the layer's parameters from now on against code that would mix them with parameters of other ranks."""
    _layers.add(layer)
    _guard()


def among(parameters) -> bool:
    """Whether any of the parameters are experts of an ep_group."""
    own = experts()
    return any(id(parameter) in own for parameter in parameters)


def experts() -> dict[int, torch.nn.Module]:
    """The layer of each parameter, by the parameter's id."""
    return {id(parameter): layer for layer in _layers for parameter in layer.parameters(recurse=False)}


def divisor_of(layer: torch.nn.Module) -> int:
    """The divisor that makes gradients of the layer match the gradients of the model around it.

    RuntimeError: the layer was added to the model after DistributedDataParallel had wrapped it.
    """
    wrappers = layer._wrappers
    running = torch.nn.parallel.DistributedDataParallel._active_ddp_module
    if running is not None and running not in wrappers:
        raise RuntimeError(
            "a layer with an ep_group came into a model that DistributedDataParallel had wrapped already: wrap the model "
            "after adding its layers"
        )
    divisor = max((wrapper.process_group.size() for wrapper in wrappers), default=1)
    if divisor > 1:  # ranks with the same tokens count them once
        divisor = layer._group.sources
    for name, parameter in layer.named_parameters(recurse=False) if divisor > 1 else ():
        if getattr(parameter, "main_grad", None) is not None:
            raise RuntimeError(_MAIN_GRAD.format(name))
    return divisor


class Divided(torch.autograd.Function):
    """apply(parameter, divisor): the parameter, with its gradient divided."""

    @staticmethod
    def forward(ctx, parameter: torch.Tensor, divisor: int) -> torch.Tensor:
        ctx.divisor = divisor
        return parameter.view_as(parameter)

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad / ctx.divisor, None


def check_attribute(name: str, value):
    """For a layer with an ep_group. RuntimeError: the change is one that FullyShardedDataParallel, fully_shard or
    distribute_module makes to a module whose parameters it takes."""
    if name == "_is_fsdp_managed_module" and value:
        raise RuntimeError(
            "experts of an ep_group are sharded already, and FullyShardedDataParallel and fully_shard would mix those of "
            "several ranks: leave the layer out (ignored_modules of FullyShardedDataParallel; apply fully_shard to the "
            "other modules only)"
        )
    if is_distributed(value):
        raise RuntimeError(
            f"{name} of a layer with an ep_group is to become a {type(value).__name__}, but experts are sharded already: "
            "leave the layer out of fully_shard, distribute_module and parallelize_module"
        )


def is_distributed(value) -> bool:
    """Whether it is a tensor of which this process has only a part."""
    return isinstance(value, torch.Tensor) and type(value).__name__ in ("DTensor", "ShardedTensor")


def _guard():
    """Wraps the entry points once. A module of PyTorch whose import would keep the process group (Group) is not imported."""
    global _guarded
    if _guarded:
        return
    _guarded = True
    from torch.distributed.algorithms.model_averaging import utils as averaging

    wrapped = torch.nn.parallel.DistributedDataParallel
    wrapped.__init__ = _preparing(wrapped.__init__)
    # Parameters are the first argument of each, after self for a method; groups have theirs under "params".
    torch.optim.Optimizer.add_param_group = _refusing_zero(torch.optim.Optimizer.add_param_group)
    for owner, name, place, message in (
        (
            averaging,
            "average_parameters",
            0,
            "averaging over ranks would mix different experts: leave those of an ep_group out",
        ),
        (torch.nn.utils, "clip_grad_norm_", 0, _CLIP),
        (torch.nn.utils.clip_grad, "clip_grad_norm_", 0, _CLIP),
    ):
        setattr(owner, name, _refusing(getattr(owner, name), place, message))


def _refusing(original, place: int, message: str):
    """Wraps a function: an error if its argument number `place` has experts of an ep_group."""

    @functools.wraps(original)
    def checked(*arguments, **options):
        given = inspect.signature(original).bind(*arguments, **options)
        name = list(inspect.signature(original).parameters)[place]
        holder = given.arguments if not isinstance(given.arguments[name], dict) else given.arguments[name]
        name = name if holder is given.arguments else "params"
        if not isinstance(holder[name], torch.Tensor):
            holder[name] = list(holder[name])  # it may be an iterator
        if among([holder[name]] if isinstance(holder[name], torch.Tensor) else holder[name]):
            raise RuntimeError(message)
        return original(*given.args, **given.kwargs)

    return checked


def _refusing_zero(original):
    """Wraps Optimizer.add_param_group(), which all optimizers call, for ZeroRedundancyOptimizer."""
    refusing = _refusing(original, 1, _ZERO)

    @functools.wraps(original)
    def add_param_group(self, *arguments, **options):
        is_zero = any(each.__name__ == "ZeroRedundancyOptimizer" for each in type(self).mro())
        return (refusing if is_zero else original)(self, *arguments, **options)

    return add_param_group


def _preparing(original):
    """Wraps DistributedDataParallel.__init__ so that it ignores experts."""

    @functools.wraps(original)
    def __init__(self, module, *arguments, **options):
        layers = {experts()[id(each)] for each in module.parameters() if among([each])}
        if layers:
            given = inspect.signature(original).bind(self, module, *arguments, **options).arguments
            _check_model(module, layers)
            _check_group(given.get("process_group"), given.get("device_mesh"), layers)
            _ignore_experts(module)
        original(self, module, *arguments, **options)
        if layers and getattr(self, "_use_python_reducer", False):
            raise RuntimeError(
                "DistributedDataParallel with the reducer in Python cannot leave experts of an ep_group alone: "
                'set torch._dynamo.config.optimize_ddp to something else than "python_reducer"'
            )
        for layer in layers:
            layer._wrappers.add(self)

    return __init__


def _check_model(module: torch.nn.Module, layers: set):
    inside = set(module.modules())
    for layer in layers:
        if layer not in inside:
            raise RuntimeError(
                "experts of an ep_group are wrapped by DistributedDataParallel without their layer: wrap a module that "
                "contains the layer (replicate() does not)"
            )
    own = experts()
    if not any(each.requires_grad and id(each) not in own for each in module.parameters()):
        raise RuntimeError(
            "DistributedDataParallel has nothing to do: all parameters of the model that are trained are experts of an "
            "ep_group, of which each rank has its own: use the model without it"
        )


def _check_group(group, mesh, layers: set):
    """Gradients of experts are sums over the ranks of the ep_group, so those must be the ranks to average over."""
    if group is None:
        group = dist.group.WORLD if mesh is None else mesh.get_group(mesh_dim=0)
    averaged = sorted(dist.get_process_group_ranks(group))
    for layer in layers:
        shared = sorted(layer._group.members())
        if shared != averaged:
            raise RuntimeError(
                f"DistributedDataParallel averages over ranks {averaged}, but the experts are shared by the ep_group of "
                f"ranks {shared}: both must be the same ranks (process_group of DistributedDataParallel)"
            )


def _ignore_experts(module: torch.nn.Module):
    own = experts()
    names = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
    for prefix, part in module.named_modules(remove_duplicate=False):
        for name, parameter in part._parameters.items():
            if id(parameter) in own:
                names.add(f"{prefix}.{name}")  # even without a prefix, because PyTorch spells it so in one place
                names.add(f"{prefix}.{name}".lstrip("."))
    torch.nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, sorted(names))
