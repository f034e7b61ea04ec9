"""Weights of experts from the checkpoints that people have, read expert by expert."""

import torch

from . import codes, formats, gguf
from .checkpoint import Checkpoint
from .integers import MAX_EXPERTS, whole_number
from .stored import SQUARE, Stored

NAMES = ("gate_proj", "up_proj", "down_proj")


def _parts(shape) -> list[tuple]:
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
              a format has in its place (docs/PYTORCH.md, *Checkpoints*), for the `names` of gate, up and down
              ("gate_proj", "up_proj", "down_proj"); without a gate, of the last two. Or a GGUF file, which has all
              experts in `prefix`.NAME.weight ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"; prefix "blk.3").
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
    checkpoint = _opened(path)
    is_stacked = isinstance(checkpoint, gguf.Gguf)
    names = names or (gguf.NAMES if is_stacked else NAMES)
    shape, places = layer.shape, {}
    if physical_to_logical_map is not None:
        try:
            physical_to_logical_map = torch.as_tensor(physical_to_logical_map).flatten().tolist()
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"physical_to_logical_map is no list of whole numbers: {error}") from None
        for expert in physical_to_logical_map:
            whole_number("an expert of physical_to_logical_map", expert, 0, MAX_EXPERTS)
        if len(physical_to_logical_map) != shape.experts:
            raise ValueError(
                f"physical_to_logical_map has {len(physical_to_logical_map)} experts, expected {shape.experts}"
            )
    for row, expert in enumerate(layer.local_experts):
        places.setdefault(expert, []).append(row)
    for expert, rows in _shown(places.items(), progress):
        of_file = expert if physical_to_logical_map is None else physical_to_logical_map[expert]
        parts, found = _parts(shape), {}
        for part, name in zip(parts, names[-len(parts) :]):
            if is_stacked:
                matrix = checkpoint.matrix(prefix, of_file, name, shape.experts if physical_to_logical_map is None else None)
            else:
                matrix = formats.read(checkpoint, f"{prefix}.{of_file}.{name}")
            _check_shape(shape, matrix, part)
            found.setdefault(part[0], []).append((part, matrix))
        for name, given in found.items():
            _set_weight(layer, checkpoint, rows, name, given)
        checkpoint.release()
    layer._scales.forget()


def _opened(path) -> Checkpoint | gguf.Gguf:
    if isinstance(path, Checkpoint):
        return path.reopened()
    return gguf.Gguf(path) if gguf.is_gguf(path) else Checkpoint(path)


def _shown(experts, progress: bool):
    if not progress:
        return experts
    try:
        import tqdm
    except ImportError:
        raise RuntimeError("progress=True needs the package tqdm (Debian: python3-tqdm)") from None
    return tqdm.tqdm(experts, desc="experts", unit="expert")


def _check_shape(shape, matrix: formats.Matrix, part: tuple):
    whole = (shape.hidden, shape.intermediate) if part[0] == "down_weight" else (shape.intermediate, shape.hidden)
    if matrix.shape != whole:
        raise ValueError(f"{matrix.name} is a matrix of {list(matrix.shape)}, expected {list(whole)} [out, in]")


