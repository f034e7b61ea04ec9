"""Places of experts: layers whose experts can move between ranks, and have copies at several of them (Parallel.spare).

Such a layer has num_experts + spare places, which are dealt over the ranks as experts of other layers are. Its
`placement` says which expert each place has, and its parameters are the weights of this rank's places. Rows of an expert are
dealt evenly to its places (docs/SHARING.md, "Experts with several places"); copies of an expert have equal weights,
because each gets the sum of all their gradients.
"""

import functools

import torch
import torch.distributed as dist

from ..base import library
from ..base.writes import write
from ..graphs import LayerShape
from ..ranks import collectives
from ..ranks.ranks import dealt


class Places:
    """Which expert is at each place of a layer, and which places each expert has."""

    def __init__(self, shape: LayerShape, expert_at):
        """ValueError: not one expert of the layer per place, or an expert without a place."""
        expert_at = [int(expert) for expert in expert_at]
        if len(expert_at) != shape.places:
            raise ValueError(f"placement has {len(expert_at)} places, expected {shape.places} for {shape.experts} experts")
        self.expert_at = expert_at
        self.of = [[] for _ in range(shape.experts)]  # places of each expert, in order
        for place, expert in enumerate(expert_at):
            if not 0 <= expert < shape.experts:
                raise ValueError(f"place {place} has expert {expert}, expected 0 to {shape.experts - 1}")
            self.of[expert].append(place)
        for expert, places in enumerate(self.of):
            if not places:
                raise ValueError(f"expert {expert} has no place, expected at least one of {shape.places}")
        self.ranges = [dealt(shape.places, shape.ep, group) for group in range(shape.ep)]
        self.group_at = [group for group, places in enumerate(self.ranges) for _ in places]

    @property
    def have_copies(self) -> bool:
        return len(self.expert_at) > len(self.of)

    def copies(self, group: int) -> torch.Tensor:
        """[E] the number of places that the expert at each place of a group of ranks has."""
        return torch.tensor([len(self.of[self.expert_at[place]]) for place in self.ranges[group]], dtype=torch.long)

    def rows_by_group(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows that each group of ranks gets of rows [experts]."""
        each = [rows[expert].item() / len(self.of[expert]) for expert in self.expert_at]
        return torch.tensor([sum(each[place] for place in places) for places in self.ranges], dtype=torch.float64)


def choose(shape: LayerShape, rows: torch.Tensor, old: Places | None = None) -> Places:
    """Places that even out the rows [experts] which each expert is expected to get: spare places go to the experts with
    the most rows per place, then places, the largest first, to the group of ranks with the fewest rows. Experts that are
    in a group already keep their place in it."""
    library.load()
    expert_at = torch.ops.sluice.choose_places(rows.double(), shape.places, shape.ep).tolist()
    if old is None:
        return Places(shape, expert_at)
    for places in old.ranges:
        rest = [expert_at[place] for place in places]
        stays = []
        for place in places:
            if old.expert_at[place] in rest:
                rest.remove(old.expert_at[place])
                stays.append(place)
        for place in places:
            expert_at[place] = old.expert_at[place] if place in stays else rest.pop(0)
    return Places(shape, expert_at)


def nearest(old: Places, new: Places, place: int) -> int:
    """The old place from which a new place gets its expert: one in its own group if there is one; copies take turns."""
    places = old.of[new.expert_at[place]]
    near = [each for each in places if old.group_at[each] == new.group_at[place]]
    return near[0] if near else places[place % len(places)]


class Mover:
    """Sends what this rank has of experts to the ranks that have, or get, the same experts: the ranks of the other groups with
    this rank's shard. All methods are collective."""

    def __init__(self, group, shape: LayerShape, places: Places):
        self.places, self.here, self.seconds = places, group.rank // shape.tp, group.timeout
        self.group = group.levels[-1] if group.key else None
        if self.group is not None:
            members = dist.get_process_group_ranks(self.group)
            self.peers = members if len(members) == shape.ep else members[group.shard :: shape.tp]

    def row(self, place: int) -> int:
        """Returns where a place of this rank is in the rank's tensors [E, ...]."""
        return place - self.places.ranges[self.here].start

    def _send(self, tensor: torch.Tensor, to: int, tag: int):
        return functools.partial(dist.isend, tensor.contiguous(), self.peers[to], group=self.group, tag=tag)

    def _receive(self, tensor: torch.Tensor, of: int, tag: int):
        return functools.partial(dist.irecv, tensor, self.peers[of], group=self.group, tag=tag)

    def _finish_sums(self, steps: list, tensors: list[torch.Tensor]):
        collectives.finish_all(steps, tensors, self.group, "sum gradients of copies", self.seconds)

    @torch.no_grad()
    def copy(self, sources: list[int], tensors: list[torch.Tensor]):
        """Place p of each tensor [E, ...] gets what place sources[p] had."""
        for tensor in tensors:
            made, steps = torch.empty_like(tensor, memory_format=torch.contiguous_format), []
            for place, source in enumerate(sources):
                to, of = self.places.group_at[place], self.places.group_at[source]
                if to == of == self.here:
                    made[self.row(place)] = tensor[self.row(source)]
                elif to == self.here:
                    steps.append(self._receive(made[self.row(place)], of, place))
                elif of == self.here:
                    steps.append(self._send(tensor[self.row(source)], to, place))
            collectives.finish_all(steps, [tensor], self.group, "move experts", self.seconds)
            write(tensor, made)

    @torch.no_grad()
    def add_copies(self, tensors: list[torch.Tensor]):
        """Each place of tensors [E, ...] gets the sum over the places of its expert, in float32: the same bits at all."""
        sums, steps = [], []
        for number, tensor in enumerate(tensors):
            for expert, places in enumerate(self.places.of):
                own = [self.row(place) for place in places if self.places.group_at[place] == self.here]
                if len(places) == 1 or not own:
                    continue
                holders = sorted({self.places.group_at[place] for place in places})
                root, tag = holders[expert % len(holders)], expert * len(tensors) + number
                terms = {self.here: tensor[own].float().sum(0)}
                for holder in holders if root == self.here else ():
                    if holder != root:
                        terms[holder] = torch.empty_like(terms[root])
                        steps.append(self._receive(terms[holder], holder, tag))
                if root != self.here:
                    steps.append(self._send(terms[self.here], root, tag))
                sums.append((tensor, own, holders, root, tag, terms))
        self._finish_sums(steps, tensors)
        steps = []
        for _, _, holders, root, tag, terms in sums:
            if root == self.here:
                total = terms[holders[0]]
                for holder in holders[1:]:
                    total += terms[holder]
                terms[root] = total
                steps += [self._send(total, holder, tag) for holder in holders if holder != root]
            else:
                terms[root] = torch.empty_like(terms[self.here])
                steps.append(self._receive(terms[root], root, tag))
        self._finish_sums(steps, tensors)
        for tensor, own, _, root, _, terms in sums:
            for row in own:
                write(tensor[row], terms[root])


class SumOverCopies(torch.autograd.Function):
    """apply(mover, terms, main_grads, *weights): weights [E, ...], whose gradients are summed over the copies of each
    expert. Where terms[i] is a tensor, the op adds the gradient of weight i to it instead of returning it, and the sum is
    added to main_grads[i]. Its backward is collective."""

    @staticmethod
    def forward(ctx, mover, terms, main_grads, *weights):
        ctx.set_materialize_grads(False)
        ctx.mover, ctx.terms, ctx.main_grads = mover, terms, main_grads
        return tuple(weight.view_as(weight) for weight in weights)

    @staticmethod
    def backward(ctx, *grads):
        grads = [grad if term is None else term for term, grad in zip(ctx.terms, grads)]
        wanted = [number for number, grad in enumerate(grads) if grad is not None and ctx.needs_input_grad[3 + number]]
        # gradients that autograd passes may have other users
        sums = {number: grads[number] if ctx.terms[number] is not None else grads[number].clone() for number in wanted}
        ctx.mover.add_copies(list(sums.values()))
        for number in [number for number in wanted if ctx.terms[number] is not None]:
            ctx.main_grads[number].add_(sums.pop(number))
            ctx.terms[number].zero_()  # for another backward through this graph
        return (None, None, None, *(sums.get(number) for number in range(len(grads))))


def sum_over_copies(mover: Mover, weights: list, main_grads: list) -> tuple[list, list]:
    """The weights and main_grads that a layer with copies of experts passes to the op: the gradients of what requires one
    are summed over copies."""
    numbers = [number for number, weight in enumerate(weights) if weight.requires_grad]
    if not numbers:
        return weights, main_grads
    grads = main_grads or [None] * len(weights)
    terms = [None if grad is None else torch.zeros_like(grad) for grad in grads]
    picked = [[each[number] for number in numbers] for each in (terms, grads, weights)]
    weights = list(weights)
    for number, weight in zip(numbers, SumOverCopies.apply(mover, *picked[:2], *picked[2])):
        weights[number] = weight
    return weights, terms if main_grads else []


def move_experts(layer: torch.nn.Module, expert_at, optimizers):
    """MoE.place()."""
    if layer.places is None:
        raise ValueError("the experts of this layer cannot move: make it with Parallel(spare=0) or more")
    moved = tensors_of(layer, optimizers)
    new = failure = None
    try:
        new = Places(layer.shape, expert_at)
    except ValueError as error:
        failure = error
    said = layer._group.gather_objects((str(failure) if failure else None, new and new.expert_at, list(moved)), "move experts")
    if failure is not None:
        raise failure
    for rank, (failed, places, names) in enumerate(said):
        if failed is not None:
            raise ValueError(f"rank {rank}: {failed}")
        if places != said[0][1]:
            place = next(place for place, pair in enumerate(zip(places, said[0][1])) if pair[0] != pair[1])
            raise ValueError(
                f"rank {rank} gives another placement than rank 0: place {place} has expert {places[place]}, but "
                f"{said[0][1][place]} at rank 0"
            )
        if names != said[0][2]:
            other = ", ".join(sorted(set(names) ^ set(said[0][2])))
            raise ValueError(f"ranks 0 and {rank} have other tensors to move: only one of them has {other}")
    sources = [nearest(layer.places, new, place) for place in range(layer.shape.places)]
    layer.mover().copy(sources, list(moved.values()))
    layer.set_places(new)


def make_copies_equal(layer: torch.nn.Module):
    """Gives all copies of an expert the parameters of the first. Collective."""
    if layer.places is not None and layer.places.have_copies:
        firsts = [layer.places.of[expert][0] for expert in layer.places.expert_at]
        layer.mover().copy(firsts, list(layer.parameters(recurse=False)))


def tensors_of(layer: torch.nn.Module, optimizers) -> dict[str, torch.Tensor]:
    """What moves with the experts of a layer: its parameters, and the tensors of their shapes that belong to them."""
    found = {}
    for name, parameter in layer.named_parameters(recurse=False):
        of = {"": parameter, ".grad": parameter.grad, ".main_grad": getattr(parameter, "main_grad", None)}
        for number, optimizer in enumerate(optimizers):
            of.update({f".state[{number}].{key}": value for key, value in optimizer.state.get(parameter, {}).items()})
        for key, value in of.items():
            if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                found[name + key] = value
    return found
