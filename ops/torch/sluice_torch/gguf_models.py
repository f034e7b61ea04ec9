"""Whole models in GGUF files, under the names that their parameters have in safetensors files of transformers."""

import collections.abc
import pathlib
import re

import torch

from .gguf import Gguf

# Architectures whose tensors have the order of numbers that transformers has; others, such as llama with its turned rows of query and
# key, are refused.
_ARCHITECTURES = ("qwen2moe", "qwen3moe")
# Names of transformers -> names in the file, {n} being the number of a layer.
_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    **{
        f"model.layers.{{n}}.{name}": f"blk.{{n}}.{other}"
        for name, other in {
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "ffn_norm",
            "self_attn.q_proj": "attn_q",
            "self_attn.k_proj": "attn_k",
            "self_attn.v_proj": "attn_v",
            "self_attn.o_proj": "attn_output",
            "self_attn.q_norm": "attn_q_norm",
            "self_attn.k_norm": "attn_k_norm",
            "mlp.gate": "ffn_gate_inp",
            "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
            **{f"mlp.shared_expert.{each}_proj": f"ffn_{each}_shexp" for each in ("gate", "up", "down")},
            **{f"mlp.{each}_proj": f"ffn_{each}" for each in ("gate", "up", "down")},
        }.items()
    },
}
_LAYER = re.compile(r"\.(\d+)\.")
_STACKED = re.compile(r"blk\.(\d+)\.ffn_(gate|up|down)_exps\.weight")


class GgufModel(collections.abc.Mapping):
    """The tensors of a GGUF file by names of transformers; stacked experts one by one and, like those that have no name there,
    by their own.

    ValueError: what Gguf refuses; another architecture.
    """

    def __init__(self, path):
        self.gguf = Gguf(path)
        self.path = self.gguf.path
        found = self.gguf.metadata.get("general.architecture")
        if found not in _ARCHITECTURES:
            raise ValueError(f"{self.path}: general.architecture is {found!r:.99}, expected one of {', '.join(_ARCHITECTURES)}")
        self._name_of = {}  # of transformers -> in the file, and the number of an expert in it or None
        backwards = {other: name for name, other in _NAMES.items()}
        for name in self.gguf.names():
            stem, _, last = name.rpartition(".")
            number = _LAYER.search(stem)
            known = backwards.get(_LAYER.sub(".{n}.", stem, 1) if number else stem)
            self._name_of[name if known is None else f"{known.replace('{n}', number[1] if number else '')}.{last}"] = name, None
            stacked = _STACKED.fullmatch(name)
            if stacked is not None:
                for expert in range(self.gguf.shape_of(name)[0]):
                    self._name_of[f"model.layers.{stacked[1]}.mlp.experts.{expert}.{stacked[2]}_proj.weight"] = name, expert

    def __getitem__(self, name: str) -> torch.Tensor:
        own, expert = self._name_of[name]
        if expert is not None:
            prefix, part, _ = own.rsplit(".", 2)
            return self.gguf.matrix(prefix, expert, part, None).decoded()
        made = self.gguf.tensor(own)
        # the gate of a shared expert is a row of numbers in the file
        return made.unsqueeze(0) if name.endswith(".shared_expert_gate.weight") and made.dim() == 1 else made

    def __iter__(self):
        return iter(self._name_of)

    def __len__(self) -> int:
        return len(self._name_of)

    def shape_of(self, name: str) -> tuple[int, ...]:
        own, expert = self._name_of[name]
        sizes = self.gguf.shape_of(own)[0 if expert is None else 1 :]
        return (1, *sizes) if name.endswith(".shared_expert_gate.weight") and len(sizes) == 1 else sizes

    def type_of(self, name: str) -> str:
        return self.gguf.type_of(self._name_of[name][0])

    def in_file(self, name: str) -> str:
        """The name of the tensor that has this one."""
        return self._name_of[name][0]

    def has_numbers(self, name: str) -> bool:
        return True  # which blocks are decoded to

    def prefix_of(self, experts: str) -> str:
        """The beginning of the names of a layer's experts in the file. ValueError: they have another name in the model."""
        match = re.fullmatch(r"model\.layers\.(\d+)\.mlp\.experts", experts)
        if match is None:
            raise ValueError(f"{self.path}: the model has experts {experts}, expected model.layers.N.mlp.experts, as transformers has them")
        return f"blk.{match[1]}"

    def paths(self) -> list[pathlib.Path]:
        return self.gguf.paths()

    def has_memory(self, tensor: torch.Tensor) -> bool:
        return False  # layers have codes in another order

    def copy_into(self, target: torch.Tensor, tensor: torch.Tensor):
        self.gguf.copy_into(target, tensor)

    def release(self):
        self.gguf.release()
