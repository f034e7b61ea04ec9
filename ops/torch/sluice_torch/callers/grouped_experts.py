"""The step of a module of grouped experts by Sluice's program, where the module's forward is proven to be the program's function.

The module has parameters w1, w3 [E, I, H] and w2 [E, H, I] in bfloat16, and is called with rows sorted by expert and their counts. A
trial of copies (replacing/trial.py) proves that a row x of expert e becomes w2[e] @ (silu(w1[e] @ x) * (w3[e] @ x)). The parameters stay
in the module: each step joins w1 and w3, as the program needs them. Halves of one buffer would need no copy, but would be parameters
that are not contiguous, which view(-1) and safetensors refuse.
"""

import inspect

import torch

from ..base import recording
from ..base.integers import MAX_TOKENS
from ..encodings.encodings import BF16
from ..layers.moe import MoE
from ..layers.steps import Steps
from ..ranks import pairs
from ..ranks.parallel import Parallel
from ..replacing.experts import check_tensors
from ..replacing.structure import Experts, Unsupported
from ..replacing.trial import Pair, Reference, compare, inputs, try_replacement
from ..replacing.twin import DRAWS, Twin, has_hooks, make_twin, ordinary_modes, settings_of

# Attributes that a style adds to a module.
ADDED = ("forward", "own_forward_reason", "_parallel_experts", "_parallel_forward", "_parallel_handles", "_parallel_program")

# The limit of experts in trials with gradients, whose time grows with the square of their number: each expert of a loop has a gradient
# as large as all weights.
_FEW = 8
# What a call of a tried module multiplies its rows by, which must not change the function (a limit, an added constant), and the distance
# between the experts of consecutive rows: 1 reaches all experts, 2 leaves some without rows, 0 all but one.
_CALLS = ((1.0, 1), (2.0**20, 2), (2.0**-10, 0))


def find_difference(module: torch.nn.Module) -> str | None:
    """The reason why the forward of a module, which has all experts, may be another function than the program; None: it is the same.
    Nothing is changed."""
    try:
        with ordinary_modes():
            _try(module)
    except Unsupported as error:
        return f"{type(module).__name__} {error}"
    except Exception as error:  # any exception of the module's code
        return f"{type(module).__name__} cannot be tried: {error}"
    return None


def _try(module: torch.nn.Module):
    shapes = {name: list(each.shape) for name, each in module.named_parameters()}
    expected = "expected w1 and w3 [E, I, H] and w2 [E, H, I]"
    if set(shapes) != {"w1", "w2", "w3"} or len(shapes["w1"]) != 3:
        raise Unsupported(f"has {', '.join(f'{name} {shape}' for name, shape in shapes.items())}, {expected}")
    count, intermediate, hidden = shapes["w1"]
    if shapes["w3"] != shapes["w1"] or shapes["w2"] != [count, hidden, intermediate]:
        raise Unsupported(f"has w1 {shapes['w1']}, w3 {shapes['w3']} and w2 {shapes['w2']}, {expected}")
    check_tensors(module)
    if module.w1.dtype != torch.bfloat16 or module.w1.device.type != "cpu":
        raise Unsupported(f"has weights of {module.w1.dtype} on {module.w1.device}, expected torch.bfloat16 on cpu")
    for path, part in module.named_modules():
        if has_hooks(part):
            raise Unsupported(f"has hooks, parametrizations or its own forward ({path or type(part).__name__}), which would not run")

    def make_pair(draw, own_dtype: bool, number: int = min(_FEW, count)) -> Pair:
        experts, block = Experts(module, hidden, intermediate, number, "swiglu", None, "w1", "w3", "w2"), _Calls(module, number)
        made, other = (make_twin(block, experts, draw, True, own_dtype) for _ in range(2))
        return Pair(made, Twin(_Calls(_Sorted(Reference(other.experts, 1)), number), other.experts, other.leaves))

    try_replacement(make_pair, hidden, rounds=True, routes=False)
    pair = make_pair(DRAWS[0], False, count)
    for kind, x in inputs(hidden, DRAWS[0]):
        compare(pair, x, kind, 1)


