"""Adapters of experts in the files of the PEFT library: adapter_config.json and adapter_model.safetensors in a folder.

Expert e of the experts at `prefix` has base_model.model.PREFIX.e.NAME.lora_A.weight [r, in] and .lora_B.weight [out, r]
for the `names` of gate, up and down, as far as it has adapters there. PEFT scales B A by lora_alpha / r, or with use_rslora
by lora_alpha / sqrt(r); rank_pattern and alpha_pattern give modules another r and lora_alpha.
"""

import json
import math
import pathlib
import re

import torch

from .. import lora, state
from ..base.writes import write
from ..layers import sharding
from ..layers.moe import MoE
from ..ranks.ranks import raise_any
from ..replacing.families import NAMES
from . import safetensors
from .checkpoint import Checkpoint
from .peft_config import PeftConfig

CONFIG, MODEL = "adapter_config.json", "adapter_model.safetensors"
_ROOT = "base_model.model."
_SIDES = {"a": "lora_A", "b": "lora_B"}
_TYPES = ("F32", "F16", "BF16")


def adapter_config(path, prefix: str, names: tuple[str, str, str] = NAMES) -> lora.LoRAConfig:
    """The LoRAConfig of a layer that can have the adapters of the experts at `prefix` in the folder `path`.

    ValueError: a file that is missing or is none of PEFT; another kind of adapters than plain LoRA, or a key or value of the
    configuration that is not known (peft_config.py); experts that differ in r, scaling or targets; no adapters there.
    """
    return _Adapters(path, names).config_of(prefix)


@torch.no_grad()
def load_adapters(path, layers: dict[str, MoE], names: tuple[str, str, str] = NAMES) -> list[str]:
    """Sets the adapters of layers from the folder `path`: on this rank the adapters of its experts and its shard.

    layers   by the prefix of their experts ("model.layers.3.mlp.experts"); made with the LoRAConfig of adapter_config()
    names    of gate, up and down; the first counts for nothing where experts have no gate

    Numbers are rounded to the type of the parameters. Returns the tensors of the file that belong to none of the layers, such
    as adapters of attention. Dropout of adapters is not implemented: where the file's lora_dropout is above 0, the layer's
    lora_dropout becomes that, and its forwards in training mode are refused (RuntimeError).
    ValueError, before any layer has changed: as in adapter_config(); a layer with another rank, scaling or targets; a
    tensor that is missing, is superfluous below a prefix, or has another shape or type than the layer's.
    """
    file, found = _Adapters(path, names), []
    for prefix, layer in layers.items():
        _check_is_adapted(prefix, layer)
        file.check(prefix, layer.lora)
        found += [(layer, *each) for each in file.tensors_of(prefix, layer)]
    for layer, name, expert, tensor in found:
        own = sharding.take(name, tensor.unsqueeze(0), layer.shard, layer.shape.tp, layer.shape.inputs)[0]
        for row in (row for row, each in enumerate(layer.local_experts) if each == expert):
            write(getattr(layer, name)[row], own)
    for layer in layers.values():
        layer.lora_dropout = file.config.dropout
    return file.outside(layers)


