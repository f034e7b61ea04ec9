"""This process's place among the ranks that run layers together, shared by all layers of a group.

There is one torch.classes.sluice.Ranks per group and process: it has the transport, the worker threads and the memory
whose content is not kept between steps. Layers with the same program are one layer, whichever module uses them.

In a process without a group, a layer is freed with the last module that uses it, and what all layers share is freed
with the last layer. The ranks of a group make layers together, so they must also free them together, by clear_cache():
modules of different ranks need not end at the same time.
"""

import atexit
import contextlib
import dataclasses
import gc
import itertools
import math
import os
import secrets
import threading
import weakref

import torch
import torch.distributed as dist

from ..base import library
from ..base.integers import MAX_RANKS, MAX_THREADS, whole_number
from . import collectives
from .parallel import Parallel

_guard = threading.RLock()
# By process and group. Objects that only modules keep alive are not in _lasting.
_shared: "weakref.WeakValueDictionary[tuple, Shared]" = weakref.WeakValueDictionary()
_lasting: dict[tuple, "Shared"] = {}
# The process in which each process group was first seen: that which made it.
_makers: "weakref.WeakKeyDictionary[dist.ProcessGroup, int]" = weakref.WeakKeyDictionary()


def dealt(count: int, groups: int, group: int) -> range:
    """Which of `count` things, dealt in order over groups, a group has: the first groups have one more if they do not
    divide evenly."""
    few, more = divmod(count, groups)
    first = group * few + min(group, more)
    return range(first, first + few + (group < more))


