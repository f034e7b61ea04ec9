"""Sluice in PyTorch: fused MoE layers that are compiled ahead of time (docs/PYTORCH.md).

sluice_torch.MoE is the layer; the table below lists all other names. A module is imported when it is first used, so
sluice_torch.Graph and sluice_torch.cache work without PyTorch.

Modules that users import by name are here. All others are in rooms, each of which imports only itself and those before it: base,
ranks, encodings, layers, replacing, weights, callers (tests/project/rooms_test.py has the order). A room's docstring names its
modules.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys

# Public name -> the module of this package that defines it.
_EXPORTS = {
    "MoE": "layers.moe",
    "Parallel": "ranks.parallel",
    "Steps": "layers.steps",
    "memory": "ranks.ranks",
    "clear_cache": "ranks.ranks",
    "init_buffer": "ranks.buffers",
    "get_buffer": "ranks.buffers",
    "get_hidden_bytes": "ranks.buffers",
    "reset_buffer": "ranks.buffers",
    "Graph": "layers.builder",
    "FineTuning": "callers.finetune",
    "LoRAConfig": "lora",
    "replace_moe": "replacing.replace",
    "fp8_autocast": "encodings.autocast",
    "quantize": "encodings.codes",
    "quantize_fp8": "encodings.codes",
    "quantize_mxfp4": "encodings.codes",
    "quantize_nvfp4": "encodings.codes",
    "trace": "layers.reporting",
    "load_experts": "weights.loading",
    "load_model": "weights.models",
    "adapter_config": "weights.adapters",
    "load_adapters": "weights.adapters",
    "save_adapters": "weights.adapters",
    "Checkpoint": "weights.checkpoint",
    "balance": "layers.balancing",
    "clip_grad_norm_": "ranks.clipping",
    "ExpertParallel": "hyper_parallel",
    "TensorParallel": "hyper_parallel",
    "ExpertTensorParallel": "hyper_parallel",
}

# Modules whose functions users call as sluice_torch.MODULE.FUNCTION.
_MODULES = ("cache", "convert", "exchange", "fused_a2a", "graphs", "hyper_parallel", "kt", "lora", "recipe", "state", "te")

# Names of versions before, and what to call instead.
_RENAMED = {
    "fused_dispatch": "exchange.dispatch, or fused_a2a.fused_dispatch with Megatron's arguments and results",
    "fused_combine": "exchange.combine, or fused_a2a.fused_combine with Megatron's arguments and results",
}

# Modules that files of torch.save() name as they were before they had rooms -> their rooms. encodings and ranks are names of rooms
# now, which have the classes themselves.
_MOVED = {
    "amax": "encodings",
    "autocast": "encodings",
    "linear_graphs": "layers",
    "moe": "layers",
    "placement": "layers",
    "replaced": "replacing",
    "routing": "replacing",
    "scaling": "encodings",
    "sharded_tensors": "ranks",
    "structure": "replacing",
}

__all__ = [*_EXPORTS, *_MODULES]


class _MovedModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules by the names that they had before they were in rooms: they are the same modules."""

    def find_spec(self, name: str, path=None, target=None):
        package, _, module = name.rpartition(".")
        return importlib.machinery.ModuleSpec(name, self) if package == __name__ and module in _MOVED else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__.rpartition(".")[2]
        sys.modules[module.__name__] = importlib.import_module(f".{_MOVED[name]}.{name}", __name__)


sys.meta_path.append(_MovedModules())


def __getattr__(name: str):
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in _RENAMED:
        raise AttributeError(f"{__name__}.{name} is now {__name__}.{_RENAMED[name]}")
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_EXPORTS[name]}", __name__), name)


def __dir__():
    return sorted(set(globals()) | set(__all__))