class _Calls(torch.nn.Module):
    """A block for trials: calls of experts with each part [R, H] of its input, and a call without rows."""

    def __init__(self, experts: torch.nn.Module, count: int):
        super().__init__()
        self.experts, self.count = experts, count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = [self._call(x[0, :0], torch.arange(0))]
        for place, (rows, (factor, step)) in enumerate(zip(x, _CALLS)):
            if len(rows) > 1:  # each expert needs one
                rows = rows.repeat(-(-self.count // len(rows)), 1)
            ids = (torch.arange(len(rows)) * step + place) % self.count
            made.append(self._call(rows * factor, ids) / factor**2)
        return torch.cat(made)

    def _call(self, rows: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        counts = torch.bincount(ids, minlength=self.count)
        try:
            y = self.experts(rows, counts)
        except Exception as error:
            raise Unsupported(f"cannot be called with rows {list(rows.shape)} and counts alone: {error}") from error
        if not isinstance(y, torch.Tensor) or y.shape != rows.shape:
            found = list(y.shape) if isinstance(y, torch.Tensor) else type(y).__name__
            raise Unsupported(f"gives {found} for rows {list(rows.shape)}, expected as many")
        return y


class _Sorted(torch.nn.Module):
    """The program's function, as a module of grouped experts."""

    def __init__(self, reference: Reference):
        super().__init__()
        self.reference = reference

    def forward(self, rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        ids = pairs.ids_of_sorted(rows, counts, len(counts))
        return self.reference(rows, ids, torch.ones(ids.shape))


class _Layer(MoE):
    """A layer without parameters, whose steps get their weights."""

    weights = ()

    def _add_weight(self, name: str, sizes: tuple, dtype: torch.dtype):
        """Adds none."""

    def _watch(self):
        """There is nothing to protect."""

    def _weights(self) -> list[torch.Tensor]:
        return list(self.weights)

    def _main_grads(self) -> list:
        return []

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")


class Program:
    """Computes calls of a module in which a style divides the experts over ep_group and tp_group. Made of the whole module."""

    def __init__(self, module: torch.nn.Module, ep_group, tp_group):
        experts, intermediate, hidden = module.w1.shape
        parallel = Parallel(ep_group, tp_group, tokens="own" if tp_group is None else "same")
        steps = Steps(max_tokens=MAX_TOKENS)  # a dispatch has no smaller limit
        self._layer = _Layer(hidden, intermediate, experts, 1, parallel=parallel, encode=BF16, steps=steps, initialise=False)
        own, part = len(self._layer.local_experts), self._layer.shape.part
        self._shapes = {"w1": (own, part, hidden), "w3": (own, part, hidden), "w2": (own, hidden, part)}
        self._defaults = [each.default for each in inspect.signature(module.forward).parameters.values()][2:]
        self._settings, self._refuses = settings_of(module, ADDED), ep_group is not None

    @recording.outside_graphs
    def fits(self, module: torch.nn.Module, inputs: tuple, named: dict) -> bool:
        """Whether a call is one of the proven function; alike at all ranks, which call alike. Numbers of rows do not matter."""
        rows, counts, *more = inputs if len(inputs) > 1 else (None, None)
        return (
            isinstance(rows, torch.Tensor)
            and rows.dtype == torch.bfloat16
            and not named
            and len(more) <= len(self._defaults)
            and all(each is default for each, default in zip(more, self._defaults))
            and not _is_autocast()
            and module._parameters.keys() == self._shapes.keys()
            and all(self._is_weight(each, self._shapes[name]) for name, each in module._parameters.items())
            and settings_of(module, ADDED) == self._settings
            and (self._refuses or self._counts(rows, counts))
        )

    def run(self, module: torch.nn.Module, rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """The results [R, H] of this rank's rows. Collective."""
        self._layer.weights = torch.cat([module.w1, module.w3], 1), module.w2
        try:
            return self._layer.forward_sorted(rows, counts)
        finally:
            self._layer.weights = ()

    def _is_weight(self, tensor, shape: tuple) -> bool:
        is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)  # no DTensor
        return is_plain and tensor.dtype == torch.bfloat16 and tensor.device.type == "cpu" and tensor.shape == shape

    def _counts(self, rows: torch.Tensor, counts) -> bool:
        """Whether each row has an expert. Without a dispatch, which refuses other calls, the module may do with them what it likes."""
        try:
            pairs.ids_of_sorted(rows, counts, self._layer.shape.experts)
        except ValueError:
            return False
        return True


def _is_autocast() -> bool:
    try:
        return torch.is_autocast_enabled("cpu")
    except TypeError:  # before PyTorch 2.4
        return torch.is_autocast_cpu_enabled()
