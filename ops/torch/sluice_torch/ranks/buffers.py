"""What exchange.dispatch and exchange.combine make once per group and use again: programs, and the memory that they need.

A Buffer belongs to the ranks of a group. Memory is taken as steps touch it, and grows only.
"""

import dataclasses
import hashlib
import json
import re

import torch

from .. import cache
from ..base.integers import MAX_EXPERTS, MAX_SIZE, MAX_THREADS, MAX_TOKENS, MAX_TOP_K, whole_number
from . import ranks
from .described_calls import described
from .parallel import Parallel

CORES = (("num_sms_dispatch_api", "send"), ("num_sms_combine_api", "return"))  # arguments, and the compiler's options

_MAX_BYTES = 8 * MAX_SIZE  # of a row


@dataclasses.dataclass(frozen=True)
class ExchangeShape:
    """What the program of an exchange depends on."""

    rows_per: str  # "expert" or "rank"
    hidden: int
    experts: int  # of all ranks
    top_k: int
    ranks: int = 1
    max_tokens: int = 65536
    is_float32: bool = False
    send_cores: int | None = None
    return_cores: int | None = None
    serves: str = ""  # the call that all ranks must have alike, if the program serves no other

    def compile(self) -> str:
        """The path of the program: graphs/exchange with these sizes. ValueError: a size that is none; more cores than there
        are."""
        whole_number("hidden", self.hidden, 1, MAX_SIZE)
        whole_number("num_experts", self.experts, 1, MAX_EXPERTS)
        whole_number("top_k", self.top_k, 1, MAX_TOP_K)
        whole_number("max_tokens", self.max_tokens, 1, MAX_TOKENS)
        by_rank = self.rows_per == "rank"
        graph = json.loads(cache.find_graph(f"exchange/{'ranks' if by_rank else 'pairs'}.json").read_text())
        if by_rank:  # whose program does not depend on experts, but all ranks must have the same
            graph["name"] += f"_{self.experts}"
        if self.serves:
            graph["name"] += "_" + hashlib.sha256(self.serves.encode()).hexdigest()[:16]
        if self.is_float32:
            for tensor in graph["tensors"].values():
                if tensor["type"] == "BF16":
                    tensor["type"] = "F32"
        sizes = {name: getattr(self, name) for name in ("hidden", "top_k", "ranks", "max_tokens")}
        sizes.update({"owners": self.max_owners} if by_rank else {"experts": self.experts})
        try:
            return cache.compile_graph(graph, sizes, options=self._options())
        except RuntimeError as error:
            for name, option in CORES:
                found = re.search(rf"--cores {option}=(\d+, .*)", str(error))
                if found:
                    raise ValueError(f"{name} is {found[1]}") from None
            raise

    def _options(self) -> tuple[str, ...]:
        limits = []
        for name, option in CORES:
            cores = getattr(self, f"{option}_cores")
            if cores is None:
                continue
            whole_number(name, cores, 1, MAX_THREADS)
            limits.append(f"{option}={cores}")
        return (f"--cores={','.join(limits)}",) if limits else ()

    @property
    def max_owners(self) -> int:
        """The most ranks of a token."""
        return min(self.top_k, self.ranks)

    def own_experts(self, rank: int) -> tuple[int, int]:
        """The first expert of a rank and the number of its experts, if rows are per rank; else 0 and -1."""
        if self.rows_per != "rank":
            return 0, -1
        own = ranks.dealt(self.experts, self.ranks, rank)
        return own.start, len(own)

    def owners(self, ids: torch.Tensor) -> torch.Tensor:
        """[T, max_owners]: the distinct ranks that own the experts of each token, -1 for none."""
        few, more = divmod(self.experts, self.ranks)
        border = more * (few + 1)
        of_few = more + torch.div(ids - border, max(few, 1), rounding_mode="floor")
        owners = torch.where(ids < border, torch.div(ids, few + 1, rounding_mode="floor"), of_few)
        owners = torch.where(ids < 0, ids, owners).sort(dim=1, descending=True).values
        owners[:, 1:].masked_fill_(owners[:, 1:] == owners[:, :-1].clone(), -1)
        return owners.sort(dim=1, descending=True).values[:, : self.max_owners].contiguous()

    def sides(self, ids: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
        """[T, 2 top_k] float32: what goes beside each row if rows are per rank."""
        return torch.cat([ids.float(), probs], dim=1)


def check_ids(x: torch.Tensor, ids: torch.Tensor, probs: torch.Tensor, experts: int, names=("token_indices", "token_probs")):
    """ValueError: ids and probabilities that do not fit, by these names; like the op's errors, which sees only the ranks of ids."""
    for name, tensor in zip(("x", *names), (x, ids, probs)):
        if tensor.device.type != "cpu":
            raise ValueError(f"{name} is on device {tensor.device}, expected cpu")
    tokens, top_k = len(x), ids.shape[1]
    for name, tensor in zip(names, (ids, probs)):
        if tensor.shape != (tokens, top_k):
            raise ValueError(f"{name} has shape {list(tensor.shape)}, expected [{tokens}, {top_k}]")
    if probs.dtype != torch.float32:
        raise ValueError(f"{names[1]} has type {probs.dtype}, expected torch.float32")
    if ids.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"{names[0]} has type {ids.dtype}, expected torch.int32 or torch.int64")
    for token, place in ((ids < -1) | (ids >= experts)).nonzero()[:1].tolist():
        raise ValueError(
            f"{names[0]}[{token}, {place}] is {ids[token, place].item()}, expected 0 to {experts - 1}, or -1 for none"
        )
    ordered = ids.sort(dim=1).values
    for token, place in ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).nonzero()[:1].tolist():
        raise ValueError(f"token {token} has expert {ordered[token, place].item()} twice, expected distinct experts")


