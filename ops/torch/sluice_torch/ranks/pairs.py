"""The pairs (token, k) of a step as a layer orders them, for code that inspects or repeats its routing, and steps whose
rows have that order already."""

import typing

import torch

from .ranks import Group


class Pairs(typing.NamedTuple):
    indices: torch.Tensor  # [P] int64: token * K + k of this rank's pairs, by expert, then by token
    counts: torch.Tensor  # [sources, experts] int64: pairs by source rank (by group, if its ranks have the same tokens)


@torch.no_grad()
def order_pairs(group: Group, expert_ids: torch.Tensor, top_k: int, experts: int) -> Pairs:
    """Collective. ValueError: ids that a step would refuse; at the other ranks a RuntimeError with the same message."""
    failure = own = None
    try:
        indices, own = _sort(expert_ids, top_k, experts)
    except ValueError as error:
        failure = error
    said = group.gather_objects((str(failure) if failure else None, own), "order pairs")
    if failure is not None:
        raise failure
    for rank, (failed, _) in enumerate(said):
        if failed is not None:
            raise RuntimeError(f"rank {rank}: {failed}")
    sources = [counts for _, counts in said]
    return Pairs(indices, torch.stack(sources[:: group.size // group.sources]))


@torch.no_grad()
def ids_of_sorted(rows: torch.Tensor, counts: torch.Tensor, experts: int) -> torch.Tensor:
    """[R, 1] int32: the expert of each row, of rows sorted by expert. ValueError: counts that do not fit."""
    if not isinstance(counts, torch.Tensor) or counts.dtype not in (torch.int32, torch.int64):
        kind = counts.dtype if isinstance(counts, torch.Tensor) else type(counts).__name__
        raise ValueError(f"counts is {kind}, expected torch.int32 or torch.int64")
    if counts.shape != (experts,):
        raise ValueError(f"counts has shape {list(counts.shape)}, expected [{experts}]")
    if not isinstance(rows, torch.Tensor) or rows.dim() != 2:
        raise ValueError(f"rows is {list(rows.shape) if isinstance(rows, torch.Tensor) else type(rows)}, expected [R, H]")
    for expert in (counts < 0).nonzero()[:1].flatten().tolist():
        raise ValueError(f"counts[{expert}] is {counts[expert].item()}, expected 0 or more")
    if counts.sum() != len(rows):
        raise ValueError(f"counts sum to {counts.sum().item()}, expected the {len(rows)} rows")
    ids = torch.arange(experts, dtype=torch.int32).repeat_interleave(counts.long().cpu()).unsqueeze(1)
    return ids.to(rows.device)


def _sort(expert_ids: torch.Tensor, top_k: int, experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    if not isinstance(expert_ids, torch.Tensor) or expert_ids.dtype not in (torch.int32, torch.int64):
        kind = expert_ids.dtype if isinstance(expert_ids, torch.Tensor) else type(expert_ids).__name__
        raise ValueError(f"expert_ids is {kind}, expected torch.int32 or torch.int64")
    if expert_ids.dim() == 0 or expert_ids.shape[-1] != top_k:
        raise ValueError(f"expert_ids has shape {list(expert_ids.shape)}, expected [..., {top_k}]")
    ids = expert_ids.reshape(-1).long()
    for place in ((ids < -1) | (ids >= experts)).nonzero()[:1].flatten().tolist():
        given, token, k = ids[place].item(), place // top_k, place % top_k
        raise ValueError(f"expert_ids[{token}, {k}] is {given}, expected 0 to {experts - 1}, or -1 for none")
    valid = (ids >= 0).nonzero().flatten()
    return valid[torch.sort(ids[valid], stable=True).indices], torch.bincount(ids[valid], minlength=experts)
