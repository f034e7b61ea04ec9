"""Copies of a block to try: the block's code with state that is chosen here. So the model's own state is neither used,
read nor changed, and its present content (zeros, small numbers, a bias that is loaded later) decides nothing."""

import collections
import contextlib
import copy
import dataclasses
import random
import sys

import torch

from .structure import Experts, Unsupported

_MACHINERY = frozenset(vars(torch.nn.Module()))
_HOOKS = sorted(name for name in _MACHINERY if "hook" in name and isinstance(vars(torch.nn.Module())[name], dict))
_DEPTH = 5  # limit of nested containers and objects in attributes
_SMALL = 8  # intermediate size of the tried experts
_STEP = 97  # distance between the matrices of two experts, if all are in one buffer


@dataclasses.dataclass(frozen=True)
class Draw:
    """The source of a twin's state. There are two, so that each part matters in at least one of them."""

    seed: int
    gain: float  # size of products with a matrix, such as a router's logits
    bias: float  # size of vectors that are zero in the model
    reach: float  # size of the larger rows; more would saturate the sigmoid


DRAWS = (Draw(11, 1.5, 0.3, 2.0), Draw(12, 3.0, 0.02, 1.0))


@dataclasses.dataclass
class Twin:
    """A copy of a block, and its experts."""

    module: torch.nn.Module
    experts: Experts
    leaves: dict[str, torch.Tensor]  # of gradients


def attributes(module: torch.nn.Module) -> dict:
    """The attributes of a module besides parameters, buffers, parts and those that PyTorch keeps."""
    return {name: value for name, value in vars(module).items() if name not in _MACHINERY}


def inside(value, path: str, seen: set, depth: int = _DEPTH):
    """(path, value) of what an attribute contains: through containers and objects, to tensors, modules and plain
    values."""
    containers = (dict, list, tuple, collections.deque)
    is_object = hasattr(value, "__dict__") and not callable(value) and not isinstance(value, type(sys))
    if isinstance(value, (torch.Tensor, torch.nn.Module)) or not (isinstance(value, containers) or is_object) or not depth:
        yield path, value
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, dict):
        parts = [(f"{path}[{key!r}]", part) for key, part in value.items()]
    elif is_object:
        parts = [(f"{path}.{key}", part) for key, part in vars(value).items()]
    else:
        parts = [(f"{path}[{number}]", part) for number, part in enumerate(value)]
    for name, part in parts:
        yield from inside(part, name, seen, depth - 1)


def held(module: torch.nn.Module):
    """(path, value) of everything that a module and its parts hold."""
    seen = set()
    for path, part in module.named_modules():
        prefix = path + "." if path else ""
        for name, value in [*part._parameters.items(), *part._buffers.items()]:
            if value is not None:
                yield prefix + name, value
        for name, value in attributes(part).items():
            yield from inside(value, prefix + name, seen)


def tensors_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters, buffers (in state_dict() or not) and tensors in attributes. Unsupported: modules in attributes."""
    found = {}
    for path, value in held(module):
        if isinstance(value, torch.nn.Module):
            raise Unsupported(f"has a module in an attribute ({path}), which state_dict() does not know")
        if isinstance(value, torch.Tensor):
            found[path] = value
    return found


def structure_of(module: torch.nn.Module) -> tuple:
    """What a trial of a module depends on: blocks with the same structure differ only in their numbers."""
    kinds = tuple((path, type(part)) for path, part in module.named_modules())
    return kinds, tuple((path, _kind(value)) for path, value in held(module))


def settings_of(module: torch.nn.Module, skip: tuple = ()) -> list:
    """What a trial of a module depends on besides its own parameters and hooks, except the attributes `skip` of the module: changes of it
    after the trial. Lists of settings can be compared."""
    found, seen = [], set()
    for path, part in module.named_modules():
        found.append((path, type(part), tuple(part._buffers), part is not module and (tuple(part._parameters), has_hooks(part))))
        for name, value in attributes(part).items():
            if part is not module or name not in skip:
                found += [(where, _kind(each)) for where, each in inside(value, f"{path}.{name}", seen)]
    return found


def _kind(value):
    if isinstance(value, torch.Tensor):
        said = (tuple(value.shape), value.dtype, value.device, type(value), value.requires_grad, tuple(vars(value)))
        if value.is_meta:
            return said
        if not value.is_floating_point():
            return said, value.flatten().tolist().__repr__()
        return said, value.dim() < 2 and bool((value > 0).all())
    return value if isinstance(value, (bool, int, float, complex, str, bytes, type(None))) else id(value)


def has_hooks(module: torch.nn.Module) -> bool:
    """Whether calls of a module, or gradients of its own parameters, run hooks."""
    if any(vars(module).get(name) for name in _HOOKS) or "forward" in vars(module):
        return True
    own = [each for each in module._parameters.values() if each is not None]
    kinds = ("_backward_hooks", "_post_accumulate_grad_hooks")
    return hasattr(module, "parametrizations") or any(getattr(each, kind, None) for each in own for kind in kinds)


@contextlib.contextmanager
def ordinary_modes():
    """Enables gradients and float32, whatever the caller's modes are."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", enabled=False):
            yield
    finally:
        torch.set_default_dtype(dtype)


