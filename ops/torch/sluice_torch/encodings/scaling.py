"""Scales of FP8 products with one per tensor: what the steps of a layer get and give (docs/PRECISION.md, *Per tensor*).

Scales come from largest magnitudes, amaxes. Those of weights are computed here. With delayed scaling a layer has a history
of amaxes for each tensor that its products round, known by the tensor's name in the program: rows of the forward, and
gradients of the backward.
"""

import collections
import ctypes
import dataclasses
import io
import threading
import weakref

import torch

from ..ranks import collectives
from .amax import WeightAmaxes
from .encodings import Delayed, Encodings

# In a state_dict: the histories of a layer, if it has any.
EXTRA_STATE = "_extra_state"
# Forwards whose scales are remembered, for forwards that a backward repeats.
_REMEMBERED = 128
# What the name of a tensor ends with that a backward computes again.
_AGAIN = "_again"

_guard = threading.Lock()  # of all histories: forwards and backwards may run in several threads


class NoHistories(ValueError):
    """A state does not come from a layer with delayed scaling."""


class History:
    """The amaxes of one tensor, and the amax that its scale is for.

    amaxes  [length, ...] float32: the amax of step s is at s % length
    used    [...] float32; 0: the scale is 1
    steps   the number of steps that have been added
    """

    def __init__(self, amaxes: torch.Tensor, used: torch.Tensor, steps: int):
        self.amaxes, self.used, self.steps = amaxes, used, steps

    def add(self, amax: torch.Tensor, rule: Delayed):
        """Adds a step. The tensor `used` is replaced, not changed. An amax of 0, of an expert without rows, leaves the scale
        as it is."""
        self._resize(rule.length)
        self.amaxes[self.steps % rule.length] = amax
        if self.steps % rule.interval == 0:
            chosen = self.amaxes.amax(0) if rule.algorithm == "max" else amax
            self.used = torch.where(chosen > 0, chosen * 2.0**rule.margin, self.used)
        self.steps += 1

    def _resize(self, length: int):
        """Keeps the newest amaxes."""
        before = len(self.amaxes)
        if before == length:
            return
        amaxes = torch.zeros(length, *self.amaxes.shape[1:])
        for step in range(max(0, self.steps - min(before, length)), self.steps):
            amaxes[step % length] = self.amaxes[step % before]
        self.amaxes = amaxes


