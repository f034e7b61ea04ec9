"""dispatch and combine: send tokens to the ranks of their experts and back. Each is the other's backward.

For models that compute their experts themselves; sluice_torch.MoE does everything in one step.
"""

import threading

import torch

from .base import recording
from .base.integers import MAX_EXPERTS, MAX_ROWS, whole_number
from .base.tensors import as_stored
from .base.writes import write
from .ranks import buffers, ranks
from .ranks.described_calls import described
from .ranks.parallel import Parallel


class Event:
    """The end of a step. Any thread may use it."""

    def __init__(self, pending=None, late: tuple | None = None):
        self._pending = pending  # None: it has ended
        self._late = late  # a tensor of float16, and the result of float32 from which it is copied when the step has ended
        self._guard = threading.Lock()

    def wait(self):
        """Returns when the step has ended and its results can be read. RuntimeError: the step failed."""
        if self._pending is not None:
            self._pending.wait()
        self._copy_late()

    def done(self) -> bool:
        """Whether wait() would return at once."""
        if self._pending is not None and not self._pending.done():
            return False
        self._copy_late()
        return True

    def _copy_late(self):
        with self._guard:
            if self._late is not None:
                narrow, wide = self._late
                write(narrow, wide.detach())
                self._late = None


class Narrow(torch.autograd.Function):
    """A tensor of float16 for a result of float32 that a step has still to write: an Event copies it."""

    @staticmethod
    def forward(ctx, wide):
        return torch.empty(wide.shape, dtype=torch.float16)

    @staticmethod
    def backward(ctx, grad):
        return grad.float()


def _result(wide: torch.Tensor, dtype: torch.dtype, pending) -> tuple[torch.Tensor, Event]:
    """A result of a step in the caller's type, and the end of the step."""
    if dtype != torch.float16:
        return wide, Event(pending)
    if pending is None:
        return wide.half(), Event()
    narrow = Narrow.apply(wide)
    return narrow, Event(pending, (narrow, wide))


class Handle:
    """The routing of a dispatch, for its combine. A routing is kept as long as its handle, or the graph of a result,
    exists.

    event: the end of the last dispatch or combine with this handle. rows_per_expert [E of this rank], int64: the rows of
    each expert, without pads.
    """

    def __init__(self, exchange: ranks.Held, token: torch.Tensor, dtype: torch.dtype, pads: bool, rows_per_expert, event: Event):
        self.event, self.rows_per_expert = event, rows_per_expert
        self.shared = exchange.shared  # what its ranks share
        self._exchange, self._token, self._dtype, self._pads = exchange, token, dtype, pads

    @property
    def group(self):
        """The process group of the dispatch, None at one rank. RuntimeError: it was destroyed."""
        levels = self.shared.group.levels
        return levels[0] if levels else None

    def release(self):
        """Lets the routing go before the handle ends. The backward of what was computed with it is still possible."""
        self._token = None


