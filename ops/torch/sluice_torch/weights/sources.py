"""Where a file has the matrices and biases of a layer's experts: each in tensors of its own, or those of all experts in one."""

import typing

import torch

from ..encodings.encodings import stored_of
from ..encodings.stored import PLAIN
from ..replacing.families import FAMILIES, LISTED
from . import formats, gguf, gguf_models
from .checkpoint import Checkpoint

# The last parts of names, one of which every matrix in a format of formats.py has.
_LAST = ("weight", "qweight", "weight_packed")
_NO_BIASES = ", but the layer has no biases: expected one with bias=True"


class StackedNames(typing.NamedTuple):
    """The names of the tensors of all experts."""

    parts: tuple[str, str]  # of gate and up, and of down
    biases: tuple[str, ...] = ()
    in_turn: bool = False  # as in families.Family


STACKED = tuple(dict.fromkeys(StackedNames(each.parts, each.biases, each.in_turn) for each in FAMILIES if each.form != "list"))


class Listed:
    """Each expert has its own tensors, `prefix`.EXPERT.NAME.weight, or what formats.py says, and perhaps .bias."""

    def __init__(self, checkpoint: Checkpoint, prefix: str, names: tuple, has_biases: bool):
        self._checkpoint, self._prefix, self._names, self._has_biases = checkpoint, prefix, names, has_biases

    def matrix(self, expert: int, part: int, experts: int | None) -> formats.Matrix:
        """Gate (part 0), if there is one, up or down of an expert; `experts`: how many there must be, or None."""
        return formats.read(self._checkpoint, f"{self._prefix}.{expert}.{self._names[part]}")

    def bias(self, expert: int, part: int, experts: int | None) -> tuple[str, torch.Tensor]:
        """The name and the numbers of what is added to the product with that matrix."""
        name = f"{self._prefix}.{expert}.{self._names[part]}.bias"
        return name, formats.numbers(self._checkpoint, name)

    def bases(self, experts: int) -> list[tuple[str, int | None]]:
        """The names of tensors, without the last part if they have one, and which part of an expert each is."""
        found = [(f"{self._prefix}.{expert}.{name}", part) for expert in range(experts) for part, name in enumerate(self._names)]
        return found + [(f"{base}.bias", None) for base, _ in found] * self._has_biases


class InGguf(Listed):
    """A GGUF file, which has a tensor of all experts for each part. ValueError: biases that the layer does not have."""

    def __init__(self, checkpoint: gguf.Gguf, prefix: str, names: tuple, has_biases: bool):
        super().__init__(checkpoint, prefix, names, has_biases)
        self._biases = [f"{prefix}.{name}.bias" for name in names]
        for name in self._biases:
            if not has_biases and name in checkpoint.names():
                raise ValueError(f"{checkpoint.path} has {name}{_NO_BIASES}")

    def matrix(self, expert: int, part: int, experts: int | None) -> formats.Matrix:
        return self._checkpoint.matrix(self._prefix, expert, self._names[part], experts)

    def bias(self, expert: int, part: int, experts: int | None) -> tuple[str, torch.Tensor]:
        name = self._biases[part]
        return name, formats.of_expert(name, self._checkpoint.tensor(name), expert, experts)

    def bases(self, experts: int) -> list[tuple[str, int | None]]:
        found = [self._checkpoint.bases(self._prefix, name, experts) for name in self._names]
        bases = [(base, part if len(own) > 1 else None) for part, own in enumerate(found) for base in own]
        return bases + [(name, None) for name in self._biases] * self._has_biases


