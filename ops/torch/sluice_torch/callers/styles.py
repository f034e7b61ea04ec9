"""Parallel styles of layers of sluice_torch: give each rank its part of layers that were made whole, at each rank the same.

hyper_parallel has the classes. A mesh is a DeviceMesh, or a process group; for two dimensions a pair of them, ep_group and
tp_group. All end as MoE with ep_group and tp_group.
"""

import dataclasses

import torch

from ..layers import sharding
from ..layers.moe import MoE
from ..ranks import ranks
from ..ranks.parallel import Parallel


def layers_in(module: torch.nn.Module) -> list[MoE]:
    return [layer for layer in module.modules() if isinstance(layer, MoE)]


def divide(layers: list[MoE], groups: tuple, tokens: str):
    """Replaces the parameters of layers, which have whole weights, by this rank's parts, in place. `groups` are ep_group and tp_group.

    ValueError: a layer that has part of the experts already, or a main_grad; groups that do not fit. Then nothing is changed.
    """
    parts = [_Part(layer, *groups, tokens) for layer in layers]
    for part in parts:
        part.take()


def group_of(mesh, name: str):
    """The process group of a mesh's dimension of this name, or of its only one; or the process group itself."""
    if not hasattr(mesh, "get_group"):
        return mesh
    names = mesh.mesh_dim_names or ()
    if name in names:
        return mesh.get_group(name)
    if mesh.ndim != 1:
        raise ValueError(f"mesh has dimensions {names or mesh.ndim}, expected {name!r}, or one only")
    return mesh.get_group()


def groups_of(mesh) -> tuple:
    """The process groups of the dimensions "ep" and "tp", or a pair of process groups itself."""
    if isinstance(mesh, tuple) and len(mesh) == 2:
        return mesh
    names = getattr(mesh, "mesh_dim_names", None)
    if not names or set(names) != {"ep", "tp"}:
        raise ValueError(f"mesh has dimensions {names}, expected 'ep' and 'tp', or a pair of process groups")
    return mesh.get_group("ep"), mesh.get_group("tp")


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
        self.group = ranks.Group(Parallel(ep_group, tp_group, tokens=tokens, timeout=layer.timeout))
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
