"""Parallel styles: give each rank its part of layers that were made whole, at each rank the same.

    ExpertParallel          deals experts over the ranks
    TensorParallel          gives each rank a shard of every expert
    ExpertTensorParallel    deals experts over groups of ranks, and shards over the ranks of a group

They are styles of torch.distributed.tensor.parallel where PyTorch has it. A mesh is a DeviceMesh, or a process group;
for ExpertTensorParallel a pair of them, ep_group and tp_group. All end as MoE with ep_group and tp_group.
"""

import dataclasses

import torch

from . import ranks, sharding
from .moe import MoE

try:
    from torch.distributed.tensor.parallel.style import ParallelStyle
except ImportError:  # older than 2.0, or without torch.distributed
    ParallelStyle = object


class _Style(ParallelStyle):
    def apply(self, module: torch.nn.Module, mesh) -> torch.nn.Module:
        """Replaces the parameters of all layers in `module`, which have whole weights, by those of this rank, in place,
        and returns `module`. Make the optimizer afterwards.

        ValueError: no layer in it; a layer that has part of the experts already, or a main_grad; a mesh that does not
        fit. Then nothing is changed.
        """
        layers = [layer for layer in module.modules() if isinstance(layer, MoE)]
        if not layers:
            raise ValueError(f"{type(module).__name__} has no sluice_torch.MoE, expected one or more")
        groups = self._groups(mesh)
        parts = [_Part(layer, *groups, self.tokens) for layer in layers]
        for part in parts:
            part.take()
        return module

    _apply = apply  # the name under which parallelize_module() calls it

    tokens = "own"

    def __repr__(self) -> str:
        return f"{type(self).__name__}(tokens={self.tokens!r})"


class ExpertParallel(_Style):
    """Each rank of the mesh gets its range of the experts, whole."""

    def _groups(self, mesh) -> tuple:
        return _dimension(mesh, "ep"), None


class TensorParallel(_Style):
    """Each rank of the mesh gets its shard of every expert. `tokens`: those of MoE."""

    def __init__(self, *, tokens: str = "same"):
        super().__init__()
        self.tokens = tokens

    def _groups(self, mesh) -> tuple:
        return None, _dimension(mesh, "tp")


class ExpertTensorParallel(_Style):
    """The mesh has dimensions "ep" and "tp": each rank gets its shard of the experts of its group. `tokens`: those of
    MoE."""

    def __init__(self, *, tokens: str = "same"):
        super().__init__()
        self.tokens = tokens

    def _groups(self, mesh) -> tuple:
        if isinstance(mesh, tuple) and len(mesh) == 2:
            return mesh
        names = getattr(mesh, "mesh_dim_names", None)
        if not names or set(names) != {"ep", "tp"}:
            raise ValueError(f"mesh has dimensions {names}, expected 'ep' and 'tp', or a pair of process groups")
        return mesh.get_group("ep"), mesh.get_group("tp")


def _dimension(mesh, name: str):
    """The process group of a mesh's dimension of this name, or of its only one; or the process group itself."""
    if not hasattr(mesh, "get_group"):
        return mesh
    names = mesh.mesh_dim_names or ()
    if name in names:
        return mesh.get_group(name)
    if mesh.ndim != 1:
        raise ValueError(f"mesh has dimensions {names or mesh.ndim}, expected {name!r}, or one only")
    return mesh.get_group()


class _Part:
    """What a layer becomes at this rank, checked before any layer is changed."""

    def __init__(self, layer: MoE, ep_group, tp_group, tokens: str):
        shape = layer.shape
        if shape.ranks > 1:
            raise ValueError(f"a layer has the part of rank {layer._group.rank} of {shape.ranks} already, expected it whole")
        for name, parameter in layer.named_parameters(recurse=False):
            if getattr(parameter, "main_grad", None) is not None:
                raise ValueError(f"{name} has a main_grad, which does not fit its part: set it afterwards")
        self.layer = layer
        self.group = ranks.Group(ep_group, tp_group, tokens=tokens, timeout=layer.timeout)
        self.shape = dataclasses.replace(shape, ranks=self.group.size, tp=self.group.tp, tokens=tokens)

    @torch.no_grad()
    def take(self):
        rank, tp = self.group.rank, self.shape.tp
        places = self.shape.places_of(rank)
        made = {}
        for name, whole in self.layer.named_parameters(recurse=False):
            own = sharding.take(name, whole[places.start : places.stop], rank % tp, tp, self.shape.inputs).clone()
            made[name] = torch.nn.Parameter(own, requires_grad=whole.requires_grad)
        self.layer.become(self.group, self.shape, made)