class Sharers:
    """The ranks over which amaxes are the largest.

    group    ranks.Group of the layer, if its ranks share experts, else None
    more     a group of torch.distributed, or None
    seconds  the time limit of `more`
    local    the expert at each row of this rank's weights, of `count`
    moves    experts move between ranks, so histories have all experts
    """

    def __init__(self, group, more, seconds: float, local: list[int], count: int, moves: bool = False):
        self._group, self._seconds, self._count, self._moves = group, seconds, count, moves
        self._more = None if more is None else weakref.ref(more)  # graphs of autograd keep this, and must not keep a group
        self._local = torch.tensor(local, dtype=torch.int64)

    def largest(self, amaxes: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """For a history, from amaxes [E, 1] of this rank's experts. Collective. RuntimeError: fp8_group was destroyed."""
        if not amaxes or self._group is None and self._more is None and not self._moves:
            return amaxes
        own = torch.stack([amax.flatten() for amax in amaxes.values()])
        whole = torch.zeros(len(own), self._count)
        for row, expert in enumerate(self._local.tolist()):  # of a copied expert there may be several rows
            whole[:, expert] = torch.maximum(whole[:, expert], own[:, row])
        what = "exchange amaxes"
        if self._group is not None:
            self._group.all_reduce(whole, what, largest=True)
        if self._more is not None:
            more = self._more()
            if more is None:
                raise RuntimeError("the fp8_group of a step was destroyed (destroy_process_group) before its backward")
            collectives.all_reduce(whole, more, what, self._seconds, largest=True)
        kept = whole if self._moves else whole[:, self._local]
        return dict(zip(amaxes, kept.unsqueeze(-1)))

    def own(self, kept: torch.Tensor) -> torch.Tensor:
        """For a step of this rank, from a history."""
        return kept[self._local] if self._moves else kept


@dataclasses.dataclass
class Basis:
    """What the scales of a forward, and of what repeats it, are for."""

    kept: dict[str, torch.Tensor]  # the amaxes of histories, by name
    is_first: bool | None = None  # the scales follow from the step itself; None: not decided yet


class Scales:
    """What a layer keeps for its scales. Copied and pickled with it; its state_dict has state()."""

    def __init__(self):
        self._weights = WeightAmaxes()
        self._histories = {}
        self._remembered = collections.OrderedDict()  # description of a forward -> its Basis

    def of_weights(self, named: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        """Amaxes [E, 1] of weights [E, out, in], by their names in the layer, or [1, 1] of [out, in]."""
        return [self._weights.of(name, weight) for name, weight in named.items()]

    def begin(self, encodings: Encodings, sharers: Sharers | None, given, training: bool, asks_repeats) -> "Step":
        """A step whose forward gets the tensors `given`. A forward in `training` adds to histories, and so does its backward.
        One that repeats another does not, and has the scales of the last forward that got the same tensors:
        asks_repeats() -> bool, which takes as long as a small step with PyTorch before 2.1, is called if it matters."""
        if encodings.delayed is None:
            return Step(self, encodings)
        repeats = asks_repeats()
        key = tuple(map(_fingerprint, given))
        with _guard:
            basis = Basis({name: history.used for name, history in self._histories.items()})
            if not repeats:
                self._remembered[key] = basis
                self._remembered.move_to_end(key)
                if len(self._remembered) > _REMEMBERED:
                    self._remembered.popitem(last=False)
            elif self._remembered:
                basis = self._remembered.get(key, next(reversed(self._remembered.values())))
        return Step(self, encodings, basis, sharers, training, repeats)

    def add(self, amaxes: dict[str, torch.Tensor], rule: Delayed):
        """Adds what a forward or a backward found."""
        with _guard, torch.inference_mode(False), torch.no_grad():
            for name, amax in amaxes.items():
                if name not in self._histories:
                    empty = torch.zeros(rule.length, *amax.shape)
                    self._histories[name] = History(empty, torch.zeros(amax.shape), 0)
                self._histories[name].add(amax, rule)

    def count_backward(self):
        self._weights.count_backward()

    def state(self) -> torch.Tensor | None:
        """uint8: the histories, as torch.save() writes them; None: there are none."""
        if not self._histories:
            return None
        file = io.BytesIO()
        torch.save({name: vars(history) for name, history in self._histories.items()}, file)
        return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)

    def load(self, state: torch.Tensor | None, rule: Delayed | None, experts: int):
        """Replaces the histories by the histories in `state`, which state() returned. `rule`: of the layer, if it has one;
        `experts`: how many its histories are of. ValueError: something else, or histories of another length or number of
        experts."""
        found = {} if state is None else _read(state)
        with _guard:
            own = {len(each.amaxes) for each in self._histories.values()} if rule is None else {rule.length}
            given = {len(each.amaxes) for each in found.values()}
            if own and given and given != own:
                raise ValueError(f"amax_history_len of the state is {_list(given)}, expected {_list(own)}, that of the layer")
            for name, each in found.items():
                if each.used.numel() != experts:
                    raise ValueError(f"amaxes of {name} in the state are those of {each.used.numel()} experts, expected {experts}")
            self._histories = found
            self._remembered.clear()

    def forget(self):
        """Begins histories anew: the layer has other weights, and scales for its earlier rows could cut the new ones."""
        with _guard:
            self._histories = {}
            self._remembered.clear()

    def __getstate__(self):
        return {**self.__dict__, "_remembered": collections.OrderedDict()}


class Step:
    """The amaxes of one step, in the order of the library's layer: tensors that it scales by, and that it writes to. Both
    lists are empty without delayed scaling."""

    def __init__(self, scales: Scales, encodings: Encodings, basis=None, sharers=None, training=False, repeats=False):
        self._scales, self._encodings, self._basis, self._sharers = scales, encodings, basis, sharers
        self._training, self._repeats = training, repeats
        self._described, self._rows = [], set()
        self.used, self.found = [], []

    def run_on(self, make, shape):
        """Returns the layer of the library that runs this step: make(shape) or, if tensors that it rounds or all gradients have
        no history yet, the one for a first step."""
        layer = make(shape)
        if self._encodings.delayed is None:
            return layer
        self._describe(layer)
        basis, roles = self._basis, {self._role(name) for name, _, _ in self._described}
        if basis.is_first is None:
            basis.is_first = not roles <= set(basis.kept) or set(basis.kept) <= self._rows
        if basis.is_first:
            layer = make(dataclasses.replace(shape, encodings=self._encodings.first()))
            self._describe(layer)
        for name, shape_of, _ in self._described:
            kept = basis.kept.get(self._role(name))
            self.used.append(torch.zeros(shape_of) if kept is None else self._sharers.own(kept).reshape(shape_of))
            self.found.append(torch.zeros(shape_of))
        return layer

    def _describe(self, layer):
        self._described = layer.amaxes()
        self._rows = {name for name, _, of_forward in self._described if of_forward}

    def end(self, y: torch.Tensor):
        """After the forward, which returned y. Collective, and so is the end of each backward, as Sharers say."""
        if self._training and not self._repeats:
            self._add(lambda name: name in self._rows)
        if y.grad_fn is not None and self._encodings.facts.has_scales:
            y.grad_fn.register_hook(self._end_backward)  # after the backward of the layer

    def _end_backward(self, *_):
        self._scales.count_backward()
        if self._training:
            self._add(lambda name: self._role(name) not in self._rows)

    def _role(self, name: str) -> str:
        """The name of the history: rows that a backward computes again have the forward's history."""
        before = name.removesuffix(_AGAIN)
        return before if before in self._rows else name

    def _add(self, wanted):
        rule = self._encodings.delayed
        if rule is None:
            return
        names = [name for name, _, _ in self._described]
        amaxes = {name: amax.clone() for name, amax in zip(names, self.found) if wanted(name)}
        self._scales.add(self._sharers.largest(amaxes), rule)


def _fingerprint(tensor: torch.Tensor) -> tuple:
    """Returns a fingerprint of the shape and content of a contiguous bfloat16 or integer tensor."""
    flat = tensor.detach().reshape(-1)
    if flat.dtype != torch.bfloat16:
        return *tensor.shape, int((flat * torch.arange(1, len(flat) + 1)).sum())
    wide = flat.storage_offset() % 4 == 0 and len(flat) % 4 == 0
    return *tensor.shape, int(flat.view(torch.int64 if wide else torch.int16).sum())


def _read(state) -> dict[str, History]:
    try:
        content = ctypes.string_at(state.contiguous().data_ptr(), state.numel() * state.element_size())
        found = torch.load(io.BytesIO(content), weights_only=True)
        histories = {name: History(each["amaxes"], each["used"], int(each["steps"])) for name, each in found.items()}
        if any(len(each.amaxes) < 1 or each.amaxes.shape[1:] != each.used.shape for each in histories.values()):
            raise ValueError
        return histories
    except Exception:  # whatever the bytes are
        raise NoHistories(f"{EXTRA_STATE} has no histories of amaxes, expected what a layer with delayed scaling saved") from None


def _list(numbers) -> str:
    return ", ".join(map(str, sorted(numbers)))
