"""Writes a whole model as one GGUF file: `python3 -m sluice_torch.convert SOURCE TARGET.gguf` (docs/MODELS.md, *GGUF files*)."""

import math
import struct
import typing

import torch

from ..encodings.codes import from_pairs
from . import gguf, safetensors
from .checkpoint import Checkpoint
from .gguf_blocks import KINDS
from .gguf_models import ARCHITECTURES, layer_in_file, names_in_files, translated

_ALIGNMENT = 32
_NUMBER = {kind.name: number for number, kind in KINDS.items()}
_PLAIN = ("F32", "F16", "BF16")
# Encodings that a type of the format is the same as, bit by bit.
TYPES = {"bf16": "BF16", "int4:g32:f16": "Q4_0", "mxfp4": "MXFP4"}
# Metadata below the architecture -> what config.json of transformers calls it, and what it is where that says nothing; None: it must say it,
# "": then the file does not, either. Whole numbers are U32, floats F32.
_WHOLE = {
    "block_count": ("num_hidden_layers", None),
    "context_length": ("max_position_embeddings", None),
    "embedding_length": ("hidden_size", None),
    "feed_forward_length": ("intermediate_size", ""),
    "attention.head_count": ("num_attention_heads", None),
    "attention.head_count_kv": ("num_key_value_heads", ""),
    "attention.key_length": ("head_dim", ""),
    "attention.value_length": ("head_dim", ""),
    "expert_count": ("num_experts", None),
    "expert_used_count": ("num_experts_per_tok", None),
    "expert_feed_forward_length": ("moe_intermediate_size", None),
    "expert_shared_feed_forward_length": ("shared_expert_intermediate_size", ""),
}
_FLOATS = {"attention.layer_norm_rms_epsilon": ("rms_norm_eps", 1e-6), "rope.freq_base": ("rope_theta", 10000.0)}
# Whether readers normalise the routing weights of an architecture: files do not say it.
_NORMALISED = {"qwen2moe": False, "qwen3moe": True}


class _Tensor(typing.NamedTuple):
    name: str
    shape: tuple[int, ...]
    kind: str
    make: typing.Callable[[], torch.Tensor]  # uint8, of any shape

    @property
    def bytes(self) -> int:
        kind = KINDS[_NUMBER[self.kind]]
        return math.prod(self.shape) // kind.numbers * kind.size


def write(path, checkpoint: Checkpoint, experts: list, kind: str, encoded: typing.Callable[[int], dict]):
    """Writes the tensors of a checkpoint with the names of transformers.

    experts  of each layer: prefix, names of its tensors, hidden, intermediate, count, is_gated, has_biases
    kind     one of TYPES, of their matrices
    encoded  index of a layer -> its parameters, as a sluice_torch.MoE of that encoding has them
    ValueError: a family without an architecture of GGUF, or a tensor or a number of config.json that the format does not have.
    OSError: the file cannot be written; then there is none.
    """
    architecture, metadata = _metadata(checkpoint)
    family, tensors, inside = ARCHITECTURES[architecture], [], set()
    names = names_in_files(family)
    for number, each in enumerate(experts):
        if not each.is_gated or each.has_biases:
            raise ValueError(f"{each.prefix} has {'biases, expected none' if each.is_gated else 'no gate, expected one'}: {architecture}")
        inside.update(each.names)
        tensors += _of_experts(layer_in_file(family, checkpoint.path, each.prefix), each, kind, number, encoded)
    for name in checkpoint:
        if name not in inside:
            tensors.append(_other(checkpoint, name, names))
    infos, end = b"", 0
    for each in tensors:
        sizes = each.shape[::-1]
        infos += _text(each.name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, _NUMBER[each.kind], end)
        end += each.bytes + -each.bytes % _ALIGNMENT
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + b"".join(metadata) + infos
    with safetensors.replacing(path) as file:
        file.write(head + bytes(-len(head) % _ALIGNMENT))
        for each in tensors:
            file.write(memoryview(each.make().contiguous().numpy()))
            file.write(bytes(-each.bytes % _ALIGNMENT))
            checkpoint.release()


