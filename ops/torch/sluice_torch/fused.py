"""fused_dispatch and fused_combine: send tokens to the ranks of their experts and back. Each is the other's backward.

For models that compute their experts themselves; sluice_torch.MoE does everything in one step.
"""

import torch

from . import cache, payloads, ranks, recording
from .tensors import as_stored

# Rows of 16 bits arrive in memory that other ranks write. This node waits for them and copies them.
_HAND_OVER = {"name": "hand_over", "op": "scale", "alpha": 1}


class Handle:
    """The routing of a dispatch, for its combine. A routing is kept as long as its handle, or the graph of a result,
    exists."""

    def __init__(self, exchange, token: torch.Tensor, rows: torch.Tensor, top_k: int):
        self._exchange, self._token = exchange, token
        self._dtype, self._shape, self._top_k = rows.dtype, rows.shape, top_k


@recording.outside_graphs
def fused_dispatch(
    x: torch.Tensor,
    token_indices: torch.Tensor,
    token_probs: torch.Tensor,
    num_experts: int,
    group=None,
    *,
    threads: int = 0,
    max_tokens: int = 65536,
    timeout: float = 30.0,
):
    """Returns rows, their experts and probabilities, the number of rows per expert of this rank, and a handle.

    x [T, H] is bfloat16, float32 or float16, and rows have its bits; token_indices [T, K] is int32 or int64, distinct
    within a token, -1 for none; token_probs [T, K] is float32. Each (token, k) becomes a row at the rank of `group` that
    owns the expert: rows [R, H] are ordered by expert, then by source rank, then by token. row_experts [R] and
    tokens_per_expert [E] are int64, row_probs [R] is float32. Gradients flow to x and token_probs, through a combine.
    Collective, and so is its backward.
    """
    recording.refuse("fused_dispatch", x, token_indices, token_probs)
    members = ranks.Group(group)
    shared = ranks.shared_by(members, threads, timeout)
    with shared.refusing():
        if not isinstance(token_indices, torch.Tensor) or token_indices.dim() != 2:
            raise ValueError("token_indices is no tensor [T, K]")
        if not isinstance(x, torch.Tensor) or x.dim() != 2:
            raise ValueError("x is no tensor [T, H]")
        if not isinstance(token_probs, torch.Tensor):
            raise ValueError(f"token_probs is of type {type(token_probs).__name__}, expected a tensor")
        top_k, exact = token_indices.shape[1], x.dtype in payloads.EXACT
        sizes = (x.shape[1], num_experts, top_k, members.size, max_tokens)
        if exact:
            payloads.check(x, token_indices, token_probs, num_experts, max_tokens)
            sizes = (payloads.columns_of(x), num_experts, 1, members.size, max_tokens * top_k)
        program = cache.compile_graph(exchange_graph(*sizes))
        operands = [as_stored(tensor) for tensor in (x, token_indices, token_probs)]
    exchange = shared.exchange(program)
    dispatch = payloads.Dispatch.apply if exact else torch.ops.sluice.dispatch
    *made, token = dispatch(exchange.op, *operands)
    return *made, Handle(exchange, token, made[0], top_k)


@recording.outside_graphs
def fused_combine(rows: torch.Tensor, group, handle: Handle) -> torch.Tensor:
    """[T, H]: the sum of each token's rows [R, H], in float32, rounded once to their type, which must be the dispatched
    one. Rows are in the order in which fused_dispatch() returned them.

    `group` is that of the dispatch. The gradient of rows is a dispatch. Collective, and so is its backward.
    """
    recording.refuse("fused_combine", rows)
    with ranks.shared_by(ranks.Group(group)).refusing():
        if not isinstance(handle, Handle):
            raise ValueError(f"handle is of type {type(handle).__name__}, expected what fused_dispatch gave")
        if not isinstance(rows, torch.Tensor):
            raise ValueError(f"rows is of type {type(rows).__name__}, expected a tensor")
        rows = as_stored(rows)
        if handle._dtype in payloads.EXACT:
            payloads.check_rows(rows, handle._dtype, handle._shape)
    if handle._dtype in payloads.EXACT:
        return payloads.Combine.apply(handle._exchange.op, rows, handle._token, handle._top_k)
    return torch.ops.sluice.combine(handle._exchange.op, rows, handle._token)


def exchange_graph(hidden: int, experts: int, top_k: int, ranks: int, max_tokens: int) -> dict:
    """The four entries; all share the routing of the first."""

    def tensor(*shape, type="BF16"):
        return {"type": type, "shape": list(shape)}

    def dispatch(rows, **tensors):
        outputs = {"rows": rows + "_arrived"}
        if "weights" in tensors:
            outputs["row_weights"] = "row_probs"
        inputs = {**tensors, "routing": "routing"}
        hand_over = {**_HAND_OVER, "inputs": {"value": rows + "_arrived"}, "outputs": {"scaled": rows}}
        return [{"name": "dispatch", "op": "dispatch", "inputs": inputs, "outputs": outputs}, hand_over]

    def combine(outputs, **tensors):
        return [{"name": "combine", "op": "combine", "inputs": {**tensors, "routing": "routing"}, "outputs": outputs}]

    def later(name, inputs, nodes, outputs):
        return {
            "name": name,
            "after": "dispatch",
            "inputs": inputs,
            "saved": ["routing"],
            "nodes": nodes,
            "outputs": outputs,
        }

    route = {"name": "route", "op": "route", "inputs": {"expert_ids": "expert_ids"}, "outputs": {"routing": "routing"}}
    rows = ("rows", "rows_arrived", "out_rows", "d_out_rows", "d_out_rows_arrived", "d_rows")
    sent_back = {"tokens": "dx", "token_scalars": "d_probs"}
    return {
        "format": 1,
        "name": "exchange",
        "symbols": {},
        "limits": {"ranks": ranks, "experts": experts, "top_k": top_k, "max_tokens": max_tokens},
        "tensors": {
            **{name: tensor("T", hidden) for name in ("x", "y", "dy", "dx")},
            **{name: tensor("R", hidden) for name in rows},
            **{name: tensor("T", top_k, type="F32") for name in ("probs", "d_probs")},
            **{name: tensor("R", type="F32") for name in ("row_probs", "d_row_probs")},
            "expert_ids": tensor("T", top_k, type="I32"),
            "routing": {"type": "routing"},
        },
        "entries": [
            {
                "name": "dispatch",
                "inputs": ["x", "expert_ids", "probs"],
                "nodes": [route, *dispatch("rows", tokens="x", weights="probs")],
                "save": ["routing"],
                "outputs": ["rows", "row_probs"],
            },
            later("combine", ["out_rows"], combine({"tokens": "y"}, rows="out_rows"), ["y"]),
            later("combine_backward", ["dy"], dispatch("d_out_rows", tokens="dy"), ["d_out_rows"]),
            later(
                "dispatch_backward",
                ["d_rows", "d_row_probs"],
                combine(sent_back, rows="d_rows", scalars="d_row_probs"),
                ["dx", "d_probs"],
            ),
        ],
    }