@contextlib.contextmanager
def random_state(seed: int):
    """Draws random numbers from `seed`, then restores the caller's generator."""
    numpy = sys.modules.get("numpy")
    python, arrays = random.getstate(), numpy.random.get_state() if numpy else None
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            random.seed(seed)
            if numpy:
                numpy.random.seed(seed)
            yield
    finally:
        random.setstate(python)
        if numpy:
            numpy.random.set_state(arrays)


def make_twin(module: torch.nn.Module, experts: Experts, draw: Draw, small: bool, own_dtype: bool = False) -> Twin:
    """A copy in evaluation mode with state from `draw`. Its experts have few intermediate columns if `small`; otherwise all are views of one
    buffer that is little larger than one expert. In float32, or in the types of the model."""
    generator = torch.Generator().manual_seed(draw.seed)
    memo, leaves, intermediate = _draw_experts(experts, generator, small, own_dtype)
    kept = []  # copy.deepcopy() identifies objects by id()
    for name, tensor in tensors_of(module).items():
        if id(tensor) in memo:
            continue
        made = tensor.detach().clone()
        if tensor.is_meta and not tensor.is_floating_point():
            raise Unsupported(f"has {name} on meta: expected its numbers, which may decide what the block computes")
        if tensor.is_floating_point():
            dtype = tensor.dtype if own_dtype or tensor.dtype == torch.float64 else torch.float32
            made = _draw(tensor, draw, generator).to(dtype)
        if isinstance(tensor, torch.nn.Parameter) and tensor.is_floating_point():
            made = leaves[name] = torch.nn.Parameter(made)
        memo[id(tensor)] = made
        kept.append(tensor)
    path = next(name for name, part in module.named_modules() if part is experts.module)
    try:
        twin = copy.deepcopy(module, memo)
    except Exception as error:  # any exception of an attribute
        raise Unsupported(f"cannot be copied to be tried: {error}") from error
    for hooks in (vars(part).get(name, {}) for part in twin.modules() for name in _HOOKS):
        for key, hook in list(hooks.items()):
            if not str(getattr(hook, "__module__", "")).startswith("torch."):  # the hooks of weight_norm() are PyTorch's
                del hooks[key]  # a user's hook of a part that is kept: not called in a trial
    twin.eval()
    own = dataclasses.replace(experts, module=twin.get_submodule(path), intermediate=intermediate)
    return Twin(twin, own, leaves)


def _draw(tensor: torch.Tensor, draw: Draw, generator: torch.Generator) -> torch.Tensor:
    made = torch.empty(tensor.shape)
    if tensor.dim() >= 2:
        return made.normal_(generator=generator) * (draw.gain / max(tensor.shape[-2:]) ** 0.5)
    if tensor.numel() and not tensor.is_meta and bool((tensor > 0).all()):  # a scale, a variance, a temperature
        return made.uniform_(0.5, 1.5, generator=generator)
    return made.normal_(generator=generator) * draw.bias


def _draw_experts(experts: Experts, generator: torch.Generator, small: bool, own_dtype: bool):
    """Replacements of their parameters by id, the buffers of which these are views, and the intermediate size."""
    size = min(_SMALL, experts.intermediate) if small else experts.intermediate
    both = experts.inputs if experts.stacked and not experts.up else 1
    up, down = (both * size, experts.hidden), (experts.hidden, size)
    scales = {name: (up, scale / experts.hidden**0.5) for name, scale in zip(filter(None, (experts.gate, experts.up)), (2, 1))}
    scales[experts.down] = (down, size**-0.5)
    if experts.transposed:
        scales = {name: (shape[::-1], scale) for name, (shape, scale) in scales.items()}
    scales.update({name: ((1, rows), 1) for name, (rows, _) in zip(experts.biases, (up, down))})
    dtype = experts.parameters()[0].dtype if own_dtype else torch.float32
    memo, leaves = {}, {}
    for name, ((rows, columns), scale) in scales.items():
        step = rows * columns if small else _STEP
        buffer = torch.empty((experts.count - 1) * step + rows * columns).normal_(generator=generator) * scale
        leaf = leaves[f"experts' {name}"] = buffer.to(dtype).requires_grad_()
        if experts.stacked:
            stack = torch.as_strided(leaf, (experts.count, rows, columns), (step, columns, 1))
            memo[id(dict(experts.module.named_parameters())[name])] = stack[:, 0] if name in experts.biases else stack
            continue
        places = range(0, experts.count * step, step)
        several = leaf.view(-1, rows, columns).unbind(0) if small else [leaf.narrow(0, at, rows * columns) for at in places]
        for member, matrix in zip(experts.module, several):
            memo[id(dict(member.named_parameters())[name])] = matrix.view(rows, columns)
    return memo, leaves, size
