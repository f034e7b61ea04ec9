"""Whole models in GGUF files, under the names that their parameters have in safetensors files of transformers."""

import collections.abc
import pathlib
import re

import torch

from ..replacing.families import FAMILIES, Family
from . import gguf

# Families whose tensors have the order of numbers that transformers has; other architectures, such as llama with its turned rows of query
# and key, are refused.
ARCHITECTURES = {family.architecture: family for family in FAMILIES if family.architecture}
_LAYER = re.compile(r"\.(\d+)\.")


def names_in_files(family: Family) -> dict[str, str]:
    """Names of transformers -> names in the file, {n} being the number of a layer, of all tensors but experts. (A family without a
    shared expert has no file with a tensor of one.)"""
    parts = [(part, own.removesuffix("_exps")) for part, own in zip(family.parts, gguf.NAMES)]
    in_block = {family.router: "ffn_gate_inp", family.shared_gate: "ffn_gate_inp_shexp", **dict(parts)}
    in_block.update({f"{family.shared}.{part}": f"{own}_shexp" for part, own in parts})
    in_layer = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        **{f"self_attn.{each}_proj": f"attn_{each}" for each in ("q", "k", "v")},
        **{f"self_attn.{each}_norm": f"attn_{each}_norm" for each in ("q", "k")},
        "self_attn.o_proj": "attn_output",
        **{f"{family.block}.{name}": own for name, own in in_block.items()},
    }
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    return {**names, **{f"model.layers.{{n}}.{name}": f"blk.{{n}}.{own}" for name, own in in_layer.items()}}


def translated(names: dict[str, str], name: str) -> str | None:
    """A tensor's name by such a table, or by one that is turned around; None: the table does not have it."""
    stem, _, last = name.rpartition(".")
    number = _LAYER.search(stem)
    known = names.get(_LAYER.sub(".{n}.", stem, 1) if number else stem)
    return None if known is None else f"{known.replace('{n}', number[1] if number else '')}.{last}"


def layer_in_file(family: Family, path, experts: str) -> str:
    """The beginning of a layer's names in a file, by the name of its experts in the model. ValueError: they have another name there."""
    place = f"model.layers.{{n}}.{family.block}.{family.experts}"
    number = _LAYER.search(experts)
    if number is None or experts != place.replace("{n}", number[1]):
        raise ValueError(f"{path}: the model has experts {experts}, expected {place.replace('{n}', 'N')}, as transformers has them")
    return f"blk.{number[1]}"


class GgufModel(collections.abc.Mapping):
    """The tensors of a GGUF file by names of transformers; stacked experts one by one and, like those that have no name there,
    by their own.

    ValueError: what Gguf refuses; another architecture.
    """

    def __init__(self, path):
        self.gguf = gguf.Gguf(path)
        self.path = self.gguf.path
        found = self.gguf.metadata.get("general.architecture")
        if found not in ARCHITECTURES:
            raise ValueError(f"{self.path}: general.architecture is {found!r:.99}, expected one of {', '.join(ARCHITECTURES)}")
        family = ARCHITECTURES[found]
        self._family = family
        self._row = f".{family.shared_gate}.weight"  # a matrix of one row in the model, a row of numbers in the file
        self._name_of = {}  # of transformers -> in the file, and the number of an expert in it or None
        backwards, parts = {own: name for name, own in names_in_files(family).items()}, dict(zip(gguf.NAMES, family.parts))
        for name in self.gguf.names():
            stem, _, last = name.rpartition(".")
            number = _LAYER.search(stem)
            self._name_of[translated(backwards, name) or name] = name, None
            part = parts.get(stem.rpartition(".")[2]) if number and last == "weight" else None
            for expert in range(self.gguf.shape_of(name)[0]) if part else ():
                self._name_of[f"model.layers.{number[1]}.{family.block}.{family.experts}.{expert}.{part}.weight"] = name, expert

    def __getitem__(self, name: str) -> torch.Tensor:
        own, expert = self._name_of[name]
        if expert is not None:
            prefix, part, _ = own.rsplit(".", 2)
            return self.gguf.matrix(prefix, expert, part, None).decoded()
        made = self.gguf.tensor(own)
        return made.unsqueeze(0) if name.endswith(self._row) and made.dim() == 1 else made

    def __iter__(self):
        return iter(self._name_of)

    def __len__(self) -> int:
        return len(self._name_of)

    def shape_of(self, name: str) -> tuple[int, ...]:
        own, expert = self._name_of[name]
        sizes = self.gguf.shape_of(own)[0 if expert is None else 1 :]
        return (1, *sizes) if name.endswith(self._row) and len(sizes) == 1 else sizes

    def type_of(self, name: str) -> str:
        return self.gguf.type_of(self._name_of[name][0])

    def in_file(self, name: str) -> str:
        """The name of the tensor that has this one."""
        return self._name_of[name][0]

    def has_numbers(self, name: str) -> bool:
        return True  # which blocks are decoded to

    def prefix_of(self, experts: str) -> str:
        """The beginning of the names of a layer's experts in the file. ValueError: they have another name in the model."""
        return layer_in_file(self._family, self.path, experts)

    def paths(self) -> list[pathlib.Path]:
        return self.gguf.paths()

    def has_memory(self, tensor: torch.Tensor) -> bool:
        return False  # layers have codes in another order

    def copy_into(self, target: torch.Tensor, tensor: torch.Tensor):
        self.gguf.copy_into(target, tensor)

    def release(self):
        self.gguf.release()
