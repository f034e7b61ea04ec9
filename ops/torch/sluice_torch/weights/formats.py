"""Matrices of checkpoints in the formats that people have: plain numbers, FP8, FP4 in blocks, and codes of 8 and 4 bits.

Names are those of the tools that write them; `base` is the name of a linear layer, without the last part. All matrices
are [out, in]. docs/MODELS.md, *Checkpoints*, lists the formats.
"""

import dataclasses

import torch

from ..encodings import codes
from ..encodings.encodings import BLOCK, stored_of
from ..encodings.stored import DTYPES, PLAIN, SQUARE, Stored
from .checkpoint import Checkpoint

# Codes of 4 bits of a word of 32, in GPTQ and pack-quantised files from the lowest bits on, so that their bytes are pairs of codes
# as layers have them; AWQ has them in another order.
_PER_WORD = 8
_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
# The types that parts of a format may have.
_WORDS, _INTEGERS, _FLOATS, _EXPONENTS = ("I32",), ("I32", "I64"), ("F16", "BF16", "F32"), ("U8", "F8_E8M0")


@dataclasses.dataclass
class Matrix:
    """A matrix [out, in]: numbers of a floating type, or codes of an encoding, which may be one that no layer has."""

    name: str
    tensor: torch.Tensor  # numbers; or codes, as sluice_torch.quantize() and so on make them
    stored: Stored = PLAIN
    beside: tuple[torch.Tensor, ...] = ()  # of codes: scales, of any floating type if they are numbers; zeros; a factor

    @property
    def shape(self) -> tuple[int, int]:
        return self.tensor.shape[0], self.tensor.shape[1] * self.stored.per_element

    def decoded(self) -> torch.Tensor:
        """The numbers, of codes in float32."""
        return codes.numbers_of(self.stored, self.tensor, *self.beside, dtype=torch.float32)


def in_groups(name: str, pairs: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None = None) -> Matrix:
    """Codes of 4 bits, two per byte, with scales [out, groups], and zeros of that shape: float32 numbers, which are added, or int8 codes,
    which stand for 0; None: all are 8."""
    kind = next((each for each in _FLOATS if DTYPES[each] == scale.dtype), "F32")
    along = 0 if scale.shape[1] == 1 else 2 * pairs.shape[1] // scale.shape[1]
    blocks = (f"g{along}" if along else "") + ("" if zero is None else "z")
    text = ":".join(each for each in ("int4", blocks, "" if kind == "F32" else kind.lower()) if each)
    stored = stored_of("int4")._replace(name=text, along=along, has_zeros=zero is not None, scale=kind)
    return Matrix(name, pairs, stored, (scale,) if zero is None else (scale, zero))


def read(checkpoint: Checkpoint, base: str) -> Matrix:
    """The matrix of a linear layer. ValueError: none of the formats, or parts that do not fit each other."""
    if f"{base}.weight_packed" in checkpoint:
        if checkpoint.type_of(f"{base}.weight_packed") != "U8":
            return _pack_quantized(checkpoint, base)
        if f"{base}.weight_global_scale" in checkpoint:
            return _nvfp4(checkpoint, base, "weight_packed", "weight_global_scale")
        return _mxfp4(checkpoint, base)
    if f"{base}.qweight" in checkpoint:
        return _grouped(checkpoint, base)
    name = f"{base}.weight"
    if name not in checkpoint:
        raise ValueError(f"{checkpoint.path} has no {name}, .qweight or .weight_packed")
    if f"{base}.weight_scale_2" in checkpoint:
        return _nvfp4(checkpoint, base, "weight", "weight_scale_2")
    weight = checkpoint[name]
    if weight.dim() != 2:
        raise ValueError(f"{name} has shape {list(weight.shape)}, expected a matrix")
    if checkpoint.type_of(name) == "F8_E4M3":
        return _fp8(checkpoint, base, weight)
    if checkpoint.type_of(name) == "I8":
        return _int8(checkpoint, base, weight)
    if not weight.is_floating_point():
        raise ValueError(f"{name} has type {checkpoint.type_of(name)}, expected a floating type")
    return Matrix(name, weight)


