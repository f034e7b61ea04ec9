"""This process's place among the ranks that run layers together, shared by all layers of a group.

There is one torch.classes.sluice.Ranks per group and process: it has the transport, the worker threads and the memory
whose content is not kept between steps. Layers with the same program are one layer, whichever module uses them.

In a process without a group, a layer is freed with the last module that uses it, and what all layers share is freed
with the last layer. The ranks of a group make layers together, so they must also free them together, by clear_cache():
modules of different ranks need not end at the same time.
"""

import atexit
import contextlib
import gc
import itertools
import os
import secrets
import threading
import weakref

import torch
import torch.distributed as dist

from . import library

_guard = threading.RLock()
# By process and group. Objects that only modules keep alive are not in _lasting.
_shared: "weakref.WeakValueDictionary[tuple, Shared]" = weakref.WeakValueDictionary()
_lasting: dict[tuple, "Shared"] = {}


class Group:
    """A process group, or none, inside a module: copies of the module share it, and it cannot be pickled."""

    def __init__(self, group):
        self.group = group
        if group is None:
            self.rank, self.size = 0, 1
            return
        if not dist.is_available() or not dist.is_initialized():
            raise ValueError("ep_group is given, but torch.distributed is not initialized: call init_process_group")
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise ValueError("ep_group is given, but this process is not one of its ranks")

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        if self.group is not None:
            raise TypeError("a layer with an ep_group cannot be pickled: save its state_dict()")
        return (Group, (None,))


class Shared:
    """Ranks and the layers made for them. Made collectively by the ranks of the group."""

    def __init__(self, key: tuple, group: Group, threads: int, timeout: float):
        failure = None
        try:
            library.load()
        except RuntimeError as error:
            if group.size == 1:
                raise
            failure = str(error)  # raised at all ranks, because the others would wait for this one
        job = _agree_on_job(group, failure) if group.size > 1 else ""
        self.threads, self.timeout = threads, timeout
        self.ranks = torch.classes.sluice.Ranks(job, group.rank, group.size, threads, timeout)
        self.key, self.group = key, group
        self._held: "weakref.WeakValueDictionary[tuple, Held]" = weakref.WeakValueDictionary()
        self._lasting = {}  # objects that live independently of modules, by key
        self._packing = itertools.count()  # numbers of the layers that keep weights packed; equal at all ranks

    def refuse(self, why: str):
        """Replaces a step: it fails at all ranks, at the others with "rank N: WHY". Waits for them."""
        self.ranks.refuse(why)

    @contextlib.contextmanager
    def refusing(self):
        """For code that prepares a step and does nothing collective: an exception refuses the step."""
        try:
            yield
        except Exception as error:
            self.refuse(str(error).removeprefix("sluice: ") or type(error).__name__)
            raise

    def layer(self, path: str, weights: list[str], packs_frozen: bool = False) -> "Held":
        """The layer of a program; made collectively at first use. A layer that keeps weights packed is not shared."""
        key = (path, *weights, next(self._packing)) if packs_frozen else (path, *weights)
        held = self._hold(key, lambda: torch.classes.sluice.Layer(self.ranks, path, weights))
        if packs_frozen:
            held.op.pack_frozen(True)
        return held

    def exchange(self, path: str) -> "Held":
        """The exchange that runs the program of fused_dispatch and fused_combine; made collectively at first use. It
        lives until clear_cache(), because between two steps no object refers to it."""
        held = self._hold((path,), lambda: torch.classes.sluice.Exchange(self.ranks, path))
        self._lasting[(path,)] = held.op
        _lasting[self.key] = self
        return held

    def _hold(self, key: tuple, make) -> "Held":
        with _guard:
            held = self._held.get(key)
            if held is None:
                op = self._lasting[key] if key in self._lasting else make()
                held = self._held[key] = Held(op, self)
                if self.group.size > 1:
                    self._lasting[key] = op
            return held

    def layers(self) -> list:
        return list({**self._lasting, **{key: held.op for key, held in list(self._held.items())}}.values())

    def forget(self):
        """Frees the layers that no module uses at any rank; collective. If no layer remains, frees everything else."""
        unused = {key for key in self._lasting if key not in self._held}
        if self.group.size > 1:
            said = [None] * self.group.size
            dist.all_gather_object(said, unused, group=self.group.group)
            unused = set.intersection(*said)
        with _guard:
            for key in unused:
                del self._lasting[key]
            if not self._lasting:
                _lasting.pop(self.key, None)
        self.ranks.trim()


