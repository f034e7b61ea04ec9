"""Checks that a block and its replacement are the same function: outputs, gradients and side effects of a call.

Both are tried as twins (twin.py), in evaluation and in training mode, with hundreds of rows: ordinary ones, rows that
all go to the same experts, and a single row.
"""

import dataclasses
import inspect

import torch

from .structure import Experts, Unsupported, apply_expert, apply_experts, is_close
from .surroundings import surroundings_kept
from .twin import DRAWS, Draw, Twin, held, random_state

_TOLERANCE = 3e-4
_GRADIENTS = 2e-3  # relative to the largest number of a gradient
_ROUNDED, _ROWS_ALIKE = 6e-2, 0.9  # in bfloat16, in which a few rows may go to other experts
_SEEDS = (1, 2)


class Reference(torch.nn.Module):
    """What a layer must compute, in eager PyTorch, with the weights of a twin's experts."""

    def __init__(self, experts: Experts, top_k: int):
        super().__init__()
        self._experts, self._top_k = experts, top_k

    def forward(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        if ids.shape[-1] != self._top_k:
            raise Unsupported(f"gives a token {ids.shape[-1]} experts, but {self._top_k} another time")
        ordered = ids.sort(-1).values
        if bool(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any()):
            raise Unsupported("gives a token the same expert twice")
        if bool((ids >= self._experts.count).any()) or bool((ids < -1).any()):
            raise Unsupported(f"gives ids of experts that do not exist (of {self._experts.count})")
        return apply_experts(self._experts, x, ids, weights).to(x.dtype)


@dataclasses.dataclass
class Pair:
    """Twins of a block with equal state. One's module is the replacement."""

    block: Twin
    replacement: Twin


@dataclasses.dataclass
class _Result:
    outputs: list[torch.Tensor]
    gradients: dict[str, torch.Tensor]
    added: dict[str, torch.Tensor]  # gradients for an upstream gradient of zero: of losses added in the backward pass
    changed: set[str]  # variables outside the block


def inputs(hidden: int, draw: Draw):
    """The inputs with which a block is tried, each with a word for what is special about it."""
    generator = torch.Generator().manual_seed(draw.seed + 100)

    def normal(*shape):
        return torch.randn(*shape, hidden, generator=generator)

    rows = normal(3, 100) * torch.where(torch.arange(300) % 4 == 3, draw.reach, 1.0).view(3, 100, 1)
    yield "", rows
    yield "skewed", normal(1, 1) + 0.02 * normal(2, 150)
    yield "single", normal(2, 1)


def further_arguments(block: torch.nn.Module) -> list[str]:
    """The names of the arguments of a block's forward beyond its input."""
    parameters = list(inspect.signature(type(block).forward).parameters.values())[2:]
    return [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]


def call(twin: Twin, x: torch.Tensor, seed: int) -> list[torch.Tensor]:
    """The tensors that a twin returns. Unsupported: it cannot be called like this, or returns something else."""
    return _call(twin, x, seed)[0]


def _call(twin: Twin, x: torch.Tensor, seed: int) -> tuple[list[torch.Tensor], set[str]]:
    """Like call(); also the names of variables outside the block that the call changed. They are restored."""
    with random_state(seed), surroundings_kept(twin.module) as changed:
        try:
            result = twin.module(x)
        except Unsupported:
            raise
        except Exception as error:
            mode = " in training mode" if twin.module.training else ""
            more = further_arguments(twin.module)
            also = f" alone (it is called with {', '.join(more)} too)" if more else ""
            raise Unsupported(f"cannot be called with an input of shape {list(x.shape)}{also}{mode}: {error}") from error
    outputs = [result] if isinstance(result, torch.Tensor) else result
    if not isinstance(outputs, tuple | list) or not all(isinstance(part, torch.Tensor) for part in outputs) or not outputs:
        said = f"of {', '.join(type(part).__name__ for part in outputs)}" if isinstance(outputs, tuple) else ""
        raise Unsupported(f"gives a {type(result).__name__} {said}, expected a tensor, or a tensor and the router's logits")
    return list(outputs), changed


def try_replacement(make_pair, hidden: int, rounds: bool, routes: bool = True):
    """Unsupported: the twins of make_pair(draw, own_dtype) differ. `rounds`: the model's types are not float32. `routes`: the block
    chooses experts, so that some gradients are others when it rounds."""
    for draw in DRAWS:
        pair = make_pair(draw, False)
        for training in (False, True):
            pair.block.module.train(training)
            pair.replacement.module.train(training)
            try_experts(pair.block, hidden, training)
            before = _observe(pair.block.experts.module)
            for kind, x in inputs(hidden, draw):
                compare(pair, x, kind, _SEEDS[0], gradients=not kind)
            compare(pair, next(inputs(hidden, draw))[1], "", _SEEDS[1])
            _check_left_behind(pair, before)
    if rounds:
        _try_rounded(make_pair(DRAWS[0], True), hidden, gradients=not routes)


def compare(pair: Pair, x: torch.Tensor, kind: str, seed: int, gradients: bool = False):
    """Unsupported: the twins differ for x, an input of this kind."""
    found = _run(pair.block, x, seed, gradients)
    expected = _run(pair.replacement, x, seed, gradients)
    training = pair.block.module.training
    if found.changed - expected.changed:
        raise Unsupported(f"leaves something in {_list(found.changed - expected.changed)}, which would be lost")
    kinds = [[(part.shape, part.dtype) for part in each.outputs] for each in (found, expected)]
    alike = kinds[0] == kinds[1] and all(
        is_close(part, other, _TOLERANCE) for part, other in zip(found.outputs, expected.outputs)
    )
    if not alike:
        raise Unsupported(_explain(pair.block, x, kind, training))
    largest = max((float(each.abs().max()) for each in expected.gradients.values() if each.numel()), default=0.0)
    for name, gradient in found.gradients.items():
        _check_gradient(name, gradient, expected.gradients[name], 1e-5 * largest)
        _check_gradient(name, found.added[name], expected.added[name], 0.0)


def _check_gradient(name: str, found: torch.Tensor, expected: torch.Tensor, room: float, tolerance: float = _GRADIENTS):
    if found.numel() and not float((found - expected).abs().max()) <= tolerance * float(found.abs().max()) + room:
        raise Unsupported(
            f"gives the same sums as its replacement, but another gradient of {name}: something is detached, scaled or "
            "added in its backward pass (an auxiliary loss?), which would be left out"
        )


def _run(twin: Twin, x: torch.Tensor, seed: int, gradients: bool) -> _Result:
    x = x.detach().clone().requires_grad_()
    outputs, changed = _call(twin, x, seed)
    if not gradients:
        return _Result([part.detach() for part in outputs], {}, {}, changed)
    leaves = {"its input": x, **twin.leaves}
    generator = torch.Generator().manual_seed(seed)
    total = x.sum() * 0 + sum(leaf.sum() * 0 for leaf in twin.leaves.values())
    for part in outputs:
        if part.is_floating_point():
            total = total + (part * torch.randn(part.shape, generator=generator)).sum()
    found = torch.autograd.grad(total, list(leaves.values()), retain_graph=True)
    added = torch.autograd.grad(total, list(leaves.values()), torch.zeros(()))
    return _Result([part.detach() for part in outputs], dict(zip(leaves, found)), dict(zip(leaves, added)), changed)


def _explain(twin: Twin, x: torch.Tensor, kind: str, training: bool) -> str:
    """The reason why a block is not what it was taken for."""
    mode = "training" if training else "evaluation"
    with torch.no_grad():
        once, again = (call(twin, x, seed)[0] for seed in _SEEDS)
        if not is_close(once, again, _TOLERANCE):
            return f"gives another result each time in {mode} mode (dropout or noise), which would be left out"
        twin.module.train(not training)
        other = call(twin, x, _SEEDS[0])[0]
        twin.module.train(training)
    if not is_close(once, other, _TOLERANCE):
        return "computes something else in training mode than in evaluation mode, which would be left out"
    if kind == "skewed":
        return "treats rows otherwise where many go to the same experts (a capacity?), which would be left out"
    return "treats a single row otherwise, which would be left out" if kind else "computes something else than its replacement"


def try_experts(twin: Twin, hidden: int, training: bool):
    """Tries each expert of a list, one by one, because the ids of rows need not reach all of them."""
    experts = twin.experts
    if experts.stacked:
        return
    x = torch.randn(16, hidden, generator=torch.Generator().manual_seed(3)) * 2
    for number in range(experts.count):
        with torch.no_grad(), random_state(1), surroundings_kept(twin.module):
            expected = apply_expert(experts.activation, experts.limit, x, experts.matrices(number))
            try:
                found = experts.module[number](x)
            except Exception as error:
                raise Unsupported(f"expert {number} cannot be called with rows alone: {error}") from error
        if not is_close(found, expected, _TOLERANCE):
            mode = " in training mode (dropout or noise?)" if training else ", unlike expert 0"
            raise Unsupported(f"expert {number} computes something else than {experts.activation}{mode}")


def _try_rounded(pair: Pair, hidden: int, gradients: bool):
    """Tries the types of the model: types and shapes must be the same, and sums and `gradients` equal up to rounding."""
    x = next(inputs(hidden, DRAWS[0]))[1].to(pair.block.experts.parameters()[0].dtype)
    for training in (False, True):
        runs = []
        for twin in (pair.block, pair.replacement):
            twin.module.train(training)
            runs.append(_run(twin, x, _SEEDS[0], gradients))
        found, expected = runs
        kinds = [[(part.dtype, tuple(part.shape)) for part in each.outputs] for each in runs]
        if kinds[0] != kinds[1]:
            raise Unsupported(f"gives {kinds[0]} for an input of {x.dtype}, but its replacement {kinds[1]}")
        rows, others = (each.outputs[0].reshape(-1, hidden).float() for each in runs)
        alike = sum(is_close(row, other, _ROUNDED) for row, other in zip(rows, others))
        if alike < _ROWS_ALIKE * len(rows):
            raise Unsupported(f"computes something else in {x.dtype}: {alike} of {len(rows)} rows are its replacement's")
        for name, gradient in found.gradients.items():
            _check_gradient(name, gradient, expected.gradients[name], 0.0, _ROUNDED)


def _observe(module: torch.nn.Module, skip: str = "") -> dict:
    """Everything that the module holds, except parts below `skip`; values that are no tensors or plain values by
    type."""
    found = {}
    for path, value in held(module):
        if not skip or not path.startswith(skip + "."):
            found[path] = value if isinstance(value, torch.Tensor) else _plain(value)
    return found


def _plain(value):
    return value if isinstance(value, (bool, int, float, complex, str, bytes, type(None))) else type(value)


def _check_left_behind(pair: Pair, experts_before: dict):
    """Unsupported: a call changed something that the replacement's call does not change. Kept parts may change
    equally."""
    name = next(name for name, part in pair.block.module.named_modules() if part is pair.block.experts.module)
    found, expected = (_observe(twin.module, name) for twin in (pair.block, pair.replacement))
    lost = [path for path, value in found.items() if path not in expected or not _same(value, expected[path])]
    after = _observe(pair.block.experts.module)
    lost += [f"{name}.{path}" for path in after if path not in experts_before or not _same(after[path], experts_before[path])]
    for path, leaf in pair.block.leaves.items():
        if not _same(leaf, pair.replacement.leaves[path]):
            lost.append(path)
    if lost:
        raise Unsupported(f"changes {_list(set(lost))} when it is called, which would be lost")


def _same(value, other) -> bool:
    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
        return type(value) is type(other) and value == other
    if value.shape != other.shape or value.dtype != other.dtype:
        return False
    if not value.is_floating_point():
        return torch.equal(value, other)
    return torch.allclose(value.detach(), other.detach(), rtol=1e-3, atol=1e-5, equal_nan=True)


def _list(names) -> str:
    return ", ".join(sorted(names))