@torch.no_grad()
def save_adapters(
    path,
    layers: dict[str, MoE],
    names: tuple[str, str, str] = NAMES,
    base_model: str | None = None,
    task_type: str | None = None,
):
    """Writes the adapters of layers, by the prefix of their experts, to the folder `path`, which is made if need be.

    Collective over the ranks of the layers, whose first rank gathers and writes. Each file has its name when it is
    complete. base_model and task_type ("CAUSAL_LM") are for PEFT, which finds the model by them.
    ValueError: no layers, or layers without adapters or with different ones. RuntimeError, at all ranks: the files
    cannot be written.
    """
    if not layers:
        raise ValueError("no layers are given, expected some by the prefix of their experts")
    for prefix, layer in layers.items():
        _check_is_adapted(prefix, layer)
    configs = [layer.lora for layer in layers.values()]
    if any(config != configs[0] for config in configs):
        raise ValueError(f"layers have adapters {', '.join(map(str, dict.fromkeys(configs)))}, expected the same ones")
    group = max((layer._group for layer in layers.values()), key=lambda each: each.size)
    first = group.members()[0] if group.size > 1 else None
    tensors = {}
    for prefix, layer in layers.items():
        for name in configs[0].names():
            target, _, side = name.split("_")
            whole = state.gather(name, getattr(layer, name).detach(), layer, first)
            for expert in range(layer.shape.experts if whole is not None else 0):
                tensors[_key(prefix, expert, names[lora.TARGETS.index(target)], side)] = whole[expert]
    failure = None
    if group.rank == 0:
        try:
            _write(pathlib.Path(path), tensors, _config_for(layers, configs[0], names, base_model, task_type))
        except OSError as error:
            failure = f"{path}: cannot write adapters: {error.strerror}"
    raise_any(group, group.gather_objects(failure, "save adapters"))


def _write(folder: pathlib.Path, tensors: dict[str, torch.Tensor], config: dict):
    folder.mkdir(parents=True, exist_ok=True)
    safetensors.write(folder / MODEL, tensors)
    with safetensors.replacing(folder / CONFIG) as file:
        file.write(json.dumps(config, indent=2).encode() + b"\n")


def _config_for(layers, config: lora.LoRAConfig, names, base_model, task_type) -> dict:
    """Its target_modules match the modules of experts alone: shared experts may have modules of the same names."""
    prefixes = "|".join(re.escape(prefix) for prefix in layers)
    targets = "|".join(re.escape(names[lora.TARGETS.index(target)]) for target in config.targets)
    alpha = int(config.alpha) if config.alpha.is_integer() else config.alpha
    return {
        "peft_type": "LORA",
        "task_type": task_type,
        "base_model_name_or_path": base_model,
        "r": config.rank,
        "lora_alpha": alpha,
        "target_modules": rf"({prefixes})\.\d+\.({targets})",
        "lora_dropout": max(layer.lora_dropout for layer in layers.values()),
        "bias": "none",
        "use_rslora": False,
        "use_dora": False,
        "fan_in_fan_out": False,
        "rank_pattern": {},
        "alpha_pattern": {},
        "inference_mode": True,
    }


def _check_is_adapted(prefix: str, layer: MoE):
    if not isinstance(layer, MoE):
        raise ValueError(f"{prefix} is of type {type(layer).__name__}, expected sluice_torch.MoE")
    if layer.lora is None:
        raise ValueError(f"the layer of {prefix} has no adapters: make it with lora=sluice_torch.LoRAConfig(...)")


def _key(prefix: str, expert: int, name: str, side: str) -> str:
    return f"{_ROOT}{prefix}.{expert}.{name}.{_SIDES[side]}.weight"


