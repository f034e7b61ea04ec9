"""Finds out what experts compute by trying copies of them with random weights.

Which matrix is gate, up or down, and which activation is between them, is found by comparing results with the known
forms. An activation, order or scale that is not known is never mistaken for a known one.
"""

import copy
import itertools

import torch

from ..layers.activations import ACTIVATIONS, LIMITED, inputs_of
from .families import Family
from .structure import Experts, Unsupported, apply_expert, apply_experts, is_close
from .surroundings import surroundings_kept
from .twin import DRAWS, make_twin, random_state, tensors_of

_ROWS = 64
_FILLED = 16  # columns of a weight that are not zero when an expert is tried: saves memory for large ones


def recognise_list(members: torch.nn.ModuleList, hidden: int, limit: float | None, family: Family | None) -> Experts:
    """Experts that are modules of three matrices each, or two without a gate; with `family` nothing but what it says is tried.
    Unsupported: a description of what differs."""
    first = members[0]
    shapes = {name: tuple(parameter.shape) for name, parameter in first.named_parameters()}
    for name, shape in shapes.items():
        if len(shape) != 2:
            raise Unsupported(f"experts have {name} of shape {list(shape)}, expected nothing but two or three matrices")
    if len(shapes) not in (2, 3):
        names = ", ".join(shapes)
        raise Unsupported(f"experts have {len(shapes)} matrices ({names}), expected up and down, or gate, up and down")
    check_tensors(members)
    others = [size for shape in shapes.values() for size in shape if size != hidden]
    intermediate = others[0] if others else hidden
    with random_state(7), torch.no_grad():
        x = _rows(hidden)
        state = {name: _random(shape, hidden, intermediate) for name, shape in shapes.items()}
        found = _call_copy(first, state, x)
    for *before, down in [family.parameters] if family else itertools.permutations(shapes):
        if any(shapes[name] != (intermediate, hidden) for name in before) or shapes[down] != (hidden, intermediate):
            continue
        for activation in _activations(limit, family):
            if inputs_of(activation) != len(before):
                continue
            if is_close(found, apply_expert(activation, limit, x, [state[name] for name in (*before, down)])):
                own_limit = limit if activation in LIMITED else None
                gate, up = ("", *before)[-2:]
                parts = (hidden, intermediate, len(members), activation, own_limit, gate, up, down)
                return Experts(members, *parts)
    raise Unsupported(
        f"experts of {', '.join(f'{name} {list(shape)}' for name, shape in shapes.items())}{_says(first)} compute none "
        f"of {', '.join(ACTIVATIONS)}: expected down(act(gate(x)) * up(x)), or down(act(up(x)))"
    )


def recognise_stack(module: torch.nn.Module, hidden: int, limit: float | None, family: Family | None) -> tuple[Experts, bool]:
    """Experts of two stacked tensors, and perhaps two biases, called with rows, ids and weights in any order; with `family` nothing but
    what it says is tried. True: the weights are given for all experts, [T, E]. Unsupported: a description of what differs."""
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    stacks, biases = ([name for name, shape in shapes.items() if len(shape) == size] for size in (3, 2))
    for name, shape in shapes.items():
        if name not in stacks and (name not in biases or len(biases) != 2):
            raise Unsupported(f"experts have {name} of shape {list(shape)}, expected nothing but two stacked tensors, and two biases or none")
    if len(stacks) != 2:
        raise Unsupported(f"experts have {len(stacks)} stacked tensors ({', '.join(stacks)}), expected gate_up and down")
    check_tensors(module)
    if family:
        names, forms = [(family.parts, family.biases)], [(family.form == "transposed", family.in_turn)]
    else:
        names = itertools.product(itertools.permutations(stacks), itertools.permutations(biases))
        forms = itertools.product((False, True), (False, True))
    orders = itertools.product((True, False), names, forms, _activations(limit, family))
    for small, ((gate_up, down), biases), (transposed, in_turn), activation in orders:
        intermediate, inputs = shapes[down][1 if transposed else 2], inputs_of(activation)
        expected = [(inputs * intermediate, hidden), (hidden, intermediate)]
        of_biases = [size[:1] for size in expected[: len(biases)]]
        if transposed:
            expected = [size[::-1] for size in expected]
        if [shapes[name] for name in (gate_up, down, *biases)] != [(shapes[down][0], *size) for size in expected + of_biases]:
            continue
        if in_turn and inputs == 1:
            continue
        own_limit = limit if activation in LIMITED else None
        parts = (hidden, intermediate, shapes[down][0], activation, own_limit, gate_up, "", down, transposed, tuple(biases), in_turn)
        experts = Experts(module, *parts)
        for scattered in [family.scattered] if family else (False, True):
            if _stack_agrees(experts, small, scattered):
                return experts, scattered
    raise Unsupported(
        f"experts of {', '.join(f'{name} {list(shape)}' for name, shape in shapes.items())}{_says(module)} called with "
        f"rows, ids and weights compute none of {', '.join(ACTIVATIONS)} with the gate before up, or both in turn"
    )


