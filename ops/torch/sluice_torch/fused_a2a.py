"""The functions of megatron.core.transformer.moe.fused_a2a, with their arguments and results, on the exchange of Sluice.

A caller changes its import only. docs/MEGATRON.md lists what is accepted without effect, and what is refused. All functions that
take a group are collective; what one rank refuses fails at all of them. Results can be read when a call returns.
"""

import types
import weakref

import torch

from . import exchange
from .base.integers import MAX_EXPERTS, MAX_ROWS, MAX_SIZE, MAX_TOKENS, whole_number
from .ranks import buffers, ranks
from .ranks.parallel import Parallel

get_hidden_bytes = buffers.get_hidden_bytes

# What a caller may align its numbers of tokens to. Sluice takes any number.
HYBRIDEP_TOKEN_ALIGNMENT = 64

# The exchange of Transformer Engine, as Megatron has it where that is not installed.
alloc_ep_symm_buffer = new_nccl_ep_buffer = nccl_ep_dispatch = nccl_ep_combine = None

# The groups, as ranks.Shared, whose buffers the hybrid functions used since the last reset_hybrid_ep_buffer(), in the order of first use.
_hybrid = weakref.WeakKeyDictionary()


def fused_dispatch(x, token_indices, token_probs, num_experts, group, async_finish=False, allocate_on_comm_stream=False):
    """Sends each token once to each rank that owns one of its experts. Returns
      rows [R, H] of this rank, by source rank, then by token;
      indices [R, S], int64: their experts at this rank, numbered from its first one, -1 for none; S <= K;
      probs [R, S], float32: their probabilities, 0 where there is no expert;
      tokens_per_expert [experts of this rank], int64;
      a handle, for fused_combine.

    x [T, H] is bfloat16, float32 or float16; token_indices [T, K] int32 or int64, -1 for none; token_probs [T, K] float32;
    num_experts counts the experts of all ranks. Gradients flow to x and token_probs. ValueError or RuntimeError, at all ranks: as
    exchange.dispatch().
    """
    return exchange.dispatch(x, token_indices, token_probs, num_experts, group, rows_per="rank")


def fused_combine(x, group, handle, async_finish=False, allocate_on_comm_stream=False):
    """Returns (y [T, H], None): y is the sum of each token's rows of x [R, H], which are in the order of the dispatch."""
    return exchange.combine(x, group, handle), None


def set_deepep_num_sms(num_sms):
    """Has no effect: all cores of the program send."""


def get_buffer(group, hidden_bytes):
    """The buffer of the group, the same object in each call. Collective the first time."""
    return buffers.get_buffer(group, hidden_bytes)


def hybrid_ep_dispatch(
    x,
    routing_map,
    probs,
    group,
    num_local_experts,
    num_sms_dispatch_api=None,
    num_sms_combine_api=None,
    num_blocks_permute=None,
    num_blocks_unpermute=None,
    fused=False,
    num_permuted_tokens=None,
    pad_multiple=None,
    num_sms_preprocessing_api=108,
):
    """Sends each token to each of its experts. Returns
      rows [R, H] of this rank, by expert, then by source rank, then by token;
      their probabilities [R], float32;
      None, where the original has scaling factors of FP8;
      tokens_per_expert [num_local_experts], int64, with pads;
      a handle, for hybrid_ep_combine.

    x [T, H] is bfloat16, float32 or float16; routing_map [T, E] bool and probs [T, E] float32 are of all E experts, which are
    num_local_experts times the ranks of the group. pad_multiple: the rows of an expert begin at a multiple of it; pads are
    zero. num_permuted_tokens: there are that many rows; the last ones are zero, or those that are too many are **dropped**,
    and tokens_per_expert counts only those that are there. handle[-1], int32, is 1 if rows were dropped at this rank, else 0.

    Gradients flow to x and probs. ValueError or RuntimeError, at all ranks: as exchange.dispatch(); a number of experts that
    does not fit.
    """
    shared = _hybrid_shared(group)
    with shared.refusing():
        local = whole_number("num_local_experts", num_local_experts, 1, MAX_EXPERTS)
        experts = local * shared.group.size
        if num_permuted_tokens is not None:
            num_permuted_tokens = whole_number("num_permuted_tokens", num_permuted_tokens, 0, MAX_ROWS, ", or None")
        if not isinstance(routing_map, torch.Tensor) or routing_map.dim() != 2:
            raise ValueError(f"routing_map is {type(routing_map).__name__}, expected a tensor [T, E]")
        if routing_map.shape[1] != experts:
            raise ValueError(
                f"routing_map has {routing_map.shape[1]} experts, expected {experts}: {local} of each of {shared.group.size} ranks"
            )
    rows, _, row_probs, counts, inner = exchange.dispatch(
        x, None, None, experts, group, routing_map=routing_map, probs=probs, pad_multiple=1 if pad_multiple is None else pad_multiple
    )
    made = len(rows)
    if num_permuted_tokens is not None:
        rows, row_probs = _resized(rows, num_permuted_tokens), _resized(row_probs, num_permuted_tokens)
        before = counts.cumsum(0) - counts
        counts = torch.minimum(counts, (num_permuted_tokens - before).clamp(min=0))
    dropped = torch.tensor(int(len(rows) < made), dtype=torch.int32)
    return rows, row_probs, None, counts, (inner, made, len(rows), dropped)