class _Adapters:
    """A folder with adapters."""

    def __init__(self, path, names: tuple[str, str, str]):
        self.path, self.names = pathlib.Path(path), tuple(names)
        if len(set(self.names)) != 3:
            raise ValueError(f"names are {names!r}, expected three different ones: of gate, up and down")
        self.config = PeftConfig(self.path / CONFIG)
        if not (self.path / MODEL).is_file():
            raise ValueError(f"{self.path} has no {MODEL}")
        self.checkpoint = Checkpoint(self.path / MODEL)

    def config_of(self, prefix: str) -> lora.LoRAConfig:
        """Returns the configuration of the modules that have adapters below `prefix`; all of them must agree."""
        targets, found = {}, None
        for expert, name, _ in sorted(self._below(prefix)):
            module = f"{prefix}.{expert}.{name}"
            now = self.config.rank_of(module), self.config.scaling_of(module)
            if found not in (None, now):
                raise ValueError(
                    f"{self.path / CONFIG}: {module} has r={now[0]}, scaling {now[1]:g}, but earlier experts have "
                    f"r={found[0]}, scaling {found[1]:g}: a layer has one of each"
                )
            found = now
            targets[lora.TARGETS[self.names.index(name)]] = True
        if found is None:
            raise ValueError(f"{self.path / MODEL} has no {_ROOT}{prefix}.E.NAME.lora_A.weight with NAME one of {', '.join(self.names)}")
        rank, scaling = found
        return lora.LoRAConfig(rank, scaling * rank, tuple(target for target in lora.TARGETS if target in targets))

    def check(self, prefix: str, own: lora.LoRAConfig):
        """ValueError: adapters of the file that a layer with the adapters `own` does not have."""
        found = self.config_of(prefix)
        for what, a, b in (("rank", found.rank, own.rank), ("scaling", found.scaling, own.scaling)):
            if not math.isclose(a, b, rel_tol=1e-6):
                raise ValueError(
                    f"{self.path}: adapters of {prefix} have {what} {a:g}, but the layer's have {b:g}: make it with "
                    f"lora={found}"
                )
        if set(found.targets) != set(own.targets):
            raise ValueError(f"{self.path}: adapters of {prefix} are at {found.targets}, but the layer's at {own.targets}")

    def tensors_of(self, prefix: str, layer: MoE):
        """(parameter, expert, tensor) of this rank's experts. The tensors of all experts are checked, so that all ranks find
        the same errors."""
        shape, local, used = layer.shape, set(layer.local_experts), set()
        outs = {"gate": shape.intermediate, "up": shape.intermediate, "down": shape.hidden}
        ins = {"gate": shape.hidden, "up": shape.hidden, "down": shape.intermediate}
        found = []
        for expert in range(shape.experts):
            for own in layer.lora.names():
                target, _, side = own.split("_")
                name, rank = self.names[lora.TARGETS.index(target)], layer.lora.rank
                self.config.check_is_target(f"{prefix}.{expert}.{name}")
                used.add((expert, name, side))
                tensor = self._read(_key(prefix, expert, name, side), (rank, ins[target]) if side == "a" else (outs[target], rank))
                if expert in local:
                    found.append((own, expert, tensor))
        for expert, name, side in sorted(self._below(prefix) - used):
            raise ValueError(
                f"{self.path / MODEL} has {_key(prefix, expert, name, side)}, but the layer has {shape.experts} experts with "
                f"adapters at {', '.join(layer.lora.targets)}"
            )
        return found

    def outside(self, prefixes) -> list[str]:
        return [name for name in self.checkpoint if not any(name.startswith(f"{_ROOT}{prefix}.") for prefix in prefixes)]

    def _below(self, prefix: str) -> set[tuple[int, str, str]]:
        """(expert, name, side) of all tensors below a prefix. ValueError: one that is no adapter of an expert."""
        found, start = set(), f"{_ROOT}{prefix}."
        for key in self.checkpoint:
            if not key.startswith(start):
                continue
            parts = re.fullmatch(r"(0|[1-9]\d*)\.(.+)\.lora_([AB])\.weight", key[len(start) :])
            if parts is None or parts[2] not in self.names:
                raise ValueError(
                    f"{self.path / MODEL} has {key}, expected E.NAME.lora_A.weight or E.NAME.lora_B.weight below the experts "
                    f"with NAME one of {', '.join(self.names)}"
                )
            found.add((int(parts[1]), parts[2], parts[3].lower()))
        return found

    def _read(self, key: str, shape: tuple) -> torch.Tensor:
        if key not in self.checkpoint:
            raise ValueError(f"{self.path / MODEL} has no {key}")
        tensor, kind = self.checkpoint[key], self.checkpoint.type_of(key)
        if kind not in _TYPES or tuple(tensor.shape) != shape:
            raise ValueError(f"{key} is {kind} {list(tensor.shape)}, expected {list(shape)} of {', '.join(_TYPES)}")
        return tensor