def max_tokens_for(shared: ranks.Shared, tokens: int) -> int:
    """The tokens for which a step with so many at this rank is compiled. Where a rank has more than max_tokens, that
    grows to a power of two at all ranks, and the programs for fewer are freed. Collective. ValueError, at all ranks: too
    many."""
    tokens = shared.largest("dispatch tokens", tokens)
    if tokens > MAX_TOKENS:
        raise ValueError(f"a rank has {tokens} tokens, expected at most {MAX_TOKENS}")
    if tokens > shared.buffer.max_tokens:
        shared.buffer.max_tokens = 1 << (tokens - 1).bit_length()
        shared.forget_exchanges()
    return shared.buffer.max_tokens


def get_hidden_bytes(x: torch.Tensor) -> int:
    """The bytes of a row of x [T, H]."""
    if not isinstance(x, torch.Tensor) or x.dim() != 2:
        raise ValueError("x is no tensor [T, H]")
    return x.shape[1] * max(x.element_size(), 2)


def get_buffer(group=None, hidden_bytes: int = 0, *, threads: int = 0, timeout: float = 30.0) -> ranks.Buffer:
    """The buffer of a group, for rows of that many bytes or fewer. Collective the first time."""
    shared = ranks.shared_by(ranks.Group(Parallel(group, timeout=timeout)), threads, timeout)
    whole_number("hidden_bytes", hidden_bytes, 0, _MAX_BYTES)
    shared.keep()
    shared.buffer.hidden_bytes = max(shared.buffer.hidden_bytes, hidden_bytes)
    return shared.buffer


def init_buffer(
    group,
    hidden_bytes: int,
    num_experts: int | None = None,
    top_k: int | None = None,
    *,
    max_tokens: int = 65536,
    dtype: torch.dtype = torch.bfloat16,
    rows_per: str = "expert",
    num_sms_dispatch_api: int | None = None,
    num_sms_combine_api: int | None = None,
    threads: int = 0,
    timeout: float = 30.0,
) -> ranks.Buffer:
    """Makes the buffer of a group, for steps of up to max_tokens tokens per rank (the largest that a rank gives). With
    num_experts and top_k it also compiles the program for rows of hidden_bytes, so that the first step need not.

    Collective. ValueError, at all ranks: sizes that are none. RuntimeError: what another rank refuses.
    """
    members = ranks.Group(Parallel(group, timeout=timeout))
    shared = ranks.shared_by(members, threads, timeout)
    with shared.refusing():
        buffer = get_buffer(group, hidden_bytes)
        whole_number("max_tokens", max_tokens, 1, MAX_TOKENS)
        if (num_experts is None) != (top_k is None):
            raise ValueError(f"num_experts is {num_experts!r}, but top_k is {top_k!r}, expected both or none")
    buffer.max_tokens = shared.largest("make a buffer", max_tokens)
    if num_experts is not None:
        with shared.refusing():
            is_float32 = dtype in (torch.float32, torch.float16)
            hidden = hidden_bytes // torch.empty(0, dtype=dtype).element_size()
            shape = ExchangeShape(
                rows_per, hidden, num_experts, top_k, members.size, buffer.max_tokens, is_float32,
                num_sms_dispatch_api, num_sms_combine_api,
            )  # fmt: skip
            program = shape.compile()
        shared.exchange(program, *shape.own_experts(members.rank), described("init_buffer", shape))
    return buffer


def reset_buffer(group=None):
    """Frees what exchange.dispatch and exchange.combine made for a group; what handles and graphs use is freed with them. The
    next step makes it again. Collective."""
    free(ranks.shared_by(ranks.Group(Parallel(group))))


def free(shared: ranks.Shared):
    """reset_buffer() for what the ranks of a group share."""
    shared.largest("free a buffer", 0)
    shared.forget_exchanges()
    shared.buffer = ranks.Buffer()
