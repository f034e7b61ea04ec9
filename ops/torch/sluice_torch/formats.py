"""Matrices of checkpoints in the formats that people have: plain numbers, FP8 and FP4 in blocks, and 4-bit codes in groups.

Names are those of the tools that write them; `base` is the name of a linear layer, without the last part. All matrices
are [out, in]. docs/PYTORCH.md, *Checkpoints*, lists the formats.
"""

import dataclasses

import torch

from . import codes
from .checkpoint import Checkpoint
from .encodings import BLOCK
from .stored import SQUARE

# Codes of a word of 32 bits, in GPTQ and pack-quantised files from the lowest bits on, so that their bytes are pairs of codes
# as layers have them; AWQ has them in another order.
_PER_WORD = 8
_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
# The types that parts of a format may have.
_WORDS, _INTEGERS, _FLOATS, _EXPONENTS = ("I32",), ("I32", "I64"), ("F16", "BF16", "F32"), ("U8", "F8_E8M0")


@dataclasses.dataclass
class Matrix:
    """Numbers; or pairs of codes of 4 bits with scale and zero: number = code * scale + zero, or (code - 8) * scale if it is
    symmetric; or pairs of E2M1 with powers of two as scales, or with E4M3 and a factor; or codes of E4M3 with a scale for
    each square."""

    name: str
    numbers: torch.Tensor | None = None  # [out, in], a floating type
    pairs: torch.Tensor | None = None  # uint8 [out, in / 2], as sluice_torch.quantize() makes them
    scale: torch.Tensor | None = None  # [out, groups], a floating type, or uint8: exponents of powers of two plus 127, or with
    # a factor E4M3; of squares float32 [out / 128, in / 128], rounded up
    zero: torch.Tensor | None = None  # float32 [out, groups]; None: symmetric
    squares: torch.Tensor | None = None  # uint8 [out, in], as sluice_torch.quantize_fp8() makes them
    factor: torch.Tensor | None = None  # float32 [1]

    @property
    def shape(self) -> tuple[int, int]:
        whole = self.squares if self.numbers is None else self.numbers
        if whole is not None:
            return tuple(whole.shape)
        return self.pairs.shape[0], 2 * self.pairs.shape[1]

    @property
    def group(self) -> int:
        return self.shape[1] // self.scale.shape[1]

    @property
    def scale_type(self) -> str:
        """As Stored.scale."""
        if self.scale.dtype != torch.uint8:
            return "F32"
        return "F8_E8M0" if self.factor is None else "F8_E4M3"

    def decoded(self) -> torch.Tensor:
        """The numbers, of codes in float32."""
        if self.numbers is not None:
            return self.numbers
        if self.squares is not None:
            return codes.dequantize_fp8(self.squares, self.scale, torch.float32)
        if self.factor is not None:
            return codes.dequantize_nvfp4(self.pairs, self.scale, self.factor, torch.float32)
        if self.scale_type == "F8_E8M0":
            return codes.dequantize_mxfp4(self.pairs, self.scale, torch.float32)
        return codes.dequantize(self.pairs, self.scale.float(), self.zero, torch.float32)


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
    if not weight.is_floating_point():
        raise ValueError(f"{name} has type {checkpoint.type_of(name)}, expected a floating type")
    return Matrix(name, weight)


def _fp8(checkpoint: Checkpoint, base: str, weight: torch.Tensor) -> Matrix:
    """Codes with scales of squares, or the numbers of codes with the exponents of blocks of 32 along a row."""
    rows, columns = weight.shape
    name = f"{base}.weight_scale_inv"
    if name in checkpoint:
        scale = _part(checkpoint, name, (-(-rows // SQUARE), -(-columns // SQUARE)), _FLOATS).float()
        return Matrix(f"{base}.weight", scale=scale, squares=weight)
    name = f"{base}.weight_scale"
    if name not in checkpoint or checkpoint.type_of(name) not in _EXPONENTS:
        raise ValueError(f"{base}.weight is F8_E4M3 without .weight_scale_inv or a .weight_scale of exponents")
    if columns % BLOCK:
        raise ValueError(f"{base}.weight has rows of {columns}, expected a multiple of the {BLOCK} of a block of MXFP8")
    exponents = _part(checkpoint, name, (rows, columns // BLOCK))
    powers = codes.e8m0()[exponents.long()].float().repeat_interleave(BLOCK, 1)
    return Matrix(f"{base}.weight", codes.e4m3()[weight.long()] * powers)


def _mxfp4(checkpoint: Checkpoint, base: str) -> Matrix:
    """compressed-tensors: pairs of E2M1 along the sum, [out, in / 2], with exponents of blocks of 32, [out, in / 32]."""
    name = f"{base}.weight_packed"
    pairs = _matrix(checkpoint, name, ("U8",))
    rows, columns = pairs.shape[0], 2 * pairs.shape[1]
    if columns % BLOCK:
        raise ValueError(f"{name} has rows of {columns}, expected a multiple of the {BLOCK} of a block of MXFP4")
    scale = _part(checkpoint, f"{base}.weight_scale", (rows, columns // BLOCK), _EXPONENTS)
    return Matrix(name, pairs=pairs, scale=scale)


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
    return Matrix(name, pairs=pairs, scale=scale, factor=factor)


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
        _check_order(checkpoint, base, length, groups)
        if _quantization(checkpoint).get("checkpoint_format", "gptq") != "gptq_v2":
            zeros = zeros + 1 & 15  # the first version of the format stores zeros less 1
    scale, zeros = scale.float().t(), zeros.float().t()
    is_symmetric = bool((zeros == 8).all())
    return Matrix(f"{base}.qweight", pairs=pairs, scale=scale, zero=None if is_symmetric else -zeros * scale)


def _check_order(checkpoint: Checkpoint, base: str, length: int, groups: int):
    name = f"{base}.g_idx"
    if name in checkpoint and not torch.equal(checkpoint[name].long(), torch.arange(length) // (length // groups or 1)):
        raise ValueError(f"{name}: groups in another order (act-order), expected consecutive numbers")


def _pack_quantized(checkpoint: Checkpoint, base: str) -> Matrix:
    """compressed-tensors: words along the sum, [out, in / 8], of codes plus 8, with scales [out, groups]."""
    name = f"{base}.weight_packed"
    if f"{base}.weight_zero_point" in checkpoint:
        raise ValueError(f"{base}.weight_zero_point: asymmetric pack-quantized weights are not supported")
    words, scale = _matrix(checkpoint, name, _WORDS), _present(checkpoint, f"{base}.weight_scale")
    shape = _part(checkpoint, f"{base}.weight_shape", (2,), _INTEGERS).tolist()
    if tuple(words.shape) != (shape[0], -(-shape[1] // _PER_WORD)):
        raise ValueError(f"{name} is {words.dtype} {list(words.shape)} of shape {shape}, expected I32 with 8 codes per word")
    if not scale.is_floating_point() or scale.dim() != 2 or scale.shape[0] != shape[0] or not scale.shape[1] or shape[1] % (2 * scale.shape[1]):
        raise ValueError(f"{base}.weight_scale is {scale.dtype} {list(scale.shape)}, expected even groups of {shape}")
    pairs = words.view(torch.uint8)[:, : shape[1] // 2]
    return Matrix(name, pairs=pairs, scale=scale)


def _split(words: torch.Tensor) -> torch.Tensor:
    """[...] -> [..., 8]: the codes of each word, from the lowest bits on."""
    return words.unsqueeze(-1) >> 4 * torch.arange(_PER_WORD, dtype=torch.int32) & 15


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
