"""The parts of a MoE block of a model, recognised by shapes of parameters, not by names of classes.

Experts are either a list of modules of three matrices, or two without a gate, or one module of two stacked tensors, which may
have biases, or of three.
"""

import dataclasses

import torch

from ..layers.activations import ACTIVATIONS, inputs_of

# float32 sums in other orders differ by less; the forms of gelu differ by more.
_TOLERANCE = 1e-4


class Unsupported(ValueError):
    """A block that looks like MoE but differs in something that a layer of Sluice cannot keep."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where a block had its experts' weights: their names in its state_dict(), and their form.

    A list: `experts`.NUMBER.`gate`, .`up` [I, H] and .`down` [H, I], under the block. Stacked: `gate` [E, 2I, H], with
    rows of the gate first, and `down` [E, H, I], under the module of experts; transposed: [E, H, 2I] and [E, I, H].
    `biases`, if there are some, are [E, 2I] and [E, H]. in_turn: gate_up and its bias have a row of the gate, then one of up, and so on.
    Without a gate a list has no `gate`, and stacked tensors have I in place of 2I.
    """

    experts: str  # the list; empty if stacked
    gate: str  # empty if there is none
    up: str  # empty if stacked
    down: str
    stacked: bool
    transposed: bool
    count: int  # of all ranks
    hidden: int
    intermediate: int
    biases: tuple[str, ...] = ()
    in_turn: bool = False

    @property
    def parts(self) -> list[str]:
        """The names of the tensors."""
        return [*(name for name in (self.gate, self.up, self.down) if name), *self.biases]


@dataclasses.dataclass
class Experts:
    """The experts of a block."""

    module: torch.nn.Module  # the list, or the module that holds the stacked tensors
    hidden: int
    intermediate: int
    count: int
    activation: str
    limit: float | None
    gate: str  # parameters of one expert of a list, or of the module; as in Layout
    up: str  # a stack of its own if there are three
    down: str
    transposed: bool = False  # stacked as [E, in, out]
    biases: tuple[str, ...] = ()  # as in Layout
    in_turn: bool = False  # as in Layout

    @property
    def stacked(self) -> bool:
        return not isinstance(self.module, torch.nn.ModuleList)

    @property
    def inputs(self) -> int:
        return inputs_of(self.activation)

    def layout(self, name: str) -> Layout:
        """`name`: that of the list, under its block."""
        sizes = (self.count, self.hidden, self.intermediate)
        names = ("" if self.stacked else name, self.gate, self.up, self.down)
        return Layout(*names, self.stacked, self.transposed, *sizes, self.biases, self.in_turn)

    def parameters(self) -> list[torch.nn.Parameter]:
        return list(self.module.parameters())

    def matrices(self, expert: int) -> list[torch.Tensor]:
        """Gate, if there is one, up [I, H] and down [H, I] of an expert: views of the model's parameters."""
        if not self.stacked:
            own = dict(self.module[expert].named_parameters())
            return [own[name] for name in (self.gate, self.up, self.down) if name]
        own = dict(self.module.named_parameters())
        if self.up:
            return [own[name][expert] for name in (self.gate, self.up, self.down)]
        gate_up, down = own[self.gate][expert], own[self.down][expert]
        if self.transposed:
            gate_up, down = gate_up.t(), down.t()
        return [*self._split(gate_up), down]

    def biases_of(self, expert: int) -> list[torch.Tensor]:
        """What an expert adds to the products with matrices(): views of the model's parameters, none if it has no biases."""
        if not self.biases:
            return []
        before, after = (dict(self.module.named_parameters())[name][expert] for name in self.biases)
        return [*self._split(before), after]

    def _split(self, gate_up: torch.Tensor) -> list[torch.Tensor]:
        """Gate, if there is one, and up."""
        return [gate_up[::2], gate_up[1::2]] if self.in_turn else [*gate_up.split(self.intermediate)]


def to_gate_first(both: torch.Tensor, dimension: int) -> torch.Tensor:
    """Numbers of the gate and of up in turn along a dimension -> all of the gate, then all of up."""
    return both.unflatten(dimension, (-1, 2)).transpose(dimension, dimension + 1).flatten(dimension, dimension + 1)


def to_in_turn(both: torch.Tensor, dimension: int) -> torch.Tensor:
    """The reverse of to_gate_first()."""
    return both.unflatten(dimension, (2, -1)).transpose(dimension, dimension + 1).flatten(dimension, dimension + 1)


def apply_expert(activation: str, limit: float | None, x: torch.Tensor, matrices: list[torch.Tensor], biases=()) -> torch.Tensor:
    """The rows of an expert for rows x, with the matrices of Experts.matrices() and what biases_of() has."""
    *before, down = zip(matrices, biases or [0] * len(matrices))
    rows = ACTIVATIONS[activation](*(x @ matrix.t() + bias for matrix, bias in before), limit)
    return rows @ down[0].t() + down[1]


def apply_experts(experts: Experts, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """What the layer must compute, for x [T, H], in float32."""
    y = torch.zeros(x.shape, dtype=torch.float32)
    for expert in ids.unique().tolist():
        token, place = torch.where(ids == expert)
        given = [[each.float() for each in of(expert)] for of in (experts.matrices, experts.biases_of)]
        rows = apply_expert(experts.activation, experts.limit, x[token].float(), *given)
        y.index_add_(0, token, rows * weights[token, place].float()[:, None])
    return y


def is_close(found, expected: torch.Tensor, tolerance: float = _TOLERANCE) -> bool:
    """Whether each row is within `tolerance` of the expected one, relative to its largest number."""
    if not isinstance(found, torch.Tensor) or found.shape != expected.shape:
        return False
    found, expected = found.float(), expected.float()
    scale = expected.abs().amax(dim=-1, keepdim=True).clamp_min(1e-30)
    return bool(((found - expected).abs() / scale <= tolerance).all())


def find_experts(block: torch.nn.Module) -> tuple[str, torch.nn.Module, int] | None:
    """Name, module and number of the likely experts among the children of a block."""
    for name, child in block.named_children():
        if isinstance(child, torch.nn.ModuleList) and len(child) > 1 and _is_expert_list(child):
            return name, child, len(child)
        own = [parameter for _, parameter in child.named_parameters(recurse=False)]
        stacks = [parameter for parameter in own if parameter.dim() == 3]
        if len(stacks) >= 2 and len({parameter.shape[0] for parameter in stacks}) == 1 and stacks[0].shape[0] > 1:
            return name, child, stacks[0].shape[0]
    return None


def _is_expert_list(members: torch.nn.ModuleList) -> bool:
    """Equal members that have two or three matrices and nothing larger."""
    shapes = [[tuple(parameter.shape) for parameter in member.parameters()] for member in members]
    matrices = [shape for shape in shapes[0] if len(shape) == 2]
    return 2 <= len(matrices) <= 3 and all(other == shapes[0] for other in shapes)
