"""Collective calls of torch.distributed that end, with an error that names the ranks that did not take part.

A call over gloo waits for each rank as long as that gives signs of life, and for `seconds` after the last one. Every process
that has made a layer of several ranks gives one each second, whatever it does (Pulse): it may load or compile for minutes,
but not be stopped or gone. A warning tells of a rank that lives, or has made no layer yet, and does not come; the time limit of
the process group (init_process_group) ends such a call. Signs of life, and which ranks have come to a call that takes long,
stand in the store of torch.distributed. Over other backends, calls have only the limit of the process group.

Ranks are numbered as in torch.distributed.
"""

import atexit
import contextlib
import datetime
import functools
import os
import pickle
import threading
import time
import warnings
import weakref

import torch
import torch.distributed as dist

_BEAT_SECONDS = 1.0
_BYTES_PER_SECOND = 10e6  # of the slowest network, for the time that large tensors may take
_ANSWER_SECONDS = 5.0  # for the store
_guard = threading.Lock()
# The calls so far of each process group; equal at its ranks.
_calls: "weakref.WeakKeyDictionary[dist.ProcessGroup, int]" = weakref.WeakKeyDictionary()


def gather_objects(values: list, group, what: str, seconds: float) -> list:
    """The lists of all ranks of the group, joined in order."""
    if not _is_gloo(group):
        said = [None] * dist.get_world_size(group)
        dist.all_gather_object(said, values, group=group)
        return [each for part in said for each in part]
    sent = torch.frombuffer(bytearray(pickle.dumps(values)), dtype=torch.uint8)
    sizes = [int(size) for size in gather(torch.tensor([len(sent)]), group, what, seconds)]
    padded = torch.zeros(max(sizes), dtype=torch.uint8)
    padded[: len(sent)] = sent
    found = gather(padded, group, what, seconds)
    return [each for part, size in zip(found, sizes) for each in pickle.loads(part[:size].numpy().tobytes())]


def gather(tensor: torch.Tensor, group, what: str, seconds: float, to: int | None = None) -> list | None:
    """The tensors of all ranks of the group, in order, at rank `to` or at all; they have one shape and type."""
    sent = tensor.contiguous().view(-1).view(torch.uint8)  # of any type
    here = to is None or to == dist.get_rank()
    found = [torch.empty_like(sent) for _ in range(dist.get_world_size(group))] if here else None
    if to is None:
        begin = functools.partial(dist.all_gather, found, sent, group=group, async_op=True)
    else:
        begin = functools.partial(dist.gather, sent, found, dst=to, group=group, async_op=True)
    _finish(begin, group, what, seconds, len(sent) * dist.get_world_size(group))
    return [each.view(tensor.dtype).view_as(tensor) for each in found] if here else None


def all_reduce(tensor: torch.Tensor, group, what: str, seconds: float, largest: bool = False):
    """In place: sums, or the largest."""
    op = dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM
    _finish(functools.partial(dist.all_reduce, tensor, op, group, async_op=True), group, what, seconds, _size_of(tensor))


def broadcast(tensor: torch.Tensor, source: int, group, what: str, seconds: float):
    """In place, from rank `source`."""
    _finish(functools.partial(dist.broadcast, tensor, source, group, async_op=True), group, what, seconds, _size_of(tensor))


def finish_all(begins: list, tensors: list[torch.Tensor], group, what: str, seconds: float):
    """Calls dist.isend() and dist.irecv() with these tensors, which is what each of `begins` does, and ends what they begin."""
    if begins:
        _finish(lambda: _Steps([begin() for begin in begins]), group, what, seconds, sum(map(_size_of, tensors)))