@recording.outside_graphs
def dispatch(
    x: torch.Tensor,
    token_indices: torch.Tensor | None = None,
    token_probs: torch.Tensor | None = None,
    num_experts: int | None = None,
    group=None,
    *,
    routing_map: torch.Tensor | None = None,
    probs: torch.Tensor | None = None,
    top_k: int | None = None,
    rows_per: str = "expert",
    num_permuted_tokens: int | None = None,
    pad_multiple: int = 1,
    async_finish: bool = False,
    overlap: bool = False,
    previous_event=None,
    allocate_on_comm_stream: bool = False,
    num_sms_dispatch_api: int | None = None,
    num_sms_combine_api: int | None = None,
    threads: int = 0,
    max_tokens: int | None = None,
    timeout: float = 30.0,
):
    """Returns rows, their experts and probabilities, the number of rows per expert of this rank, and a handle.

    x [T, H] is bfloat16, float32 or float16, and rows have its values (T differs between ranks). The routing is either
      token_indices [T, K], int32 or int64, distinct within a token, -1 for none, and token_probs [T, K], float32, with
        num_experts, the experts of all ranks; or
      routing_map [T, num_experts], bool, and probs of that shape, float32. K is then top_k, the most experts of a token;
        without it, the largest number in this step, on which the ranks agree (each K has its own program).

    rows_per="expert": each (token, k) becomes a row at the rank of `group` that owns the expert. rows [R, H] are ordered by
    expert, then by source rank, then by token; row_experts [R], int64, numbered over all ranks; row_probs [R], float32.
    rows_per="rank": each token becomes one row at each rank that owns one of its experts, ordered by source rank, then by
    token. row_experts [R, S], int64, are its experts at this rank, numbered from the first of the rank, in the order of k,
    -1 for none; row_probs [R, S], float32, is 0 there; S = min(K, experts of this rank).

    num_permuted_tokens: rows have that number of rows, the last of them zero. pad_multiple: the rows of an expert begin at
    a multiple of it (not with rows_per="rank"). Pads are zero, with expert -1 and probability 0, and a combine ignores
    them. tokens_per_expert [E of this rank], int64, counts pads after an expert's rows, handle.rows_per_expert does not.

    async_finish: handle.event is for code that waits for it; the step has ended when the call returns. With `overlap`, too,
    the call returns when the counts are known: all other results are undefined until handle.event.wait() returns, which
    also gives the step's errors. previous_event is waited for first. allocate_on_comm_stream needs async_finish, and has
    no other effect. Backwards always wait.
    num_sms_dispatch_api, num_sms_combine_api: the number of cores that send rows, and that return them; None: all. The
    program is compiled for the cores of the target (sluicec --cores send=N).
    max_tokens: the most tokens of a rank; without it the group's buffer (get_buffer()) grows where a step needs it.

    Gradients flow to x and token_probs or probs, through a combine. Collective, and so is its backward. ValueError or
    RuntimeError, at all ranks and before anything is sent: tensors of other types, shapes or devices; an id that is no
    expert, or twice in a token; more experts in routing_map than top_k; more rows than num_permuted_tokens; more tokens
    than max_tokens; what another rank refuses. The next step is right.
    """
    recording.refuse("exchange.dispatch", x, token_indices, token_probs, routing_map, probs)
    members = ranks.Group(Parallel(group, timeout=timeout))
    shared = ranks.shared_by(members, threads, timeout)
    with shared.refusing():
        _check_async(async_finish, overlap, allocate_on_comm_stream, previous_event)
        _check_tensor("x", x, "[T, H]")
        given = (token_indices, token_probs) if routing_map is None else (routing_map, probs)
        names = ("token_indices", "token_probs") if routing_map is None else ("routing_map", "probs")
        for name, tensor in zip(names, given):
            _check_tensor(name, tensor, "[T, K]" if routing_map is None else "[T, E]")
        if routing_map is None:
            ids, weights, most = token_indices, token_probs, token_indices.shape[1]
            whole_number("num_experts", num_experts, 1, MAX_EXPERTS)
        else:
            num_experts, most = _experts_of_map(x, routing_map, probs, num_experts, top_k, token_indices, token_probs)
        fixed = -1 if num_permuted_tokens is None else num_permuted_tokens
        if num_permuted_tokens is not None:
            whole_number("num_permuted_tokens", num_permuted_tokens, 0, MAX_ROWS, ", or None")
        whole_number("pad_multiple", pad_multiple, 1, MAX_ROWS)
        if rows_per not in ("expert", "rank"):
            raise ValueError(f"rows_per is {rows_per!r}, expected 'expert' or 'rank'")
        if rows_per == "rank" and pad_multiple != 1:
            raise ValueError(f"pad_multiple is {pad_multiple}, but with rows_per='rank' no rows are those of one expert")
    if routing_map is not None and top_k is None:
        most = shared.largest("dispatch tokens of a routing_map", most)
    if max_tokens is None:
        max_tokens = buffers.max_tokens_for(shared, len(x))
    with shared.refusing():
        if routing_map is not None:
            ids, weights = _ids_of_map(routing_map, probs, most)
        is_float32 = x.dtype in (torch.float32, torch.float16)
        shape = buffers.ExchangeShape(
            rows_per, x.shape[1], num_experts, ids.shape[1], members.size, max_tokens, is_float32,
            num_sms_dispatch_api, num_sms_combine_api,
        )  # fmt: skip
        owners = ids
        if rows_per == "rank":
            buffers.check_ids(x, ids, weights, num_experts)
            owners, weights = shape.owners(ids), shape.sides(ids, weights)
        payload = x.float() if x.dtype == torch.float16 else x
        operands = [as_stored(tensor) for tensor in (payload, owners, weights)]
        program = shape.compile()
    exchange = shared.exchange(program, *shape.own_experts(members.rank), described("exchange.dispatch", shape))
    try:
        rows, experts, row_probs, counts, token, pending = torch.ops.sluice.dispatch(
            exchange.op, *operands, fixed, pad_multiple, bool(overlap)
        )
    except RuntimeError as error:  # the program calls them so
        raise RuntimeError(str(error).replace("expert_ids[", "token_indices[")) from None
    rows, event = _result(rows, x.dtype, pending)
    return rows, experts, row_probs, counts[1], Handle(exchange, token, x.dtype, pad_multiple > 1, counts[0], event)