class Stacked:
    """One tensor for gate and up of all experts and one for down, [experts, out, in], or both [experts, in, out]; or two for each, as
    formats.mxfp4_stack() says."""

    def __init__(self, checkpoint: Checkpoint, prefix: str, names: StackedNames, shape):
        """`shape`: LayerShape. ValueError: tensors of other sizes; biases that the layer does not have."""
        self._checkpoint, self._inputs, self._in_turn = checkpoint, shape.inputs, names.in_turn
        self._names, self._biases = ([f"{prefix}.{name}" for name in each] for each in (names.parts, names.biases))
        for name in (f"{prefix}.{name}" for each in STACKED for name in each.biases):
            if name in checkpoint and not shape.bias:
                raise ValueError(f"{checkpoint.path} has {name}{_NO_BIASES}")
        self._has_codes = any(formats.is_mxfp4_stack(checkpoint, name) for name in self._names)
        sizes = [(shape.inputs * shape.intermediate, shape.hidden), (shape.hidden, shape.intermediate)]
        if self._has_codes:
            self._stored, self._transposed = stored_of("mxfp4"), False
            self._tensors = [formats.mxfp4_stack(checkpoint, name, size) for name, size in zip(self._names, sizes)]
            return
        for name in self._names:
            if name not in checkpoint:
                raise ValueError(f"{checkpoint.path} has no {name}")
        self._stored, self._tensors = PLAIN, [(checkpoint[name],) for name in self._names]
        found = [tuple(tensor.shape[1:]) for tensor, in self._tensors]
        self._transposed = found != sizes and found == [size[::-1] for size in sizes]
        for name, (tensor,), size in zip(self._names, self._tensors, sizes):
            if tensor.dim() != 3 or found != sizes and not self._transposed:
                raise ValueError(f"{name} has shape {list(tensor.shape)}, expected [experts, {size[0]}, {size[1]}], or both transposed")
            if not tensor.is_floating_point():
                raise ValueError(f"{name} has type {checkpoint.type_of(name)}, expected a floating type")

    def matrix(self, expert: int, part: int, experts: int | None) -> formats.Matrix:
        is_down = part == self._inputs
        name, count = self._names[is_down], len(self._tensors[is_down][0])
        if expert >= count or experts not in (None, count):
            raise ValueError(f"{name} has {count} experts, expected {max(expert + 1, experts or 0)}")
        own = [each[expert].t() if self._transposed else each[expert] for each in self._tensors[is_down]]
        made, *beside = own if is_down else [self._part(each, part) for each in own]
        return formats.Matrix(name, made, self._stored, tuple(beside))

    def bias(self, expert: int, part: int, experts: int | None) -> tuple[str, torch.Tensor]:
        is_down = part == self._inputs
        name = self._biases[is_down]
        own = formats.of_expert(name, formats.numbers(self._checkpoint, name), expert, experts)
        return name, own if is_down else self._part(own, part)

    def _part(self, rows: torch.Tensor, part: int) -> torch.Tensor:
        """The rows of gate or up."""
        return rows[part :: self._inputs] if self._in_turn else rows.chunk(self._inputs)[part]

    def bases(self, experts: int) -> list[tuple[str, int | None]]:
        names = [f"{name}{end}" for name in self._names for end in (formats.MXFP4_STACK if self._has_codes else ("",))]
        return [(name, None) for name in (*names, *self._biases)]  # __init__() has checked the shapes of stacks


def source_of(checkpoint, prefix: str, shape, first: int = 0, *, listed: tuple = LISTED, stacked: tuple[StackedNames, ...] = STACKED) -> Listed | Stacked:
    """The source of a layer's experts under `prefix`, of which `first` is one: by the first of these names that the file has.
    A file that has none of them gets the first, so that an error says what is missing. Of stacked tensors those names are taken that
    have biases as the layer has."""
    count = shape.inputs + 1
    if isinstance(checkpoint, gguf_models.GgufModel):
        return InGguf(checkpoint.gguf, checkpoint.prefix_of(prefix), gguf.NAMES[-count:], shape.bias)
    if isinstance(checkpoint, gguf.Gguf):
        return InGguf(checkpoint, prefix, (gguf.NAMES if listed is LISTED else listed[0])[-count:], shape.bias)
    for names in listed:
        if any(f"{prefix}.{first}.{names[-count]}.{last}" in checkpoint for last in _LAST):
            return Listed(checkpoint, prefix, names[-count:], shape.bias)
    for names in sorted(stacked, key=lambda names: bool(names.biases) != shape.bias):
        name = f"{prefix}.{names.parts[0]}"
        if name in checkpoint or formats.is_mxfp4_stack(checkpoint, name):
            return Stacked(checkpoint, prefix, names, shape)
    return Listed(checkpoint, prefix, listed[0][-count:], shape.bias)