def _stack_agrees(experts: Experts, small: bool, scattered: bool) -> bool:
    twin = make_twin(experts.module, experts, DRAWS[0], small)
    count = max(_ROWS, experts.count)
    first = torch.arange(count) % experts.count
    ids = torch.stack([first, (first + 1) % experts.count], 1)
    with random_state(7), surroundings_kept(experts.module), torch.no_grad():
        x, weights = _rows(experts.hidden, count), torch.rand(count, 2) + 0.5
        expected = apply_experts(twin.experts, x, ids, weights)
        given = torch.zeros(count, experts.count).scatter_(1, ids, weights) if scattered else weights
        for rows in (x, x[None]):
            for arguments in ((rows, ids, given), (rows, given, ids)):
                try:
                    found = twin.module(*arguments)
                except Exception:  # any exception means that it cannot be called this way
                    continue
                if isinstance(found, torch.Tensor) and found.shape == rows.shape and is_close(found.view_as(x), expected):
                    return True
    return False


def _call_copy(module: torch.nn.Module, state: dict, x: torch.Tensor):
    """The result of a copy with other parameters; None if it cannot be called this way."""
    memo = {id(parameter): torch.nn.Parameter(state[name]) for name, parameter in module.named_parameters()}
    try:
        with surroundings_kept(module):
            return copy.deepcopy(module, memo).eval()(x)
    except Exception:  # any exception of a model means that it cannot be called this way
        return None


def _rows(hidden: int, count: int = _ROWS) -> torch.Tensor:
    """Rows of ordinary size, and rows large enough that limits clamp them."""
    return torch.randn(count, hidden) * torch.where(torch.arange(count) % 2 == 1, 30.0, 1.0)[:, None]


def _activations(limit: float | None, family: Family | None) -> list[str]:
    return [name for name in ([family.activation] if family else ACTIVATIONS) if limit is not None or name not in LIMITED]


def _random(shape: tuple, hidden: int, intermediate: int) -> torch.Tensor:
    """A weight whose products with _rows() are of order 1."""
    weight = torch.zeros(shape)
    if shape == (hidden, intermediate) and hidden != intermediate:
        weight[:_FILLED] = torch.randn(min(_FILLED, hidden), intermediate) / intermediate**0.5
    elif hidden != intermediate:
        weight[:, :_FILLED] = torch.randn(shape[0], min(_FILLED, shape[1])) / 2
    else:
        weight.normal_(std=2 / hidden**0.5)
    return weight


def check_tensors(module: torch.nn.Module):
    """Unsupported: state besides parameters, or parameters that a layer cannot have."""
    parameters = dict(module.named_parameters())
    for name, tensor in tensors_of(module).items():
        if not any(tensor is parameter for parameter in parameters.values()):
            raise Unsupported(f"experts have {name} {list(tensor.shape)}, which is not a parameter: a layer would not use it")
    for name, parameter in parameters.items():
        marks = [mark for mark, value in vars(parameter).items() if isinstance(value, torch.Tensor)]
        if marks:
            raise Unsupported(f"experts have {marks[0]} at {name}, which would be lost: set it after replacing")
        if type(parameter) is not torch.nn.Parameter:
            raise Unsupported(f"experts have {name} of type {type(parameter).__name__}, expected plain parameters")
    types = {parameter.dtype for parameter in parameters.values()}
    if len(types) != 1 or not types <= {torch.float32, torch.bfloat16}:
        raise Unsupported(f"experts have weights of {_list(types)}, expected all float32 or all bfloat16")
    places = {parameter.device.type for parameter in parameters.values()}
    if places not in ({"cpu"}, {"meta"}):
        raise Unsupported(f"experts have weights on {_list(places)}, expected all on cpu, or on meta")


def _list(things) -> str:
    return ", ".join(sorted({str(thing) for thing in things}))


def _says(module: torch.nn.Module) -> str:
    """The activation that a module declares, for messages."""
    for name in ("act_fn", "activation", "act", "activation_fn"):
        if (activation := getattr(module, name, None)) is not None:
            return f" ({name} {getattr(activation, '__name__', None) or activation})"
    return ""