class Held:
    """A module's reference to a layer. The last reference frees it, and the last layer frees what all layers share."""

    def __init__(self, op, shared: Shared):
        self.op, self._shared = op, shared


def shared_by(group: Group, threads: int = 0, timeout: float = 30.0) -> Shared:
    """What the layers of a group share. The first layer that runs sets the number of threads and the time limit.

    Collective the first time. ValueError, which refuses a step: the requested number of threads differs from the present
    one. RuntimeError: ranks on several machines.
    """
    key = (os.getpid(), group.group if group.size > 1 else None)  # a forked child has its own workers
    with _guard:
        shared = _shared.get(key)
        if shared is None:
            shared = _shared[key] = Shared(key, group, threads, timeout)
            if group.size > 1:
                _lasting[key] = shared
    if threads and threads != shared.ranks.threads():
        with shared.refusing():
            raise ValueError(
                f"threads is {threads}, but layers of this group share {shared.ranks.threads()} threads already"
            )
    return shared


def memory() -> dict[str, int]:
    """Bytes of this process's layers: of workspaces, of what forwards keep for backwards, and of large weight gradients
    (those of the last step are kept for the next). They grow until layers are freed (clear_cache()).
    """
    sizes = {"workspace_bytes": 0, "grad_bytes": 0, "saved_bytes": 0, "saved_sets": 0, "saved_sets_in_use": 0, "layers": 0}
    with _guard:
        for (process, _), shared in list(_shared.items()):
            if process != os.getpid():
                continue
            sizes["workspace_bytes"] += shared.ranks.bytes()
            sizes["grad_bytes"] += shared.ranks.grad_bytes()
            for layer in shared.layers():
                sizes["layers"] += 1
                sizes["saved_bytes"] += layer.saved_bytes()
                sizes["saved_sets"] += layer.saved_sets()
                sizes["saved_sets_in_use"] += layer.saved_in_use()
    return sizes


def clear_cache():
    """Frees what no module needs: layers whose modules are gone, memory of gradients that are gone, and, if no layer
    remains, workers and their memory. Collective over each ep_group whose layers have run."""
    gc.collect()  # frees modules that are part of a cycle
    for (process, _), shared in list(_lasting.items()):
        if process == os.getpid():
            shared.forget()
    with _guard:
        alone = _shared.get((os.getpid(), None))
    if alone is not None:
        alone.ranks.trim()


def _machine() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{os.uname().nodename} ({file.read().strip()})"
    except OSError:
        return os.uname().nodename


def _agree_on_job(group: Group, failure: str | None) -> str:
    """A name that no other job has, from the first rank. RuntimeError, at all ranks: several machines, or a rank cannot
    continue, with its reason."""
    said = [None] * group.size
    dist.all_gather_object(said, (_machine(), f"sluice-{secrets.token_hex(8)}", failure), group=group.group)
    for rank, (_, _, failed) in enumerate(said):
        if failed is not None:
            raise RuntimeError(failed if rank == group.rank else f"rank {rank}: {failed}")
    for rank, (machine, _, _) in enumerate(said):
        if machine != said[0][0]:
            raise RuntimeError(
                f"ranks of ep_group are on several machines: rank 0 on {said[0][0]}, rank {rank} on {machine}; "
                "layers exchange rows by the memory of one machine"
            )
    return said[0][1]


@atexit.register
def _end():
    """Ends workers that no module keeps before the interpreter ends."""
    for (process, _), shared in list(_shared.items()):
        if process == os.getpid():
            shared._lasting.clear()
            for held in list(shared._held.values()):
                held.op = None
            shared.ranks = None
    _lasting.clear()
