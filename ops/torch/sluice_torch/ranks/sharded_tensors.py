"""Descriptions of what a rank has of a parameter, by which checkpoints join and divide it: Megatron's classes where megatron.core
can be imported, else ShardedTensor."""

import dataclasses
import typing

import torch


@dataclasses.dataclass
class ShardedTensor:
    """A rank's part of a parameter, for checkpoints: at `global_offset` in a tensor of `global_shape`. `replica` numbers
    the ranks that have the same part."""

    key: str
    data: torch.Tensor
    global_shape: tuple[int, ...]
    global_offset: tuple[int, ...]
    replica: int = 0


class Cut(typing.NamedTuple):
    """How ranks divide a dimension: it has `ranges` equal ranges, such as gate and up, and this rank part number `part` of `parts`
    of each."""

    dimension: int
    part: int
    parts: int
    ranges: int = 1


class Part(typing.NamedTuple):
    """A rank's part of a parameter: its cut, None where ranks have all of it; the first of its experts and the number of all, which
    are its first dimension; and the number of this rank among those that have the same."""

    cut: Cut | None
    experts: tuple[int, int] | None = None
    replica: int = 0


def describe(classes, key: str, parameter: torch.Tensor, part: Part, before: tuple, data_rank: int):
    """The description of a part of the parameter `key`. `before` are (axis, offset, count) of axes 0, 1, ... before the parameter's own,
    such as the axis of stacked layers.

    With Megatron's `classes` (megatron_groups.checkpoint_classes()) it is a ShardedTensor of Megatron, whose data is the parameter
    itself; where there are several ranges a ShardedTensorFactory, as Megatron has it for gate and up. Ranks must then share the experts
    evenly; `data_rank` is this rank's number among those with copies of the layer. Without `classes` (None) it is a ShardedTensor, or
    where there are several ranges a tuple of them, one for each. ValueError: other axes.
    """
    axes = [axis for axis, _, _ in before]
    if axes != list(range(len(axes))):
        raise ValueError(f"sharded_offsets have axes {axes}, expected {list(range(len(axes)))}: before the parameter's own")
    if classes is None:
        return _describe(key, parameter, part, before)
    return _describe_for_megatron(classes, key, parameter, part, before, data_rank)


def _describe(key: str, parameter: torch.Tensor, part: Part, before: tuple) -> ShardedTensor | tuple[ShardedTensor, ...]:
    shape, offset = list(parameter.shape), [0] * parameter.dim()
    if part.experts is not None:
        offset[0], shape[0] = part.experts
    cut = part.cut or Cut(0, 0, 1)
    if part.cut is not None:
        shape[cut.dimension] *= cut.parts
    made = []
    for number, each in enumerate(parameter.detach().chunk(cut.ranges, cut.dimension)):
        if part.cut is not None:
            offset[cut.dimension] = each.shape[cut.dimension] * (number * cut.parts + cut.part)
        place = tuple(first for _, first, _ in before) + tuple(offset)
        made.append(ShardedTensor(key, each, tuple(count for *_, count in before) + tuple(shape), place, part.replica))
    return made[0] if len(made) == 1 else tuple(made)


def _describe_for_megatron(classes, key: str, parameter: torch.Tensor, part: Part, before: tuple, data_rank: int):
    axes, own = len(before), []
    if part.experts is not None:
        first, count = part.experts
        own.append((axes, first // len(parameter), count // len(parameter)))
    replica = (0, part.replica, data_rank)
    cut = part.cut

    def make(data, replica_id, number, ranges):
        last = [] if cut is None else [(axes + cut.dimension, number * cut.parts + cut.part, ranges * cut.parts)]
        return classes.ShardedTensor.from_rank_offsets(key, data, *before, *own, *last, replica_id=replica_id, prepend_axis_num=axes)

    if cut is None or cut.ranges == 1 or cut.parts == 1:
        return make(parameter, replica, 0, 1)

    def build(key, data, replica_id, flattened_range=None):
        return [make(each, replica_id, number, cut.ranges) for number, each in enumerate(data.chunk(cut.ranges, cut.dimension))]

    def merge(parts):
        return torch.cat(list(parts), cut.dimension)

    return classes.ShardedTensorFactory(key, parameter, build, merge, replica)