class Group:
    """The ranks that run a layer together, inside a module: copies of the module share it, and it cannot be pickled.

    They are ep groups of tp ranks that share experts: rank r is shard r % tp of group r // tp. `levels` are process
    groups of torch.distributed from the inner to the outer one: either one with all ranks in order, or the tp_group and
    the ep_group of this process. Collective calls over all ranks run on one level after the other; `what` names them in the
    error that names a rank which gave no sign of life for `timeout` seconds.

    PyTorch keeps process groups until destroy_process_group(), which ends their threads if nothing else refers to them. A
    thread that ended later could need the interpreter while it shuts down, which aborts the process: so no layer keeps one.
    """

    def __init__(self, parallel: Parallel = Parallel()):
        if not isinstance(parallel, Parallel):
            raise ValueError(f"parallel is of type {type(parallel).__name__}, expected sluice_torch.Parallel, such as Parallel(ep_group)")
        ep_group, tp_group, tp = parallel.ep_group, parallel.tp_group, whole_number("tp", parallel.tp, 1, MAX_RANKS)
        if parallel.mesh is not None:
            if ep_group is not None or tp_group is not None:
                raise ValueError("mesh is given together with ep_group or tp_group, expected one of both")
            ep_group, tp_group = _groups_of(parallel.mesh)
        given = {"tp_group": tp_group, "ep_group": ep_group}
        places = {name: place_in(name, group) for name, group in given.items() if group is not None}
        if tp_group is not None and tp not in (1, places["tp_group"][1]):
            raise ValueError(f"tp is {tp}, but tp_group has {places['tp_group'][1]} ranks")
        self.key = tuple(weakref.ref(given[name]) for name in places)  # equal for the same process groups
        self._maker = next((_maker_of(given[name]) for name in places), os.getpid())
        self.rank, self.size = 0, 1
        for rank, size in places.values():
            self.rank, self.size = self.rank + rank * self.size, self.size * size
        self.tp = tp if tp_group is None else places["tp_group"][1]
        self.tokens = parallel.tokens
        if self.size % self.tp:
            raise ValueError(f"tp is {self.tp}, expected a divisor of the {self.size} ranks of ep_group")
        self._members = None
        # another value is refused at all ranks, when they meet for the first time
        self.timeout = parallel.timeout if _is_time(parallel.timeout) else 30.0
        if self.size > 1:
            collectives.pulse.start()

    def __str__(self) -> str:
        return f"{self.size // self.tp} x {self.tp} ranks (ep x tp) with {self.tokens} tokens"

    @property
    def levels(self) -> list:
        """RuntimeError: one was destroyed, or a parent of this process made it."""
        if self.is_destroyed:
            raise RuntimeError("the ep_group of a layer was destroyed (destroy_process_group), and this needs it")
        if self.key and self._maker != os.getpid():
            raise RuntimeError(
                f"process {self._maker} made the group of ranks, of which this is a forked child ({os.getpid()}): a child cannot "
                f"reach the other ranks; start it with 'spawn', or make the group in the child"
            )
        return [group() for group in self.key]

    @property
    def is_destroyed(self) -> bool:
        return any(group() is None for group in self.key)

    @property
    def shard(self) -> int:
        return self.rank % self.tp

    @property
    def sources(self) -> int:
        """Ranks, or groups with the same tokens."""
        return self.size // self.tp if self.tokens == "same" else self.size

    def gather_objects(self, value, what: str) -> list:
        """The values of all ranks, in order. Collective."""
        values = [value]
        for group in self.levels:
            values = collectives.gather_objects(values, group, what, self.timeout)
        return values

    def members(self) -> list[int]:
        """The global numbers of the ranks, in order. Collective the first time if there are two levels."""
        if self._members is None:
            if len(self.levels) == 1:
                self._members = list(dist.get_process_group_ranks(self.levels[0]))
            else:
                self._members = self.gather_objects(dist.get_rank(), "number the ranks of a mesh")
        return self._members

    def gather(self, tensor: torch.Tensor, what: str, to: int | None = None) -> list | None:
        """The tensors of all ranks in order, which have one shape and type, at the process with global number `to`, or at
        all. Collective."""
        if to is not None and to not in self.members():
            raise ValueError(f"process {to} is not one of the ranks {self.members()} of the layer")
        tensors = tensor.unsqueeze(0)
        for group in self.levels:
            if tensors is not None:
                found = collectives.gather(tensors, group, what, self.timeout, self._receiver(to, group))
                tensors = None if found is None else torch.cat(found)
        return None if tensors is None else list(tensors)

    def _receiver(self, to: int | None, group) -> int | None:
        """The member of a level that gathers for process `to`: on the inner one, that with its shard."""
        if to is None or group is self.levels[-1]:
            return to
        size = dist.get_world_size(group)
        return self.members()[self.rank // size * size + self.members().index(to) % size]

    def gather_shards(self, tensor: torch.Tensor, longest: int, what: str) -> list[torch.Tensor]:
        """The tensors of the ranks that share experts with this one, in order. Those of other ranks may have another first
        dimension, up to `longest`. Collective over the inner level."""
        inner = self.levels[0]
        padded = tensor.new_zeros(1, longest, *tensor.shape[1:])
        padded[0, : len(tensor)] = tensor
        first = dist.get_rank(inner) // self.tp * self.tp
        found = collectives.gather(padded, inner, what, self.timeout)
        return [part[0, : len(tensor)] for part in found[first : first + self.tp]]

    def all_reduce(self, tensor: torch.Tensor, what: str, largest: bool = False):
        """In place, over all ranks: sums, or the largest. Collective."""
        for group in self.levels:
            collectives.all_reduce(tensor, group, what, self.timeout, largest)

    def broadcast(self, tensor: torch.Tensor, what: str):
        """In place, from the first rank of the inner level. Collective over that."""
        inner = self.levels[0]
        collectives.broadcast(tensor, dist.get_process_group_ranks(inner)[0], inner, what, self.timeout)

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        if self.key:
            raise TypeError("a layer with an ep_group cannot be pickled: save its state_dict()")
        return (Group, ())


def _maker_of(group) -> int:
    """The process that made a process group, as far as this module has seen: the threads of a group stay in it."""
    return _makers.setdefault(group, _makers.get(dist.group.WORLD, os.getpid()))


def _before_fork():
    """Children have the process groups of their parent, but not the threads that serve them."""
    if dist.is_available() and dist.is_initialized():
        _makers.setdefault(dist.group.WORLD, os.getpid())


os.register_at_fork(before=_before_fork)


def place_in(name: str, group) -> tuple[int, int]:
    """This process's rank in a group, and the group's size."""
    if not dist.is_available() or not dist.is_initialized():
        raise ValueError(f"{name} is given, but torch.distributed is not initialized: call init_process_group")
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise ValueError(f"{name} is given, but this process is not one of its ranks")
    return rank, size


def _groups_of(mesh) -> tuple:
    """The ep_group and tp_group of a DeviceMesh; None where it has no such dimension."""
    names = getattr(mesh, "mesh_dim_names", None)
    if not names or not set(names) <= {"ep", "tp"}:
        raise ValueError(f"mesh has dimensions {names}, expected 'ep', 'tp' or both by name: call its [] with these")
    return tuple(mesh.get_group(name) if name in names else None for name in ("ep", "tp"))


@dataclasses.dataclass
class Buffer:
    """What the exchanges of a group share. hidden_bytes: the widest rows it was asked for; max_tokens: the most tokens of
    a rank without a larger program."""

    hidden_bytes: int = 0
    max_tokens: int = 65536


class Shared:
    """Ranks and the layers made for them. Made collectively by the ranks of the group."""

    def __init__(self, key: tuple, group: Group, threads: int, timeout: float, device: str):
        failure = None
        try:
            library.load()
            whole_number("threads", threads, 0, MAX_THREADS)
            _check_timeout(timeout)
        except (RuntimeError, ValueError) as error:
            if group.size == 1:
                raise
            failure = str(error)  # raised at all ranks, because the others would wait for this one
        self.threads, self.timeout = threads, timeout
        self.ranks, self.spans_machines = _join(group, failure, threads, timeout, device)
        self.key, self.group = key, group
        self._held: "weakref.WeakValueDictionary[tuple, Held]" = weakref.WeakValueDictionary()
        self.buffer = Buffer()
        self._lasting = {}  # objects that live independently of modules, by key
        self._packing = itertools.count()  # numbers of the layers that keep weights packed; equal at all ranks

    def refuse(self, why: str):
        """Replaces a step: it fails at all ranks, at the others with "rank N: WHY". Waits for them."""
        self.ranks.refuse(why)

    @contextlib.contextmanager
    def refusing(self, beside: bool = False):
        """For code that prepares a step and does nothing collective: an exception refuses the step. `beside`: a step of delayed
        weight gradients, which runs beside others."""
        try:
            yield
        except Exception as error:
            refuse = self.ranks.refuse_beside if beside else self.ranks.refuse
            refuse(str(error).removeprefix("sluice: ") or type(error).__name__)
            raise

    def here(self) -> "Shared":
        """What steps of this rank alone share where they are parts of steps of the group: with as many workers."""
        key = (self.key[0], (self.key[1], "here"))
        with _guard:
            found = _shared.get(key)
            if found is None:
                found = _shared[key] = Shared(key, Group(), self.ranks.threads(), self.timeout, "cpu")
            return found

    def layer(self, path: str, weights: list[str], packs_frozen: bool = False, arguments: str = "") -> "Held":
        """The layer of a program; made collectively at first use. A layer that keeps weights packed is not shared.
        `arguments` are the caller's (described_calls), by which ranks that differ are told how."""
        key = (path, *weights, next(self._packing)) if packs_frozen else (path, *weights)
        held = self._hold(path, key, lambda: torch.classes.sluice.Layer(self.ranks, path, weights, arguments))
        if packs_frozen:
            held.op.pack_frozen(True)
        return held

    def linear(self, path: str, arguments: str = "") -> "Held":
        """The linear layer of a program; made collectively at first use."""
        return self._hold(path, ("linear", path), lambda: torch.classes.sluice.Linear(self.ranks, path, arguments))

    def largest(self, what: str, number: int) -> int:
        """The largest of the numbers that all ranks give for `what`. Collective."""
        return self.ranks.largest(what, number)

    def exchange(self, path: str, first_expert: int = 0, experts: int = -1, arguments: str = "") -> "Held":
        """The exchange that runs the program of exchange.dispatch and exchange.combine; made collectively at first use. It
        lives until clear_cache(), because between two steps no object refers to it."""
        key = ("exchange", path)
        make = lambda: torch.classes.sluice.Exchange(self.ranks, path, first_expert, experts, arguments)
        held = self._hold(path, key, make)
        self._lasting[key] = held.op
        self.keep()
        return held

    def keep(self):
        """Keeps this until clear_cache()."""
        _lasting[self.key] = self

    def forget_exchanges(self):
        """Frees the exchanges; collective. Those that a handle or graph uses end with it, and are not found again."""
        with _guard:
            for kept in (self._lasting, self._held):
                for key in [key for key in kept if key[0] == "exchange"]:
                    del kept[key]

    def _hold(self, path: str, key: tuple, make) -> "Held":
        with _guard:
            held = self._held.get(key)
            if held is None:
                op = self._lasting[key] if key in self._lasting else make()
                held = self._held[key] = Held(op, self, path)
                if self.group.size > 1:
                    self._lasting[key] = op
            return held

    def layers(self) -> list:
        return list({**self._lasting, **{key: held.op for key, held in list(self._held.items())}}.values())

    def forget(self):
        """Frees the layers that no module uses at any rank, or at this one if the process group is gone; otherwise
        collective. If no layer remains, frees everything else."""
        unused = {key for key in self._lasting if key not in self._held}
        if self.group.size > 1 and not self.group.is_destroyed:
            unused = set.intersection(*self.group.gather_objects(unused, "free layers"))
        with _guard:
            for key in unused:
                del self._lasting[key]
            if not self._lasting:
                _lasting.pop(self.key, None)
        self.ranks.trim()


def _is_time(timeout) -> bool:
    return isinstance(timeout, (int, float)) and not isinstance(timeout, bool) and 0 < timeout < math.inf


def _check_timeout(timeout):
    if not _is_time(timeout):
        raise ValueError(f"timeout is {timeout!r}, expected a positive number of seconds")


class Held:
    """A module's reference to a layer. The last reference frees it, and the last layer frees what all layers share."""

    def __init__(self, op, shared: Shared, path: str):
        self.op, self.shared, self.path = op, shared, path  # path: the file of its program


def shared_by(group: Group, threads: int = 0, timeout: float = 30.0, device: str = "cpu") -> Shared:
    """What the layers of a group share on a device. The first layer that runs sets the number of threads and the time limit.

    Collective the first time. ValueError, which refuses a step: the requested number of threads differs from the present
    one. RuntimeError, at all ranks: a rank cannot be reached. RuntimeError, ValueError: a device that is not the CPU for
    several ranks, or that Sluice cannot use.
    """
    if device != "cpu" and group.size > 1:
        raise RuntimeError(f"parameters are on {device}, expected cpu: on a GPU a layer has one rank, found {group.size}")
    alone = None if device == "cpu" else device
    key = (os.getpid(), group.key if group.size > 1 else alone)  # a forked child has its own workers
    with _guard:
        shared = _shared.get(key)
        if shared is None:
            shared = _shared[key] = Shared(key, group, threads, timeout, device)
            if group.size > 1:
                _lasting[key] = shared
    if device == "cpu" and threads and threads != shared.ranks.threads():
        with shared.refusing():
            raise ValueError(
                f"threads is {threads}, but layers of this group share {shared.ranks.threads()} threads already"
            )
    return shared


def memory() -> dict[str, int]:
    """Bytes of this process's layers: of workspaces, of what forwards keep for backwards, and of large weight gradients
    (the last step's are kept for the next). They grow until layers are freed (clear_cache()).
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
    remains, workers and their memory. Collective over each ep_group whose layers have run, unless it was destroyed."""
    gc.collect()  # frees modules that are part of a cycle
    for (process, _), shared in list(_lasting.items()):
        if process == os.getpid():
            shared.forget()
    for (process, of), shared in list(_shared.items()):
        if process == os.getpid() and not isinstance(of, str):  # the ranks of a GPU keep no gradients
            shared.ranks.trim()


def _machine() -> str:
    """Equal at processes that can share memory. They meet at a socket that has its name in the network namespace."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{os.uname().nodename} ({file.read().strip()}, {os.readlink('/proc/self/ns/net')})"
    except OSError:
        return os.uname().nodename


def _join(group: Group, failure: str | None, threads: int, timeout: float, device: str):
    """The torch.classes.sluice.Ranks of this process, and whether they are on several machines: by the memory of one machine or by UCX
    between them. Collective. RuntimeError, at all ranks, if one cannot join; `failure` is why this one cannot."""
    if group.size == 1:
        return torch.classes.sluice.Ranks("", 0, 1, threads, timeout, device), False
    machines, job = _agree_on_job(group, failure)
    if len(set(machines)) == 1:
        return torch.classes.sluice.Ranks(job, group.rank, group.size, threads, timeout, device), False
    network, failure = _outcome(_network)
    said = group.gather_objects((None if network is None else network.address(), failure), "connect ranks")
    without = [rank for rank, (address, _) in enumerate(said) if address is None]
    if without:
        other = next(rank for rank, machine in enumerate(machines) if machine != machines[0])
        raise RuntimeError(
            f"ranks of ep_group are on several machines: rank 0 on {machines[0]}, rank {other} on {machines[other]}; "
            f"that needs UCX, which these ranks lack: {', '.join(map(str, without))} "
            f"(rank {without[0]}: {said[without[0]][1]})"
        )
    addresses = [address for address, _ in said]
    ranks, failure = _outcome(lambda: network.join(job, group.rank, addresses, machines, threads, timeout))
    raise_any(group, group.gather_objects(failure, "connect ranks"))  # before this network ends, which other ranks may be connecting to
    return ranks, True


def _network():
    return torch.classes.sluice.Network()


def _outcome(make) -> tuple:
    """What make() returns and None, or None and its error."""
    try:
        return make(), None
    except (RuntimeError, ValueError) as error:
        return None, str(error)


def raise_any(group: Group, failures: list):
    """Raises the first of the failures of all ranks at each of them."""
    for rank, failure in enumerate(failures):
        if failure is not None:
            raise RuntimeError(failure if rank == group.rank else f"rank {rank}: {failure}")


def _agree_on_job(group: Group, failure: str | None) -> tuple[list[str], str]:
    """The machines of all ranks, and a name that no other job has, from the first rank. RuntimeError, at all ranks: other
    meshes, or a rank cannot continue, with its reason."""
    own = (_machine(), f"sluice-{secrets.token_hex(8)}", failure, str(group), group.rank)
    said = group.gather_objects(own, "meet for the first time")
    raise_any(group, [failed for _, _, failed, _, _ in said])
    for place, (_, _, _, mesh, rank) in enumerate(said):
        if mesh != said[0][3] or rank != place:
            raise RuntimeError(
                f"ranks of a layer have other meshes: the first is rank {said[0][4]} of {said[0][3]}, number {place} is "
                f"rank {rank} of {mesh}"
            )
    return [machine for machine, *_ in said], said[0][1]


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
