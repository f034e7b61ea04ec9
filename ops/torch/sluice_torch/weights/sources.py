"""Where a file has the matrices of a layer's experts: each in tensors of its own, or those of all experts in one."""

from ..replacing.families import LISTED, STACKED
from . import formats, gguf, gguf_models
from .checkpoint import Checkpoint

# The last parts of names, one of which every matrix in a format of formats.py has.
_LAST = ("weight", "qweight", "weight_packed")


class Listed:
    """Each expert has its own tensors, `prefix`.EXPERT.NAME.weight, or what formats.py says."""

    def __init__(self, checkpoint: Checkpoint, prefix: str, names: tuple):
        self._checkpoint, self._prefix, self._names = checkpoint, prefix, names

    def matrix(self, expert: int, part: int, experts: int | None) -> formats.Matrix:
        """Gate (part 0), if there is one, up or down of an expert; `experts`: how many there must be, or None."""
        return formats.read(self._checkpoint, f"{self._prefix}.{expert}.{self._names[part]}")

    def bases(self, experts: int) -> list[tuple[str, int | None]]:
        """The names of tensors, without the last part if they have one, and which part of an expert each is."""
        return [(f"{self._prefix}.{expert}.{name}", part) for expert in range(experts) for part, name in enumerate(self._names)]


class InGguf(Listed):
    """A GGUF file, which has a tensor of all experts for each part."""

    def matrix(self, expert: int, part: int, experts: int | None) -> formats.Matrix:
        return self._checkpoint.matrix(self._prefix, expert, self._names[part], experts)

    def bases(self, experts: int) -> list[tuple[str, int | None]]:
        found = [self._checkpoint.bases(self._prefix, name, experts) for name in self._names]
        return [(base, part if len(own) > 1 else None) for part, own in enumerate(found) for base in own]


class Stacked:
    """One tensor for gate and up of all experts and one for down, [experts, out, in], or both [experts, in, out]."""

    def __init__(self, checkpoint: Checkpoint, prefix: str, names: tuple, shape):
        """`shape`: LayerShape. ValueError: tensors of other sizes."""
        self._names, self._inputs = [f"{prefix}.{name}" for name in names], shape.inputs
        for name in self._names:
            if name not in checkpoint:
                raise ValueError(f"{checkpoint.path} has no {name}")
        self._tensors = [checkpoint[name] for name in self._names]
        sizes = [(shape.inputs * shape.intermediate, shape.hidden), (shape.hidden, shape.intermediate)]
        found = [tuple(tensor.shape[1:]) for tensor in self._tensors]
        self._transposed = found != sizes and found == [size[::-1] for size in sizes]
        for name, tensor, size in zip(self._names, self._tensors, sizes):
            if tensor.dim() != 3 or found != sizes and not self._transposed:
                raise ValueError(f"{name} has shape {list(tensor.shape)}, expected [experts, {size[0]}, {size[1]}], or both transposed")
            if not tensor.is_floating_point():
                raise ValueError(f"{name} has type {checkpoint.type_of(name)}, expected a floating type")

    def matrix(self, expert: int, part: int, experts: int | None) -> formats.Matrix:
        is_down = part == self._inputs
        name, tensor = self._names[is_down], self._tensors[is_down]
        if expert >= len(tensor) or experts not in (None, len(tensor)):
            raise ValueError(f"{name} has {len(tensor)} experts, expected {max(expert + 1, experts or 0)}")
        own = tensor[expert].t() if self._transposed else tensor[expert]
        return formats.Matrix(name, own if is_down else own.chunk(self._inputs)[part])

    def bases(self, experts: int) -> list[tuple[str, int | None]]:
        return [(name, None) for name in self._names]  # __init__() has checked their shapes


def source_of(checkpoint, prefix: str, shape, first: int = 0, *, listed: tuple = LISTED, stacked: tuple = (STACKED,)) -> Listed | Stacked:
    """The source of a layer's experts under `prefix`, of which `first` is one: by the first of these names that the file has.
    A file that has none of them gets the first, so that an error says what is missing."""
    count = shape.inputs + 1
    if isinstance(checkpoint, gguf_models.GgufModel):
        return InGguf(checkpoint.gguf, checkpoint.prefix_of(prefix), gguf.NAMES[-count:])
    if isinstance(checkpoint, gguf.Gguf):
        return InGguf(checkpoint, prefix, (gguf.NAMES if listed is LISTED else listed[0])[-count:])
    for names in listed:
        if any(f"{prefix}.{first}.{names[-count]}.{last}" in checkpoint for last in _LAST):
            return Listed(checkpoint, prefix, names[-count:])
    for names in stacked:
        if f"{prefix}.{names[0]}" in checkpoint:
            return Stacked(checkpoint, prefix, names, shape)
    return Listed(checkpoint, prefix, listed[0][-count:])
