"""Moves the experts of a model to places where the ranks have even rows (placement.py)."""

import typing

import torch

from . import placement
from .moe import MoE


class Skew(typing.NamedTuple):
    """Rows of the ranks that share experts and have the most rows, over the mean: with the old places, and with the new."""

    before: float
    after: float


def balance(model: torch.nn.Module, *optimizers: torch.optim.Optimizer) -> dict[str, Skew]:
    """Chooses new places for the experts of all layers in `model` that were made with `spare`, from the rows that each
    expert had in the steps since the last call, and moves weights, gradients, main_grads and the optimizers' state there.
    Nothing is compiled. Returns the skew by layer, without layers that ran no step. Experts stay where new places would not be better.

    Call it between steps: after optimizer.step(), before the next forward. Collective, with all optimizers of the
    experts' parameters. ValueError: no layer has spare places; ranks that differ in what has to move.
    """
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, MoE) and layer.places is not None}
    if not layers:
        raise ValueError(f"{type(model).__name__} has no sluice_torch.MoE with places for its experts, expected MoE(parallel=Parallel(spare=...))")
    found = {}
    for name, layer in layers.items():
        rows = layer.take_rows_seen()
        if rows.sum() == 0:
            continue
        new = placement.choose(layer.shape, rows, layer.places)
        hottest = [each.rows_by_group(rows) for each in (layer.places, new)]
        before, after = ((each.max() / each.mean()).item() for each in hottest)
        if after < before:
            layer.place(new.expert_at, *optimizers)
        found[name] = Skew(before, min(before, after))
    return found