def _shard(layer: torch.nn.Module, matrix: formats.Matrix, part: tuple) -> formats.Matrix:
    """What this rank has of a whole matrix."""
    shape, dimension = layer.shape, part[2]
    if shape.tp == 1:
        return matrix
    own = slice(layer.shard * shape.part, (layer.shard + 1) * shape.part)
    if matrix.squares is not None:
        if shape.part % SQUARE:
            return _shard(layer, formats.Matrix(matrix.name, matrix.decoded()), part)
        of_scales = slice(own.start // SQUARE, own.stop // SQUARE)
        scale, made = ((each[at] if dimension == 0 else each[:, at]) for each, at in ((matrix.scale, of_scales), (matrix.squares, own)))
        return formats.Matrix(matrix.name, scale=scale, squares=made)
    if matrix.numbers is not None:
        return formats.Matrix(matrix.name, matrix.numbers[own] if dimension == 0 else matrix.numbers[:, own])
    if dimension == 0:
        of_scales = (own,)
    elif matrix.scale.shape[1] == 1:
        of_scales = ()
    else:
        if shape.part % matrix.group:
            raise ValueError(f"{matrix.name} has groups of {matrix.group}, expected a divisor of a shard's {shape.part} columns")
        of_scales = (slice(None), slice(own.start // matrix.group, own.stop // matrix.group))
    scale, zero = (None if each is None else each[of_scales] for each in (matrix.scale, matrix.zero))
    pairs = matrix.pairs[own] if dimension == 0 else matrix.pairs[:, own.start // 2 : own.stop // 2]
    return formats.Matrix(matrix.name, None, pairs, scale, zero, factor=matrix.factor)


def _set_weight(layer: torch.nn.Module, checkpoint: Checkpoint | gguf.Gguf, rows: list[int], name: str, given: list[tuple]):
    """Sets a parameter from its parts, whole matrices: codes as they are, or made of the numbers of all parts."""
    shape, stored = layer.shape, layer.shape.stored(name)
    if stored.has_codes and all(_has_numbers(stored, matrix) for _, matrix in given):
        whole = torch.cat([matrix.decoded() for _, matrix in given])
        tensors = codes.shards_of(layer, name, whole.unsqueeze(0))
        for row in rows:
            for each, tensor in tensors.items():
                checkpoint.copy_into(getattr(layer, each)[row], tensor[0])
        return
    factors = {matrix.factor.item(): matrix.name for _, matrix in given if matrix.factor is not None}
    if stored.has_codes and len(factors) > 1:
        said = " but ".join(f"{name} has the factor {factor:.9g}" for factor, name in factors.items())
        raise ValueError(f"{said}: expected the same, since the codes of a layer have one for both")
    for part, matrix in given:
        own = _shard(layer, matrix, part)
        tensors = dict(zip((name, *stored.beside(name)), _as_they_are(stored, own))) if stored.has_codes else {name: own.decoded()}
        for each, tensor in tensors.items():
            for row in rows:
                to = getattr(layer, each)[row]
                checkpoint.copy_into(to if to.dim() == 1 else codes.part_of(to, part[1], shape.inputs), tensor)


def _has_numbers(stored: Stored, matrix: formats.Matrix) -> bool:
    """Whether codes of the layer are made of its numbers."""
    return matrix.numbers is not None or (matrix.squares is not None and not stored.has_squares)


def _as_they_are(stored: Stored, matrix: formats.Matrix) -> tuple[torch.Tensor, ...]:
    """Codes, scale and zero or factor as a layer has them."""
    if _has_numbers(stored, matrix):
        raise ValueError(f"{matrix.name} has no codes of 4 bits, but another part of that weight has: expected the same of both")
    if matrix.squares is not None:
        return matrix.squares, matrix.scale
    group = 0 if matrix.scale.shape[1] == 1 and not stored.group else matrix.group
    if stored.bits != 4 or group != stored.group or matrix.scale_type != stored.scale:
        kind = "4-bit codes" if matrix.scale_type == "F32" else "4-bit floats"
        raise ValueError(
            f"{matrix.name} has {kind} in groups of {matrix.group}, but the layer has {stored.name}: "
            f"they would be quantised twice"
        )
    if not stored.has_zeros:
        if matrix.zero is not None:
            raise ValueError(f"{matrix.name} has zeros, but the layer has none: expected one of int4:z, int4:g{matrix.group}z")
        return matrix.pairs, matrix.scale, *([] if matrix.factor is None else [matrix.factor])
    return matrix.pairs, matrix.scale, -8 * matrix.scale.float() if matrix.zero is None else matrix.zero
