"""Weights of experts from the checkpoints that people have, read expert by expert."""

import torch

from ..base.integers import MAX_EXPERTS, whole_number
from ..base.tensors import in_memory
from ..encodings import codes
from ..encodings.stored import DTYPES, Stored
from ..graphs import BIASES
from ..layers import sharding
from . import formats, gguf
from .checkpoint import Checkpoint
from .sources import source_of


def parts(shape) -> list[tuple]:
    """Parts of a layer: parameter, which of its equal parts of rows, and the dimension that shards of an expert share."""
    return [*(("gate_up_weight", number, 0) for number in range(shape.inputs)), ("down_weight", None, 1)]


@torch.no_grad()
def load_experts(
    path,
    layer: torch.nn.Module,
    prefix: str,
    names: tuple[str, str, str] | None = None,
    physical_to_logical_map=None,
    progress: bool = False,
):
    """Sets the weights of a layer's experts, on this rank and its shard of them, from a checkpoint.

    path      a safetensors file, a folder with such files, or a Checkpoint. Expert e has `prefix`.e.NAME.weight, or what
              a format has in its place (docs/MODELS.md, *Checkpoints*), for the `names` of gate, up and down
              ("gate_proj", "up_proj", "down_proj", or "w1", "w3", "w2"); without a gate, of the last two. Or all experts are in
              `prefix`.gate_up_proj and .down_proj, [experts, out, in] or both [experts, in, out], or as gpt-oss has them. Or a GGUF file,
              which has them in `prefix`.NAME.weight ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"; prefix "blk.3"). A layer with
              `bias` takes .bias in place of .weight, or what gpt-oss has.
    layer     sluice_torch.MoE. Codes of 4 bits go as they are into one with weights of int4 that have the group
              of the checkpoint and, unless all zeros are 8, zeros ("int4:g64z"), or, if they are floats, of mxfp4 or nvfp4;
              other layers of codes take numbers, which they quantise. bfloat16 and float32 layers take everything. Where the
              two weights of a checkpoint differ, so does the layer: "int4:g32z,weights.down_weight=int8".
    physical_to_logical_map  [experts]: which expert of the checkpoint each expert of the layer is
    progress  True: shows a bar (package tqdm)

    The layer may have run: its next step has the new weights, and begins histories of amaxes ("fp8e4m3:delayed") anew.
    At any time one expert is held. The files are read, without changes of a Checkpoint's tensors. ValueError: a tensor that
    is missing, or is not what the layer can have; experts before that one are set.
    """
    checkpoint, experts_in_file = opened(path), _map_of(layer.shape, physical_to_logical_map)
    named = {} if names is None else {"listed": (names,), "stacked": ()}
    source = source_of(checkpoint, prefix, layer.shape, experts_in_file[0], **named)
    load_from(source, checkpoint, layer, experts_in_file, progress, is_map=physical_to_logical_map is not None)


@torch.no_grad()
def load_from(
    source, checkpoint, layer: torch.nn.Module, experts_in_file: list[int], progress=False, is_map=False, requantise=False
) -> list[str]:
    """load_experts() from a source; `experts_in_file`: the number that each expert has there, which a caller's map gave if
    `is_map`. With `requantise` codes that a layer of others cannot have become its own. Returns the names of weights that were
    set from numbers."""
    shape, places, count = layer.shape, {}, None if is_map else layer.shape.experts
    for row, expert in enumerate(layer.local_experts):
        places.setdefault(expert, []).append(row)
    before, by_numbers = take_memory(layer), set()
    try:
        for expert, rows in shown(places.items(), progress):
            found = {}
            for number, part in enumerate(parts(shape)):
                matrix = source.matrix(experts_in_file[expert], number, count)
                check_shape(shape, matrix.name, matrix.shape, part)
                found.setdefault(part[0], []).append((part, matrix))
            for name, given in found.items():
                if _set_weight(layer, checkpoint, rows, name, given, requantise):
                    by_numbers.add(name)
            if shape.bias:
                biases = [source.bias(experts_in_file[expert], number, count) for number in range(shape.inputs + 1)]
                _set_biases(layer, checkpoint, rows, biases)
            checkpoint.release()
    except BaseException:
        give_back(layer, before)
        raise
    layer.forget_amaxes()
    return sorted(by_numbers)