def hybrid_ep_combine(x, handle, num_permuted_tokens=None, pad_multiple=None, fused=False):
    """y [T, H]: the sum of each token's rows of x [R, H], which are in the order of the dispatch. Rows that it dropped add nothing.
    ValueError or RuntimeError, at all ranks: another number of rows than the dispatch gave; as exchange.combine()."""
    if not isinstance(handle, tuple) or len(handle) != 4 or not isinstance(handle[0], exchange.Handle):
        raise ValueError(f"handle is of type {type(handle).__name__}, expected what hybrid_ep_dispatch gave")
    inner, made, given, _ = handle
    with inner.shared.refusing():
        if not isinstance(x, torch.Tensor) or x.dim() != 2 or len(x) != given:
            found = list(x.shape) if isinstance(x, torch.Tensor) else type(x).__name__
            raise ValueError(f"x is {found}, expected a tensor of {given} rows, those of the dispatch")
    return exchange.combine(_resized(x, made), inner.group, inner)


def _resized(rows: torch.Tensor, count: int) -> torch.Tensor:
    """The first `count` rows, and zeros where there are fewer."""
    if len(rows) >= count:
        return rows[:count]
    return torch.cat([rows, rows.new_zeros((count - len(rows), *rows.shape[1:]))])


def init_hybrid_ep_buffer(
    group,
    hidden_dim,
    num_tokens=None,
    num_local_experts=None,
    num_sms_dispatch_api=None,
    num_sms_combine_api=None,
    num_blocks_permute=None,
    num_blocks_unpermute=None,
    fp8_dispatch=False,
    num_sms_preprocessing_api=None,
    *,
    seq_len=None,
):
    """Makes the buffer of the group, for num_tokens tokens of each rank; a step with more makes it larger. The older versions'
    names and order are accepted: seq_len for num_tokens, and fp8_dispatch as the seventh."""
    if isinstance(num_blocks_permute, bool):
        fp8_dispatch = num_blocks_permute
    if num_tokens is None:
        num_tokens = seq_len
    with _hybrid_shared(group).refusing():
        if fp8_dispatch:
            raise ValueError("fp8_dispatch is True, expected False: rows are sent as they are, in FP8 only by sluice_torch.MoE")
        whole_number("hidden_dim", hidden_dim, 1, MAX_SIZE)
        whole_number("num_tokens", num_tokens, 1, MAX_TOKENS)
    buffers.init_buffer(group, 2 * hidden_dim, max_tokens=num_tokens)


def reset_hybrid_ep_buffer():
    """Frees the buffers of the groups that the hybrid functions used. The next dispatch makes them again. Collective."""
    for shared in list(_hybrid):
        del _hybrid[shared]
        if not shared.group.is_destroyed:
            buffers.free(shared)


def _hybrid_shared(group) -> ranks.Shared:
    shared = ranks.shared_by(ranks.Group(Parallel(group)))
    _hybrid[shared] = None
    return shared


def _hybrid_dispatch_by_position(*arguments):
    if len(arguments) in (8, 9):  # the older version has num_permuted_tokens and pad_multiple here
        return hybrid_ep_dispatch(*arguments[:7], **dict(zip(("num_permuted_tokens", "pad_multiple"), arguments[7:])))
    return hybrid_ep_dispatch(*arguments)


# The autograd functions of the original, which its callers use by position.
FusedDispatch = types.SimpleNamespace(apply=fused_dispatch)
FusedCombine = types.SimpleNamespace(apply=fused_combine)
HybridEPDispatch = types.SimpleNamespace(apply=_hybrid_dispatch_by_position)
HybridEPCombine = types.SimpleNamespace(apply=hybrid_ep_combine)


def ensure_nccl_ep_bootstrapped(*arguments, **options):
    """RuntimeError: Sluice has no exchange over NCCL."""
    raise RuntimeError("there is no exchange over NCCL: use fused_dispatch or hybrid_ep_dispatch")


def is_nccl_ep_bootstrapped():
    return False


def nccl_ep_finalize():
    """Has no effect."""
