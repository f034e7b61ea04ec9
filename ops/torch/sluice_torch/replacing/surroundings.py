"""Variables outside a block that its code may change: the variables of the modules and classes that define the code."""

import collections
import contextlib
import copy
import sys

import torch


@contextlib.contextmanager
def surroundings_kept(module: torch.nn.Module):
    """Restores them afterwards, and yields the set in which it then puts the names of those that had changed."""
    before, changed = _surroundings(module), set()
    try:
        yield changed
    finally:
        changed |= _restore(before)


def _surroundings(module: torch.nn.Module) -> list:
    """(where, the place, its variables, their contents) of the modules and classes that define a block's code."""
    places = {}
    for cls in {cls for part in module.modules() for cls in type(part).__mro__}:
        if cls.__module__.split(".")[0] not in ("torch", "builtins", __name__.split(".")[0]):
            places[cls.__qualname__] = cls
            if cls.__module__ in sys.modules:
                places[cls.__module__] = sys.modules[cls.__module__]
    found = []
    for where, place in places.items():
        own = {name: value for name, value in vars(place).items() if not name.startswith("__") and _is_variable(value)}
        found.append((where, place, own, {name: copy.copy(value) for name, value in own.items() if _is_container(value)}))
    return found


def _is_container(value) -> bool:
    return isinstance(value, (list, dict, set, collections.deque))


def _is_variable(value) -> bool:
    return _is_container(value) or isinstance(value, (torch.Tensor, bool, int, float, type(None)))


def _restore(before: list) -> set[str]:
    """Restores variables that have changed, and returns their names."""
    changed = set()
    for where, place, own, contents in before:
        for name, value in list(vars(place).items()):
            if name not in own and _is_variable(value) and not name.startswith("__"):
                changed.add(f"{where}.{name}")
                delattr(place, name)
        for name, value in own.items():
            if vars(place).get(name) is not value:
                changed.add(f"{where}.{name}")
                setattr(place, name, value)
            if name in contents and not _holds(value, contents[name]):
                changed.add(f"{where}.{name}")
                value.clear()
                (value.update if isinstance(value, (dict, set)) else value.extend)(contents[name])
    return changed


def _holds(value, others) -> bool:
    if len(value) != len(others):
        return False
    if isinstance(value, set):
        return value == others
    pairs = zip(value.items(), others.items()) if isinstance(value, dict) else zip(enumerate(value), enumerate(others))
    return all(key == other_key and part is other for (key, part), (other_key, other) in pairs)
