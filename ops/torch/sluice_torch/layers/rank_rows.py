"""Steps that send a token once to each rank that has some of its experts, and get one row back from each (Parallel.rows_per).

A step has three parts: all ranks exchange rows; each runs its own experts on the rows that it got, as a layer without other ranks;
all ranks exchange what these gave, and add it up. Steps with a row per expert have one part, which computes while rows travel: so they
are faster unless the network takes longer than all products (docs/RANKS_IN_PYTORCH.md has figures).
"""

import dataclasses
import math

import torch

from ..graphs import LayerShape
from ..ranks import ranks
from ..ranks.buffers import ExchangeShape, check_ids
from ..ranks.described_calls import described_step

# "auto" prefers rows per rank where these are at most this part of the rows per expert.
_MUCH_LESS = 0.8


def rows_sent(shape: LayerShape) -> tuple[float, float]:
    """The rows per token that go to other ranks, with a row per expert and with one per rank, for uniform routing."""
    to_others, choices = (shape.ranks - 1) / shape.ranks, math.comb(shape.experts, shape.top_k)
    elsewhere = (shape.experts - len(shape.places_of(rank)) for rank in range(shape.ranks))
    reached = sum(1 - math.comb(experts, shape.top_k) / choices for experts in elsewhere)
    return shape.top_k * to_others, reached * to_others


def choose(shape: LayerShape, spans_machines: bool) -> LayerShape:
    """The shape for rows_per="auto", which depends on nothing that differs between ranks."""
    usual = dataclasses.replace(shape, rows_per="expert")
    try:
        fewer = dataclasses.replace(shape, rows_per="rank")
    except ValueError:  # it does not go together with something
        return usual
    per_expert, per_rank = rows_sent(shape)
    return fewer if spans_machines and per_rank <= _MUCH_LESS * per_expert else usual


def step(layer, x: torch.Tensor, expert_ids: torch.Tensor, expert_weights: torch.Tensor) -> torch.Tensor:
    """MoE.forward() with rows_per="rank"."""
    shared, rank = layer._shared(), layer._group.rank
    with shared.refusing():
        shape, fp8_group, (x_rows, ids, scales), weights, grads, needed, amaxes = layer._arguments(
            layer.shape, x, expert_ids, expert_weights
        )
        check_ids(x_rows, ids, scales, shape.experts, ("expert_ids", "expert_weights"))
        key = "exchange", *layer._program(shape.of_rows(rank), needed, weights, bool(grads))[0]
        held = layer._layers.get(key)
        serves = "" if held else described_step(layer, layer._weight_names(), shape, needed, weights, bool(grads))
        sizes = ExchangeShape("rank", shape.hidden, shape.experts, shape.top_k, shape.ranks, shape.max_tokens, serves=serves)
        path = held.path if held else sizes.compile()
        owners, sides = sizes.owners(ids), sizes.sides(ids, scales)
    if held is None:
        held = layer._layers[key] = shared.exchange(path, *sizes.own_experts(rank), serves)
    rows, own_ids, own_scales, _, token, _ = torch.ops.sluice.dispatch(held.op, x_rows, owners, sides, -1, 1, False)
    if needed:  # no more gradients than are requested
        rows, own_scales = (each if asked else each.detach() for each, asked in zip((rows, own_scales), needed))

    def run(rows, scales, *weights):
        given = shape.of_rows(rank), fp8_group, (rows, own_ids, scales), list(weights), grads, needed, amaxes
        y, own = layer._run(shared.here(), *given)
        own.end(y)
        return y

    if needed:
        added = {2 + place for place, grad in enumerate(grads) if grad is not None}
        y = _OwnPart.apply(shared, run, added, rows, own_scales, *weights)
    else:
        y = _refusing(shared, run, rows, own_scales, *weights)
    y, _ = torch.ops.sluice.combine(held.op, y, token, False)
    return y.to(x.dtype).view(x.shape)


def _refusing(shared: ranks.Shared, run, *tensors) -> torch.Tensor:
    with shared.refusing():
        return run(*tensors)


class _OwnPart(torch.autograd.Function):
    """apply(shared, run, added, *tensors): run(*tensors), which does nothing collective. Its errors refuse the step of all ranks, and
    so do errors of its backward, for which the others would wait. `added` are the places of tensors whose gradients it adds to a
    main_grad, which it must not do in a backward that does not need them."""

    @staticmethod
    def forward(ctx, shared: ranks.Shared, run, added: set[int], *tensors):
        ctx.shared, ctx.added = shared, added
        own = [each.detach().requires_grad_() if each.requires_grad else each for each in tensors]
        with torch.enable_grad():
            y = _refusing(shared, run, *own)
        ctx.save_for_backward(y, *own)  # so autograd frees what the step keeps when it frees the graph
        return y.detach()

    @staticmethod
    def backward(ctx, dy):
        with ctx.shared.refusing():
            y, *own = ctx.saved_tensors
            asked = [
                place
                for place, (each, (after, _)) in enumerate(zip(own, ctx.next_functions))
                if each.requires_grad and (place not in ctx.added or torch._C._will_engine_execute_node(after))
            ]
            grads = torch.autograd.grad(y, [own[place] for place in asked], dy, retain_graph=True, allow_unused=True)
        found = dict(zip(asked, grads))
        return (None, None, None, *(found.get(place) for place in range(len(own))))