@recording.outside_graphs
def combine(
    rows: torch.Tensor,
    group,
    handle: Handle,
    *,
    async_finish: bool = False,
    overlap: bool = False,
    previous_event=None,
    allocate_on_comm_stream: bool = False,
) -> torch.Tensor:
    """[T, H]: the sum of each token's rows [R, H], in float32, rounded once to their type, which must be the dispatched
    one. Rows are in the order in which dispatch() returned them; pads are ignored.

    `group` is the group of the dispatch. The options are as for dispatch(): with `overlap` the result is undefined
    until handle.event.wait() returns, and rows must not be changed before. The gradient of rows is a dispatch. Collective, and so
    is its backward. ValueError or RuntimeError, at all ranks: rows of another type or shape; a handle of another group,
    or one that was released; what another rank refuses.
    """
    recording.refuse("exchange.combine", rows)
    members = ranks.Group(Parallel(group))
    # whose ranks are waiting
    shared = handle.shared if isinstance(handle, Handle) else ranks.shared_by(members)
    with shared.refusing():
        if not isinstance(handle, Handle):
            raise ValueError(f"handle is of type {type(handle).__name__}, expected what exchange.dispatch gave")
        if members.size != shared.group.size or (members.size > 1 and members.key != shared.group.key):
            raise ValueError(f"handle is of another group ({_ranks_of(shared.group)}) than group ({_ranks_of(members)})")
        if handle._token is None:
            raise ValueError("handle was released, expected one that still has its routing")
        _check_async(async_finish, overlap, allocate_on_comm_stream, previous_event)
        if not isinstance(rows, torch.Tensor):
            raise ValueError(f"rows is of type {type(rows).__name__}, expected a tensor")
        if torch.float16 in (handle._dtype, rows.dtype) and rows.dtype != handle._dtype:
            raise ValueError(f"rows has type {rows.dtype}, expected {handle._dtype}, which was dispatched")
        if rows.dtype == torch.float16 or handle._pads:
            handle.event.wait()  # these rows are copied here, others when steps before this one have ended
        payload = as_stored(rows.float() if rows.dtype == torch.float16 else rows)
    tokens, pending = torch.ops.sluice.combine(handle._exchange.op, payload, handle._token, bool(overlap))
    tokens, handle.event = _result(tokens, handle._dtype, pending)
    return tokens


def _ranks_of(group: ranks.Group) -> str:
    if group.is_destroyed:
        return "destroyed"
    return f"ranks {group.members()}" if group.key else "this process alone"


def _check_async(async_finish, overlap, allocate_on_comm_stream, previous_event):
    for name, option in (("allocate_on_comm_stream", allocate_on_comm_stream), ("overlap", overlap)):
        if option and not async_finish:
            raise ValueError(f"{name} is {option!r}, expected False without async_finish")
    if previous_event is None:
        return
    if not callable(getattr(previous_event, "wait", None)):
        raise ValueError(f"previous_event is of type {type(previous_event).__name__}, expected the event of a handle")
    previous_event.wait()


def _check_tensor(name: str, tensor, shape: str):
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{name} is of type {type(tensor).__name__}, expected a tensor {shape}")
    if tensor.dim() != 2:
        raise ValueError(f"{name} is no tensor {shape}, but of shape {list(tensor.shape)}")


def _experts_of_map(x, routing_map, probs, num_experts, top_k, token_indices, token_probs) -> tuple[int, int]:
    """The number of experts of all ranks, and the most experts of a token: top_k where it is given."""
    for name, tensor in (("token_indices", token_indices), ("token_probs", token_probs)):
        if tensor is not None:
            raise ValueError(f"{name} is given together with routing_map, expected one of both")
    experts = routing_map.shape[1] if num_experts is None else whole_number("num_experts", num_experts, 1, MAX_EXPERTS)
    for name, tensor, dtype in (("routing_map", routing_map, torch.bool), ("probs", probs, torch.float32)):
        if tensor.dtype != dtype:
            raise ValueError(f"{name} has type {tensor.dtype}, expected {dtype}")
        if tensor.shape != (len(x), experts):
            raise ValueError(f"{name} has shape {list(tensor.shape)}, expected [{len(x)}, {experts}]")
        if tensor.device.type != "cpu":
            raise ValueError(f"{name} is on device {tensor.device}, expected cpu")
    numbers = routing_map.sum(1)
    most = int(numbers.max()) if len(x) else 0
    if top_k is None:
        return experts, most
    if not isinstance(top_k, int) or isinstance(top_k, bool) or not 1 <= top_k <= experts:
        raise ValueError(f"top_k is {top_k!r}, expected 1 to the {experts} experts")
    if most > top_k:
        raise ValueError(f"token {int(numbers.argmax())} has {most} experts in routing_map, but top_k is {top_k}")
    return experts, top_k


def _ids_of_map(routing_map, probs, most: int) -> tuple[torch.Tensor, torch.Tensor]:
    """token_indices and token_probs [T, K]: a token's experts in order. K is `most`, but at least 1."""
    order = torch.arange(routing_map.shape[1], 0, -1)
    places, ids = (routing_map * order).topk(min(max(most, 1), len(order)), dim=1)
    return ids.masked_fill(places == 0, -1), probs.gather(1, ids) * (places > 0)
