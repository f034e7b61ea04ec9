"""Sluice in PyTorch: fused MoE layers that are compiled ahead of time (docs/PYTORCH.md).

sluice_torch.MoE is the layer; the table below lists all other names. A module is imported when it is first used, so
sluice_torch.Graph and sluice_torch.cache work without PyTorch.
"""

import importlib

# Public name -> the module of this package that defines it.
_EXPORTS = {
    "MoE": "layers.moe",
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

__all__ = [*_EXPORTS, *_MODULES]


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
