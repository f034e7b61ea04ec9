"""Finds and reports modules that look like a mixture of experts but have no layout that can be replaced."""

import dataclasses
import re

import torch

from .twin import attributes

CONTAINERS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)  # their children are not parts of a block
_UP = 3  # a router is at most this many modules above its experts
_DOWN = 2  # and this many below the module that contains both
_NEAR = 2  # a router of another shape is at most this many modules above its experts
_CALLED = re.compile(r"(.*[._])?(router|gate|wg|gating|classifier)([._].*)?")  # what routers are called
_FEW = 8  # maximum number of parameters of an expert


def find_lookalikes(model: torch.nn.Module, known: list[str]) -> dict[str, str]:
    """Name and reason of each lookalike outside the prefixes `known`. Experts are several equal modules, or stacked
    matrices; a matrix beside them with one row per expert is their router. Names may also identify both."""
    every = dict(model.named_modules())
    names = {name: part for name, part in every.items() if not any(f"{name}.".startswith(each) for each in known)}
    claimed = {id(each) for name in set(every) - set(names) for each in every[name].parameters()}
    found = {}
    for name in sorted(names, key=lambda each: (-each.count(".") - bool(each), each)):  # the innermost first
        group = _experts_of(names[name])
        if group is None or group.parts & claimed:
            continue
        block, router = _find_router(names, name, group, group.parts | claimed)
        if not router and group.named:
            block, router = _find_other_router(names, name, group, group.parts | claimed)
        if router or group.named:
            claimed |= group.parts
            found[block] = (
                f"has {group.label} and {router or 'no router beside them'}, expected a router and a list of experts of "
                "two or three matrices, or a module of two stacked tensors, as parts of one module"
            )
    return {name: found[name] for name in names if name in found}


@dataclasses.dataclass
class _Group:
    """A candidate for experts."""

    label: str
    count: int
    sizes: set[int]  # of their matrices
    parts: set[int]  # ids of their parameters
    named: bool  # a name identifies them as experts


def _experts_of(module: torch.nn.Module) -> _Group | None:
    for finder in (_listed, _unregistered, _stacked, _named):
        group = finder(module)
        if group:
            return group
    return None


def _listed(module: torch.nn.Module):
    """Equal children of a list, or of the module itself if their names identify them as experts."""
    for name, child in module._modules.items():
        if isinstance(child, (torch.nn.ModuleList, torch.nn.ModuleDict)):
            group = _equal(list(child.children()), name, "expert" in name)
            if group:
                return group
    members = [child for name, child in module._modules.items() if "expert" in name and "shared" not in name]
    return _equal(members, "parts named expert", True)


def _unregistered(module: torch.nn.Module):
    for name, value in attributes(module).items():
        if isinstance(value, (list, tuple)) and value and all(isinstance(each, torch.nn.Module) for each in value):
            group = _equal(list(value), f"attribute {name}, which state_dict() does not know", "expert" in name)
            if group:
                return group
    return None


def _equal(members: list, label: str, named: bool):
    shapes = [[tuple(each.shape) for each in member.parameters()] for member in members]
    if len(members) < 2 or any(other != shapes[0] for other in shapes):
        return None
    matrices = [shape for shape in shapes[0] if len(shape) == 2]
    if len(matrices) < 2 or len(shapes[0]) > _FEW and not named:
        return None
    parts = {id(each) for member in members for each in member.parameters()}
    return _Group(f"{len(members)} experts ({label})", len(members), {size for s in matrices for size in s}, parts, named)


def _stacked(module: torch.nn.Module):
    """Two or more tensors [E, ., .] of the module, or of its parts."""
    stacks = {}
    for path, part in module.named_modules():
        if path.count(".") > 1 or isinstance(part, torch.nn.modules.conv._ConvNd):
            continue
        for name, each in part._parameters.items():
            if each is not None and each.dim() == 3 and each.shape[0] > 1:
                stacks.setdefault(each.shape[0], {})[f"{path}.{name}".lstrip(".")] = each
    for count, tensors in stacks.items():
        if len(tensors) >= 2:
            sizes = {size for each in tensors.values() for size in each.shape[1:]}
            shapes = ", ".join(f"{name} {list(each.shape)}" for name, each in tensors.items())
            named = any("expert" in name for name in tensors)
            return _Group(f"stacked tensors {shapes}", count, sizes, {id(each) for each in tensors.values()}, named)
    return None


def _named(module: torch.nn.Module):
    """Parts or parameters with "expert" in their names."""
    for name, child in module._modules.items():
        if "expert" in name and "shared" not in name and child is not None and any(True for _ in child.parameters()):
            shapes = ", ".join(f"{own} {list(each.shape)}" for own, each in list(child.named_parameters())[:4])
            return _Group(f"{name} of {shapes}", 0, set(), {id(each) for each in child.parameters()}, True)
    own = {n: each for n, each in module._parameters.items() if "expert" in n and each is not None and each.dim() > 1}
    shapes = ", ".join(f"{name} {list(each.shape)}" for name, each in own.items())
    return _Group(shapes, 0, set(), {id(each) for each in own.values()}, True) if own else None


def _find_router(names: dict, name: str, group: _Group, others: set[int]) -> tuple[str, str]:
    """The block that contains the experts and their likely router, which is none of `others`, and that router; without a
    router, the block of the experts and ""."""
    at = name
    for _ in range(_UP):
        searched = at in names and not isinstance(names[at], CONTAINERS)
        for path, each in names[at].named_parameters() if searched else ():
            if id(each) in others or path.count(".") > _DOWN:
                continue
            if each.dim() == 2 and group.count in each.shape:
                other = each.shape[1] if each.shape[0] == group.count else each.shape[0]
                if other in group.sizes:
                    return at, f"a router {path} {list(each.shape)}"
        if not at:
            break
        at = at.rpartition(".")[0]
    return name, ""


def _find_other_router(names: dict, name: str, group: _Group, others: set[int]) -> tuple[str, str]:
    """As _find_router(), for a matrix beside the experts that is called a router but does not have their shape, and in what it
    differs."""
    at = name
    for _ in range(_NEAR):
        searched = at in names and not isinstance(names[at], CONTAINERS)
        found = {}  # by how likely it is the matrix that gives scores
        for path, each in names[at].named_parameters() if searched else ():
            own = path.rpartition(".")[0] or path  # without ".weight"
            if id(each) in others or each.dim() != 2 or "shared" in path or not _CALLED.fullmatch(own):
                continue
            is_for_all = bool(group.count) and group.count in each.shape
            likely = 0 if is_for_all else 1 if group.count < each.shape[0] <= 2 * group.count else 2
            found.setdefault(likely, f"a router {path} {list(each.shape)}{_difference(each, group)}")
        if found:
            return at, found[min(found)]
        if not at:
            break
        at = at.rpartition(".")[0]
    return name, ""


def _difference(router: torch.nn.Parameter, group: _Group) -> str:
    if not group.count:
        return ""
    rows, width = router.shape
    if rows == group.count:
        sizes = ", ".join(map(str, sorted(group.sizes)))
        return f" whose rows of {width} are none of the experts' sizes {sizes}"
    return f" that gives {rows} scores for {group.count} experts"