def _map_of(shape, physical_to_logical_map) -> list[int]:
    if physical_to_logical_map is None:
        return list(range(shape.experts))
    try:
        found = torch.as_tensor(physical_to_logical_map).flatten().tolist()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"physical_to_logical_map is no list of whole numbers: {error}") from None
    for expert in found:
        whole_number("an expert of physical_to_logical_map", expert, 0, MAX_EXPERTS)
    if len(found) != shape.experts:
        raise ValueError(f"physical_to_logical_map has {len(found)} experts, expected {shape.experts}")
    return found


def take_memory(layer: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Gives parameters on meta memory, with undefined numbers. Returns what they were, for give_back()."""
    before = {name: each for name, each in layer.named_parameters(recurse=False) if each.is_meta}
    for name, each in before.items():
        setattr(layer, name, in_memory(each))
    return before


def give_back(layer: torch.nn.Module, before: dict[str, torch.nn.Parameter]):
    for name, parameter in before.items():
        setattr(layer, name, parameter)


def opened(path) -> Checkpoint | gguf.Gguf:
    if isinstance(path, Checkpoint):
        return path.reopened()
    return gguf.Gguf(path) if gguf.is_gguf(path) else Checkpoint(path)


def shown(steps, progress: bool, unit: str = "experts"):
    """The steps, with a bar if `progress`."""
    if not progress:
        return steps
    try:
        import tqdm
    except ImportError:
        raise RuntimeError("progress=True needs the package tqdm (Debian: python3-tqdm)") from None
    return tqdm.tqdm(steps, desc=unit, unit=unit[:-1])


def check_shape(shape, name: str, found: tuple, part: tuple):
    whole = (shape.hidden, shape.intermediate) if part[0] == "down_weight" else (shape.intermediate, shape.hidden)
    if found != whole:
        raise ValueError(f"{name} is a matrix of {list(found)}, expected {list(whole)} [out, in]")


def _shard(layer: torch.nn.Module, matrix: formats.Matrix, part: tuple) -> formats.Matrix:
    """What this rank has of a whole matrix."""
    shape, dimension = layer.shape, part[2]
    if shape.tp == 1:
        return matrix
    stored, begin = matrix.stored, layer.shard * shape.part
    together = stored.across if dimension == 0 else stored.along  # numbers that share a scale; 0: all
    if together and shape.part % together:
        if stored.has_squares:
            return _shard(layer, formats.Matrix(matrix.name, matrix.decoded()), part)
        raise ValueError(f"{matrix.name} has groups of {together}, expected a divisor of a shard's {shape.part} columns")

    def own(tensor: torch.Tensor, each: int) -> torch.Tensor:
        at = slice(begin // each, (begin + shape.part) // each)
        return tensor[at] if dimension == 0 else tensor[:, at]

    beside = (each if each.dim() == 1 or not together else own(each, together) for each in matrix.beside)
    return formats.Matrix(matrix.name, own(matrix.tensor, 1 if dimension == 0 else stored.per_element), stored, tuple(beside))


def _set_weight(layer: torch.nn.Module, checkpoint: Checkpoint | gguf.Gguf, rows: list[int], name: str, given: list[tuple], requantise: bool) -> bool:
    """Sets a parameter from its parts, whole matrices: codes as they are, or, which returns True, made of the numbers of all parts."""
    shape, stored = layer.shape, layer.shape.stored(name)
    by_numbers = [_has_numbers(stored, matrix) for _, matrix in given]
    if stored.has_codes and (all(by_numbers) or requantise and any(_is_other(stored, matrix) for _, matrix in given)):
        whole = torch.cat([matrix.decoded() for _, matrix in given])
        tensors = sharding.shards_of(layer, name, whole.unsqueeze(0))
        for row in rows:
            for each, tensor in tensors.items():
                checkpoint.copy_into(getattr(layer, each)[row], tensor[0])
        return True
    factors = {matrix.beside[-1].item(): matrix.name for _, matrix in given if matrix.stored.has_factor}
    if stored.has_codes and len(factors) > 1:
        said = " but ".join(f"{name} has the factor {factor:.9g}" for factor, name in factors.items())
        raise ValueError(f"{said}: expected the same, since the codes of a layer have one for both")
    for part, matrix in given:
        own = _shard(layer, matrix, part)
        tensors = dict(zip((name, *stored.beside(name)), _as_they_are(stored, own))) if stored.has_codes else {name: own.decoded()}
        for each, tensor in tensors.items():
            for row in rows:
                to = getattr(layer, each)[row]
                checkpoint.copy_into(to if to.dim() == 1 else _part_of(to, part[1], shape.inputs), tensor)
    return not stored.has_codes


def _set_biases(layer: torch.nn.Module, checkpoint: Checkpoint | gguf.Gguf, rows: list[int], given: list[tuple]):
    """Sets the biases of an expert from those of its matrices, with their names."""
    shape = layer.shape
    for (name, bias), columns in zip(given, [shape.intermediate] * shape.inputs + [shape.hidden]):
        if tuple(bias.shape) != (columns,):
            raise ValueError(f"{name} has shape {list(bias.shape)} for one matrix, expected [{columns}]")
    *before, after = (bias for _, bias in given)
    for name, whole in zip(BIASES, (torch.cat(before), after)):
        own = sharding.take(name, whole.unsqueeze(0), layer.shard, shape.tp, shape.inputs)[0]
        for row in rows:
            checkpoint.copy_into(getattr(layer, name)[row], own)


def _part_of(rows: torch.Tensor, number: int | None, count: int) -> torch.Tensor:
    """Number `number` of `count` equal parts of the rows; None: all."""
    each = len(rows) // count
    return rows if number is None else rows[number * each : (number + 1) * each]


def _has_numbers(stored: Stored, matrix: formats.Matrix) -> bool:
    """Whether codes of the layer are made of its numbers."""
    own = matrix.stored
    return not own.has_codes or own.bits == 8 and own.element != stored.element


def _is_other(stored: Stored, matrix: formats.Matrix) -> str:
    """Why a layer cannot have the codes of a matrix; empty: it can."""
    if _has_numbers(stored, matrix):
        return f"{matrix.name} has no codes of 4 bits, but another part of that weight has: expected the same of both"
    own, length = matrix.stored, matrix.shape[1]
    has_scales = own.scale == stored.scale or stored.scale == "F32" and own.scale in DTYPES  # which become wider
    has_blocks = (own.across, own.along or length, own.has_factor) == (stored.across, stored.along or length, stored.has_factor)
    if own.element == stored.element and has_scales and has_blocks and own.has_zeros <= stored.has_zeros:
        return ""
    return (
        f"{matrix.name} has {own.name}, but the layer has {stored.name}: they would be quantised twice, which only sluice_torch.convert does, "
        "on request"
    )


def _as_they_are(stored: Stored, matrix: formats.Matrix) -> tuple[torch.Tensor, ...]:
    """Codes, scale and zero or factor as a layer has them."""
    if why := _is_other(stored, matrix):
        raise ValueError(why)
    scale, *more = matrix.beside
    if stored.has_zeros:
        zero = more[0] if more else torch.full_like(scale, codes.HALF, dtype=torch.int8)
        more = [-zero.float() * scale.float() if stored.scale == "F32" and zero.dtype == torch.int8 else zero]
    return matrix.tensor, scale, *more