def _of_experts(layer: str, experts, kind: str, number: int, encoded: typing.Callable[[int], dict]) -> list[_Tensor]:
    """Gate, up and down of a layer, [experts, out, in] each."""
    made = {}

    def data(part: int) -> torch.Tensor:
        if not made:
            made.update(encoded(number))
        is_down = part == 2
        name = f"{experts.prefix}.{'down' if is_down else 'gate_up'}_weight"
        own = [made[each] if is_down else made[each].chunk(2, 1)[part] for each in (name, f"{name}_scales") if each in made]
        if is_down:
            made.clear()
        return _blocks(*own)

    up, down = (experts.count, experts.intermediate, experts.hidden), (experts.count, experts.hidden, experts.intermediate)
    return [
        _Tensor(f"{layer}.{name}.weight", shape, kind, lambda part=part: data(part))
        for part, (name, shape) in enumerate(zip(gguf.NAMES, (up, up, down)))
    ]


def _blocks(codes: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
    """Numbers as they are; of codes blocks of a scale and 16 bytes, with number i in the lower half of byte i, and i + 16 in the upper one."""
    if scale is None:
        return codes.contiguous().view(torch.uint8)
    each = from_pairs(codes).unflatten(-1, (-1, 2, 16))
    scales = scale.contiguous().view(torch.uint8).unflatten(-1, (scale.shape[-1], -1))
    return torch.cat((scales, each[..., 0, :] | each[..., 1, :] << 4), -1)


def _other(checkpoint: Checkpoint, name: str, names: dict[str, str]) -> _Tensor:
    """A tensor of numbers. Vectors and routers are float32, as readers expect them."""
    found = translated(names, name)
    if found is None:
        raise ValueError(f"{checkpoint.path}: {name} has no name in GGUF files")
    if checkpoint.type_of(name) not in _PLAIN:
        raise ValueError(f"{checkpoint.path}: {name} has type {checkpoint.type_of(name)}, expected {', '.join(_PLAIN)}")
    shape = tuple(checkpoint.shape_of(name))
    if found.endswith("ffn_gate_inp_shexp.weight") and shape[0] == 1:
        shape = shape[1:]  # the gate of a shared expert is a row
    is_wide = len(shape) == 1 or "ffn_gate_inp" in found

    def data() -> torch.Tensor:
        own = checkpoint[name].float() if is_wide else checkpoint[name]
        return own.contiguous().view(-1).view(torch.uint8)

    return _Tensor(found, shape, "F32" if is_wide else checkpoint.type_of(name), data)


def _metadata(checkpoint: Checkpoint) -> tuple[str, list[bytes]]:
    config, where = checkpoint.config(), f"{checkpoint.path}: config.json has"
    found = config.get("model_type")
    architecture = found.replace("_", "") if isinstance(found, str) else found
    if architecture not in ARCHITECTURES:
        known = ", ".join(name.replace("moe", "_moe") for name in ARCHITECTURES)
        raise ValueError(f"{where} model_type {found!r:.99}, expected one of {known}")
    normalised = config.get("norm_topk_prob", _NORMALISED[architecture])
    if normalised is not _NORMALISED[architecture]:
        raise ValueError(f"{where} norm_topk_prob {normalised!r:.99}, expected {_NORMALISED[architecture]}, as readers take it for {architecture}")
    entries = [
        _entry("general.architecture", 8, _text(architecture)),
        _entry("general.alignment", 4, struct.pack("<I", _ALIGNMENT)),
        _entry("tokenizer.ggml.model", 8, _text("none")),
    ]
    for keys, kind, code in ((_WHOLE, 4, "I"), (_FLOATS, 6, "f")):
        for key, (name, default) in keys.items():
            value = config.get(name, default)
            if value == "" or value is None and default == "":
                continue
            is_number = isinstance(value, int) and 0 <= value < 2**32 if kind == 4 else isinstance(value, (int, float)) and 0 < value < 1e38
            if not is_number or isinstance(value, bool):
                raise ValueError(f"{where} {name} {value!r:.99}, expected a number")
            entries.append(_entry(f"{architecture}.{key}", kind, struct.pack(f"<{code}", value)))
    return architecture, entries


def _entry(name: str, kind: int, value: bytes) -> bytes:
    return _text(name) + struct.pack("<I", kind) + value


def _text(words: str) -> bytes:
    return struct.pack("<Q", len(words.encode())) + words.encode()
