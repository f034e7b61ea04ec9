"""Sends rows of float32 and float16 through an exchange of bfloat16 rows, as their bits.

A float32 row becomes a row of twice as many 16-bit columns. Each pair of token and expert becomes a separate token,
with at most one row, so that nothing is computed with bits that are not bfloat16 numbers: exchanges with one expert per
token only copy. The sums (a token's rows in combine, and their gradients in dispatch) are computed here, in float32.
"""

import torch

EXACT = (torch.float32, torch.float16)


def columns_of(x: torch.Tensor) -> int:
    """The number of 16-bit columns for a row of x."""
    return x.shape[1] * (x.element_size() // 2)


def check(x: torch.Tensor, ids: torch.Tensor, probs: torch.Tensor, experts: int, max_tokens: int):
    """Checks what the op would only see in pairs. ValueError: like the op's errors."""
    for name, tensor in (("x", x), ("expert_ids", ids), ("probs", probs)):
        if tensor.device.type != "cpu":
            raise ValueError(f"{name} is on device {tensor.device}, expected cpu")
    tokens, top_k = x.shape[0], ids.shape[1]
    if tokens > max_tokens:
        raise ValueError(f"x has {tokens} tokens, but the exchange is for at most {max_tokens}")
    for name, tensor in (("expert_ids", ids), ("probs", probs)):
        if tensor.shape != (tokens, top_k):
            raise ValueError(f"{name} has shape {list(tensor.shape)}, expected [{tokens}, {top_k}]")
    if ids.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"expert_ids has type {ids.dtype}, expected torch.int32 or torch.int64")
    for token, place in ((ids < -1) | (ids >= experts)).nonzero()[:1].tolist():
        raise ValueError(
            f"expert_ids[{token}, {place}] is {ids[token, place].item()}, expected 0 to {experts - 1}, or -1 for none"
        )
    ordered = ids.sort(dim=1).values
    for token, place in ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).nonzero()[:1].tolist():
        raise ValueError(f"token {token} has expert {ordered[token, place].item()} twice, expected distinct experts")


def check_rows(rows: torch.Tensor, dtype: torch.dtype, shape: torch.Size):
    if rows.dtype != dtype:
        raise ValueError(f"rows has type {rows.dtype}, expected {dtype}, which was dispatched")
    if rows.shape != shape:
        raise ValueError(f"rows has shape {list(rows.shape)}, expected {list(shape)}")


def _bits(rows: torch.Tensor) -> torch.Tensor:
    return rows.contiguous().resolve_neg().view(torch.bfloat16)


def _spread(tokens: torch.Tensor, top_k: int) -> torch.Tensor:
    """Repeats each token top_k times."""
    return _bits(tokens.repeat_interleave(top_k, dim=0))


def _gather(bits: torch.Tensor, dtype: torch.dtype, top_k: int) -> torch.Tensor:
    """The sum over the top_k rows of each token."""
    rows = bits.view(dtype)
    return rows.view(rows.shape[0] // top_k, top_k, rows.shape[1]).sum(1, dtype=torch.float32).to(dtype)


class Dispatch(torch.autograd.Function):
    """apply(exchange, x, ids, probs): the results of the op, with rows in the type of x."""

    @staticmethod
    def forward(ctx, exchange, x, ids, probs):
        ctx.top_k, ctx.dtype = ids.shape[1], x.dtype
        with torch.enable_grad():
            bits = _spread(x.detach(), ctx.top_k).requires_grad_()
            pairs = probs.detach().reshape(-1, 1).requires_grad_()
            rows, experts, row_probs, counts, token = torch.ops.sluice.dispatch(exchange, bits, ids.reshape(-1, 1), pairs)
        ctx.inner = (rows, row_probs), (bits, pairs)
        ctx.set_materialize_grads(True)
        ctx.mark_non_differentiable(experts, counts, token)
        return rows.detach().view(x.dtype), experts, row_probs.detach(), counts, token

    @staticmethod
    def backward(ctx, d_rows, _experts, d_row_probs, _counts, _token):
        refuse_second_derivative()
        d_bits, d_pairs = torch.autograd.grad(*ctx.inner, (_bits(d_rows), d_row_probs.contiguous()), retain_graph=True)
        return None, _gather(d_bits, ctx.dtype, ctx.top_k), None, d_pairs.view(-1, ctx.top_k)


class Combine(torch.autograd.Function):
    """apply(exchange, rows, token, top_k): the sum of each token's rows, in their type."""

    @staticmethod
    def forward(ctx, exchange, rows, token, top_k):
        ctx.top_k, ctx.dtype = top_k, rows.dtype
        with torch.enable_grad():
            bits = _bits(rows.detach()).requires_grad_()
            returned = torch.ops.sluice.combine(exchange, bits, token)
        ctx.inner = returned, bits
        return _gather(returned.detach(), rows.dtype, top_k)

    @staticmethod
    def backward(ctx, dy):
        refuse_second_derivative()
        (d_bits,) = torch.autograd.grad(*ctx.inner, _spread(dy, ctx.top_k), retain_graph=True)
        return None, d_bits.view(ctx.dtype), None, None


def refuse_second_derivative():
    if torch.is_grad_enabled():
        raise RuntimeError("dispatch and combine have no second derivative: call backward without create_graph")