def _size_of(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


class _Steps:
    """What a collective call returns, for several sends and receives. A wait of one of these that ends early breaks all
    connections of its group, so that a thread waits for them."""

    def __init__(self, steps: list):
        self._steps, self._error = steps, None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            for step in self._steps:
                step.wait()
        except RuntimeError as error:
            self._error = error

    def is_completed(self) -> bool:
        return not self._thread.is_alive()

    def wait(self, limit: datetime.timedelta | None = None):
        self._thread.join(None if limit is None else limit.total_seconds())
        if self._error is not None:
            raise self._error
        if not self.is_completed():
            raise RuntimeError("timeout")


def _finish(begin, group, what: str, seconds: float, size: int):
    """Ends what begin() begins. RuntimeError: a rank gave no sign of life for `seconds`, or torch.distributed reports an error."""
    number = _calls[group] = _calls.get(group, 0) + 1
    if not _is_gloo(group):
        begin().wait()
        return
    seconds += size / _BYTES_PER_SECOND
    ranks, error = None, None
    try:
        work = begin()
    except RuntimeError as failure:  # the connection to a rank that is gone is closed already
        error = str(failure).splitlines()[0]
    while error is None:
        with contextlib.suppress(RuntimeError):
            work.wait(datetime.timedelta(seconds=min(_BEAT_SECONDS, seconds / 4)))
            return
        if work.is_completed():  # with an error, or just now
            try:
                work.wait()
                return
            except RuntimeError as failure:
                error = str(failure).splitlines()[0]
                break
        ranks = ranks or _Ranks(group, number, what, seconds)
        if ranks.are_lost():
            break
    if error is None:
        _disconnect(group)
        with contextlib.suppress(RuntimeError):
            work.wait(datetime.timedelta(seconds=_ANSWER_SECONDS))  # it ends at once
    raise RuntimeError((ranks or _Ranks(group, number, what, seconds)).explain(error))


class _Ranks:
    """What this process knows of the other ranks of a call that takes long."""

    def __init__(self, group, number: int, what: str, seconds: float):
        members = dist.get_process_group_ranks(group)
        self._call = f"sluice/{'-'.join(map(str, members))}/{number}"
        self._others = [rank for rank in members if rank != dist.get_rank()]
        self._what, self._seconds, self._limit = what, seconds, f"{round(seconds, 1):g} s"
        self._began = time.monotonic()
        self._lives = {}  # the beats of a rank, and since when there are so many
        self._absent = self._others  # those that have not come to this call
        self._has_come = self._is_silent = self._has_warned = False  # this rank, the store, this object

    def are_lost(self) -> bool:
        """Whether there is a rank without a sign of life for so long."""
        self._look()
        is_over = time.monotonic() - self._began > self._seconds
        if self._is_silent:
            return is_over
        if self._lost():
            return True
        if is_over and self._absent and not self._has_warned:
            self._has_warned = True
            warnings.warn(f"sluice: {self._what}: has waited {self._limit} for {_name(self._absent)}, which lives or has made no layer")
        return False

    def explain(self, error: str | None) -> str:
        """The message; `error` is the error of torch.distributed, if it had one before."""
        until = time.monotonic() + min(self._seconds, _ANSWER_SECONDS)
        self._look()
        while error is not None and self._absent and not self._is_silent and time.monotonic() < until:
            time.sleep(0.05)  # the other ranks have the same error soon, and say so
            self._look()
        after = "" if error is None else f": {error}"
        if self._is_silent:
            return (
                f"{self._what}: not every rank took part within {self._limit}, and the store of torch.distributed, which "
                f"would know which, does not answer (rank 0 has it, unless torchrun started the ranks){after}"
            )
        if error is None and (lost := self._lost()):
            return f"{self._what}: no sign of life from {_name(lost)} for {self._limit}"
        if self._absent:
            return f"{self._what}: {_name(self._absent)} did not take part{after}"
        return f"{self._what}{after}"

    def _lost(self) -> list[int]:
        now = time.monotonic()
        return [rank for rank, (beats, since) in self._lives.items() if beats and now - since > self._seconds]

    def _look(self):
        """Asks the store, which does not answer if its process is stopped."""
        if self._is_silent:
            return
        answer = []
        thread = threading.Thread(target=lambda: answer.append(self._ask()), daemon=True)
        thread.start()
        thread.join(_ANSWER_SECONDS)
        if not answer or answer[0] is None:
            self._is_silent = True
            return
        self._absent, beats = answer[0]
        now = time.monotonic()
        self._lives = {rank: old if (old := self._lives.get(rank)) and old[0] == beats[rank] else (beats[rank], now) for rank in beats}

    def _ask(self) -> tuple[list[int], dict[int, int]] | None:
        """The ranks that have not come to this call, and the beats of these, or of all if each has come; None without a
        store, or if its process is gone."""
        store = _store()
        if store is None:
            return None
        try:
            if not self._has_come:
                store.add(f"{self._call}/{dist.get_rank()}", 1)
                self._has_come = True
            absent = [rank for rank in self._absent if store.add(f"{self._call}/{rank}", 0) == 0]
            return absent, {rank: store.add(_beats_of(rank), 0) for rank in absent or self._others}
        except RuntimeError:
            return None


class Pulse:
    """Signs of life of this process, from a thread."""

    def __init__(self):
        self._process, self._thread, self._ended = None, None, None

    def start(self):
        """Once; a forked child gives its own. The first sign is given before this returns, if the store answers."""
        with _guard:
            if self._process != os.getpid():
                self._process, self._ended = os.getpid(), threading.Event()
                first = threading.Event()
                self._thread = threading.Thread(target=self._run, args=(first, self._ended), daemon=True)
                self._thread.start()
                first.wait(_ANSWER_SECONDS)
                atexit.register(self._end)

    def _run(self, first: threading.Event, ended: threading.Event):
        self._beat()
        first.set()
        while not ended.wait(_BEAT_SECONDS):
            self._beat()

    def _beat(self):
        store = _store()
        if store is not None:
            with contextlib.suppress(RuntimeError, ValueError):  # a group that was destroyed; there may be another one
                store.add(_beats_of(dist.get_rank()), 1)

    def _end(self):
        """A thread that is in the store while the interpreter ends may abort the process."""
        if self._process == os.getpid():
            self._ended.set()
            self._thread.join(_ANSWER_SECONDS)


pulse = Pulse()


def _beats_of(rank: int) -> str:
    return f"sluice/beats/{rank}"


def _store():
    """That of torch.distributed; None: there is none."""
    if not dist.is_initialized():
        return None
    try:
        return dist.distributed_c10d._get_default_store()
    except (AttributeError, RuntimeError, ValueError):
        return None


def _is_gloo(group) -> bool:
    try:
        chosen = getattr(group, "_get_backend", None)
        return (chosen(torch.device("cpu")).name() if chosen else dist.get_backend(group)) == "gloo"
    except RuntimeError:
        return False  # none for tensors on the CPU


def _disconnect(group):
    """Ends calls of a group that wait for a rank, which would keep this process from ending: a receive that is over at once
    breaks all connections of gloo."""
    other = next(rank for rank in dist.get_process_group_ranks(group) if rank != dist.get_rank())
    with contextlib.suppress(RuntimeError):
        dist.irecv(torch.empty(1), other, group=group, tag=2**30).wait(datetime.timedelta(milliseconds=1))


def _name(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