def _fp8(checkpoint: Checkpoint, base: str, weight: torch.Tensor) -> Matrix:
    """Codes with scales of squares; or the numbers of codes with one scale per row or for all, or with the exponents of blocks of 32
    along a row."""
    rows, columns = weight.shape
    zeros = f"{base}.weight_zero_point"
    if zeros in checkpoint and checkpoint[zeros].bool().any():
        raise ValueError(f"{zeros} has other numbers than 0, expected none: {base}.weight is F8_E4M3")
    name = f"{base}.weight_scale_inv"
    if name in checkpoint:
        return _in_squares(checkpoint, base, weight, name)
    name = f"{base}.weight_scale"
    if name not in checkpoint:
        raise ValueError(f"{base}.weight is F8_E4M3 without .weight_scale_inv or .weight_scale")
    _check_type(checkpoint, name, _FLOATS + _EXPONENTS)
    if checkpoint.type_of(name) in _FLOATS:
        if not _is_of_rows(checkpoint[name], rows):
            return _in_squares(checkpoint, base, weight, name)
        return Matrix(f"{base}.weight", codes.e4m3()[weight.long()] * _of_rows(checkpoint, name, rows, _FLOATS))
    if columns % BLOCK:
        raise ValueError(f"{base}.weight has rows of {columns}, expected a multiple of the {BLOCK} of a block of MXFP8")
    exponents = _part(checkpoint, name, (rows, columns // BLOCK))
    powers = codes.e8m0()[exponents.long()].float().repeat_interleave(BLOCK, 1)
    return Matrix(f"{base}.weight", codes.e4m3()[weight.long()] * powers)


def _in_squares(checkpoint: Checkpoint, base: str, weight: torch.Tensor, name: str) -> Matrix:
    _check_type(checkpoint, name, _FLOATS)
    sizes, shape = weight.shape, checkpoint[name].shape
    expected = [-(-size // SQUARE) for size in sizes]
    if list(shape) != expected:
        others = "" if name.endswith("_inv") else "one number, one for each row, or "
        said = f"{name} has shape {list(shape)}, expected {others}{expected} for blocks of {SQUARE} x {SQUARE} of {list(sizes)}"
        if len(shape) == 2 and all(shape) and not any(size % count for size, count in zip(sizes, shape)):
            said += f", found blocks of {sizes[0] // shape[0]} x {sizes[1] // shape[1]}"
        raise ValueError(said)
    return Matrix(f"{base}.weight", weight, stored_of("fp8e4m3:128x128"), (checkpoint[name].float(),))


def _int8(checkpoint: Checkpoint, base: str, weight: torch.Tensor) -> Matrix:
    """compressed-tensors: codes with one scale per row or for all; their numbers if they are asymmetric, with zero points."""
    name, zeros = f"{base}.weight_scale", f"{base}.weight_zero_point"
    if name not in checkpoint:
        raise ValueError(f"{base}.weight is I8 without .weight_scale")
    rows, scale = len(weight), _of_rows(checkpoint, name, len(weight), _FLOATS)
    if zeros in checkpoint:
        points = _of_rows(checkpoint, zeros, rows, ("I8",))
        if points.any():
            return Matrix(f"{base}.weight", (weight.float() - points) * scale)
    return Matrix(f"{base}.weight", weight, stored_of("int8"), (scale.expand(rows, 1),))


def _of_rows(checkpoint: Checkpoint, name: str, rows: int, types: tuple) -> torch.Tensor:
    """A tensor with one number for each row, or for all: float32 [out, 1] or [1, 1]. ValueError: it has another type or shape."""
    found = checkpoint[name]
    _check_type(checkpoint, name, types)
    if not _is_of_rows(found, rows):
        raise ValueError(f"{name} has shape {list(found.shape)}, expected one number, or one for each of the {rows} rows")
    return found.float().reshape(-1, 1)


def _is_of_rows(scale: torch.Tensor, rows: int) -> bool:
    """Whether these are one number, or one for each row of a matrix."""
    return tuple(scale.shape) in ((), (1,), (rows,), (rows, 1))


def _mxfp4(checkpoint: Checkpoint, base: str) -> Matrix:
    """compressed-tensors: pairs of E2M1 along the sum, [out, in / 2], with exponents of blocks of 32, [out, in / 32]."""
    name = f"{base}.weight_packed"
    pairs = _matrix(checkpoint, name, ("U8",))
    rows, columns = pairs.shape[0], 2 * pairs.shape[1]
    if columns % BLOCK:
        raise ValueError(f"{name} has rows of {columns}, expected a multiple of the {BLOCK} of a block of MXFP4")
    scale = _part(checkpoint, f"{base}.weight_scale", (rows, columns // BLOCK), _EXPONENTS)
    return Matrix(name, pairs, stored_of("mxfp4"), (scale,))


# The ends of the names of stacks of MXFP4.
MXFP4_STACK = ("_blocks", "_scales")


def is_mxfp4_stack(checkpoint: Checkpoint, name: str) -> bool:
    return f"{name}{MXFP4_STACK[0]}" in checkpoint


def mxfp4_stack(checkpoint: Checkpoint, name: str, size: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The matrices of all experts as gpt-oss has them, of this size [out, in]: pairs of E2M1 along the sum, [experts, out, in / 2], from
    blocks of 16 bytes, and exponents [experts, out, in / 32]."""
    blocks, scales = (_present(checkpoint, f"{name}{end}") for end in MXFP4_STACK)
    rows, columns = size
    for end, found, shape in zip(MXFP4_STACK, (blocks, scales), ((rows, columns // BLOCK, BLOCK // 2), (rows, columns // BLOCK))):
        if tuple(found.shape[1:]) != shape or len(found) != len(blocks) or columns % BLOCK:
            raise ValueError(f"{name}{end} has shape {list(found.shape)}, expected [experts, {', '.join(map(str, shape))}] for {list(size)}")
    _check_type(checkpoint, f"{name}{MXFP4_STACK[0]}", ("U8",))
    _check_type(checkpoint, f"{name}{MXFP4_STACK[1]}", _EXPONENTS)
    return blocks.flatten(2), scales


def numbers(checkpoint: Checkpoint, name: str) -> torch.Tensor:
    """A tensor of numbers, such as biases."""
    found = _present(checkpoint, name)
    _check_type(checkpoint, name, _FLOATS)
    return found


def of_expert(name: str, biases: torch.Tensor, expert: int, experts: int | None) -> torch.Tensor:
    """The bias of an expert from the biases of all; `experts`: how many there must be, or None."""
    if biases.dim() != 2 or expert >= len(biases) or experts not in (None, len(biases)):
        raise ValueError(f"{name} has shape {list(biases.shape)}, expected biases of {max(expert + 1, experts or 0)} experts")
    return biases[expert]


def _nvfp4(checkpoint: Checkpoint, base: str, weight: str, second: str) -> Matrix:
    """Pairs of E2M1 along the sum, [out, in / 2], with E4M3 for each 16, [out, in / 16], and one scale of all: a factor as
    ModelOpt writes it, or a divisor as compressed-tensors does."""
    name, of_all = f"{base}.{weight}", f"{base}.{second}"
    pairs = _matrix(checkpoint, name, ("U8",))
    rows, columns = pairs.shape[0], 2 * pairs.shape[1]
    if columns % codes.NV_BLOCK:
        raise ValueError(f"{name} has rows of {columns}, expected a multiple of the {codes.NV_BLOCK} of a block of NVFP4")
    scale = _part(checkpoint, f"{base}.weight_scale", (rows, columns // codes.NV_BLOCK), ("F8_E4M3",))
    found = _present(checkpoint, of_all)
    _check_type(checkpoint, of_all, ("F32",))
    if found.numel() != 1 or not torch.isfinite(found).all() or not found.item() > 0:
        raise ValueError(f"{of_all} is {found.flatten()[:2].tolist()} of shape {list(found.shape)}, expected one positive number")
    factor = found.reshape(1) if second == "weight_scale_2" else 1 / found.reshape(1)
    return Matrix(name, pairs, stored_of("nvfp4"), (scale, factor))


def _grouped(checkpoint: Checkpoint, base: str) -> Matrix:
    """GPTQ: words along the sum, [in / 8, out]; or AWQ: words along the columns of the product, [in, out / 8]."""
    words, scale = _matrix(checkpoint, f"{base}.qweight", _WORDS), _matrix(checkpoint, f"{base}.scales", _FLOATS)
    groups, outs = scale.shape
    is_awq = words.shape[1] * _PER_WORD == outs
    if not is_awq and (words.shape[1] != outs or outs % _PER_WORD):
        raise ValueError(f"{base}.qweight has shape {list(words.shape)} beside scales {list(scale.shape)}: not 4 bits")
    zeros = _part(checkpoint, f"{base}.qzeros", (groups, outs // _PER_WORD), _WORDS)
    length = len(words) * (1 if is_awq else _PER_WORD)
    if not groups or length % (2 * groups):
        raise ValueError(f"{base}.scales has {groups} groups, expected even ones of the {length} rows of codes")
    if is_awq:
        each, zeros = (_split(part)[..., list(_AWQ_ORDER)].flatten(-2).to(torch.uint8) for part in (words, zeros))
        pairs = (each[::2] | each[1::2] << 4).t()
    else:
        pairs, zeros = words.t().clone(memory_format=torch.contiguous_format).view(torch.uint8), _split(zeros).flatten(-2)
        _check_order(checkpoint, f"{base}.g_idx", length, groups)
        if _quantization(checkpoint).get("checkpoint_format", "gptq") != "gptq_v2":
            zeros = zeros + 1 & 15  # the first version of the format stores zeros less 1
    return in_groups(f"{base}.qweight", pairs, scale.t(), _unless_symmetric(zeros.t()))


def _check_order(checkpoint: Checkpoint, name: str, length: int, groups: int):
    """ValueError: the group of each of the numbers of a row is not that of its place. Some writers have -1 where no order was set."""
    if name not in checkpoint:
        return
    found = checkpoint[name].long()
    if not any(torch.equal(found, each) for each in (torch.arange(length) // (length // groups or 1), torch.full((length,), -1))):
        raise ValueError(f"{name}: groups in another order (act-order), expected consecutive numbers")


def _pack_quantized(checkpoint: Checkpoint, base: str) -> Matrix:
    """compressed-tensors: words along the sum, [out, in / 8] of codes of 4 bits plus 8, or [out, in / 4] of codes of 8 bits plus 128,
    whose numbers are taken unless they are symmetric with one group; with scales [out, groups] and, if they are asymmetric, zero points."""
    name = f"{base}.weight_packed"
    words, scale = _matrix(checkpoint, name, _WORDS), _present(checkpoint, f"{base}.weight_scale")
    shape = _part(checkpoint, f"{base}.weight_shape", (2,), _INTEGERS).tolist()
    rows, columns = shape
    bits = next((bits for bits in (4, 8) if tuple(words.shape) == (rows, -(-columns * bits // 32))), None)
    if bits is None or columns <= 4:  # so few columns take one word with 4 and 8 bits
        raise ValueError(f"{name} is {words.dtype} {list(words.shape)} of shape {shape}, expected I32 with 8 or 4 codes per word")
    groups = scale.shape[1] if scale.is_floating_point() and scale.dim() == 2 and scale.shape[0] == rows else 0
    if not groups or columns % (2 * groups):
        raise ValueError(f"{base}.weight_scale is {scale.dtype} {list(scale.shape)}, expected even groups of {shape}")
    _check_order(checkpoint, f"{base}.weight_g_idx", columns, groups)
    zeros = _zero_points(checkpoint, base, bits, rows, groups)
    made = words.view(torch.uint8)[:, : columns * bits // 8]
    if bits == 4:
        return in_groups(name, made, scale, _unless_symmetric(zeros))
    if groups == 1 and bool((zeros == 128).all()):
        return Matrix(name, (made ^ 128).view(torch.int8), stored_of("int8"), (scale.float(),))
    made = made.unflatten(1, (groups, -1)) - zeros.unsqueeze(-1)
    return Matrix(name, (made * scale.float().unsqueeze(-1)).flatten(1))


def _unless_symmetric(zeros: torch.Tensor) -> torch.Tensor | None:
    """The codes of 4 bits that stand for 0, for in_groups()."""
    return None if bool((zeros == 8).all()) else zeros.to(torch.int8)


def _zero_points(checkpoint: Checkpoint, base: str, bits: int, rows: int, groups: int) -> torch.Tensor:
    """int16 [out, groups]: the codes that stand for 0. Files have them in words along the rows, [out / 8, groups] or [out / 4, groups];
    old files have them as I8 [out, groups], less 8 or 128."""
    name, half = f"{base}.weight_zero_point", 1 << bits - 1
    if name not in checkpoint:
        return torch.full((rows, groups), half, dtype=torch.int16)
    _check_type(checkpoint, name, (*_WORDS, "I8"))
    if checkpoint.type_of(name) == "I8":
        found = _part(checkpoint, name, (rows, groups)).short() + half
        if found.numel() and not 0 <= found.min() <= found.max() < 2 * half:
            raise ValueError(f"{name} has numbers from {found.min() - half} to {found.max() - half}, expected {-half} to {half - 1}")
        return found
    words = _part(checkpoint, name, (-(-rows * bits // 32), groups))
    return _split(words, bits).transpose(1, 2).flatten(0, 1)[:rows].short()


def _split(words: torch.Tensor, bits: int = 4) -> torch.Tensor:
    """[...] -> [..., 8], or of 8 bits [..., 4]: the codes of each word, from the lowest bits on."""
    return words.unsqueeze(-1) >> bits * torch.arange(32 // bits, dtype=torch.int32) & (1 << bits) - 1


def _present(checkpoint: Checkpoint, name: str) -> torch.Tensor:
    if name not in checkpoint:
        raise ValueError(f"{checkpoint.path} has no {name}")
    return checkpoint[name]


def _part(checkpoint: Checkpoint, name: str, shape: tuple, types: tuple | None = None) -> torch.Tensor:
    found = _present(checkpoint, name)
    if tuple(found.shape) != shape:
        raise ValueError(f"{name} has shape {list(found.shape)}, expected {list(shape)}")
    _check_type(checkpoint, name, types)
    return found


def _matrix(checkpoint: Checkpoint, name: str, types: tuple) -> torch.Tensor:
    found = _present(checkpoint, name)
    if found.dim() != 2:
        raise ValueError(f"{name} has shape {list(found.shape)}, expected a matrix")
    _check_type(checkpoint, name, types)
    return found


def _check_type(checkpoint: Checkpoint, name: str, types: tuple | None):
    if types is not None and checkpoint.type_of(name) not in types:
        raise ValueError(f"{name} has type {checkpoint.type_of(name)}, expected {' or '.join(types)}")


def _quantization(checkpoint: Checkpoint) -> dict:
    """What config.json says of quantization."""
    found = checkpoint.config().get("quantization_config")
    if found is not None and not isinstance(found, dict):
        raise ValueError(f"{checkpoint.path}: quantization_config of config.json is {found!r}, expected an object")
    return found or {}


# The last parts of the names that the tensors of a matrix may have; the last ones are of rows, which a layer does not read.
PARTS = (
    "weight", "weight_packed", "weight_scale", "weight_scale_inv", "weight_scale_2", "weight_global_scale", "weight_shape",
    "weight_zero_point", "weight_g_idx", "qweight", "qzeros", "scales", "g_idx", "input_scale", "input_global_scale",
)  # fmt: skip
