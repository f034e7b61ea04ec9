"""What a rank has of the experts that it shares with other ranks (tensor parallelism inside experts).

Shard j of tp has intermediate columns [j I / tp, (j + 1) I / tp): those rows of the gate and of up, and those columns of
down. Tensors without an intermediate dimension are whole at each shard. The gradients of adapters among them are terms of a
sum over the shards; each shard gets the gradient of down_bias, which one of them adds.
"""

import torch

from .. import lora
from ..base.writes import write
from ..encodings import codes
from ..graphs import BIASES, WEIGHTS
from ..ranks.megatron_groups import checkpoint_classes, expert_data_rank
from ..ranks.sharded_tensors import Cut, Part, describe

# In a state_dict of a rank that has part of the experts: its first expert, the end of its range, and the total number;
# where ranks share experts, then the number of its shard, and tp.
EXPERT_RANGE = "expert_range"
# Parameters of a layer -> the dimension of intermediate columns, and whether it has the columns of all inputs of the activation:
# of gate and of up.
_SHARDED = {
    "gate_up_weight": (1, True),
    "gate_up_bias": (1, True),
    "gate_up_weight_scale": (1, True),
    "gate_up_weight_zero": (1, True),
    "gate_up_weight_scales": (1, True),
    "gate_up_weight_zeros": (1, True),
    "down_weight": (2, False),
    "down_weight_scales": (2, False),
    "down_weight_zeros": (2, False),
    "gate_lora_b": (1, False),
    "up_lora_b": (1, False),
    "down_lora_a": (2, False),
}
# All tensors of a layer whose first dimension is its experts.
OF_EXPERTS = (
    *WEIGHTS,
    *BIASES,
    *(f"{weight}_{kind}" for weight in WEIGHTS for kind in ("scale", "zero", "scales", "zeros", "factor")),
    *(f"{target}_lora_{side}" for target in lora.TARGETS for side in "ab"),
)
# Those inputs of a layer's program that each shard has whole.
WHOLE_INPUTS = ("gate_up_lora_a", "down_lora_b")


def describe_range(experts: list[int]) -> str:
    """The content of EXPERT_RANGE, for messages."""
    first, end, count, *part = experts
    return f"{first} to {end - 1} of {count}" + (f" (shard {part[0]} of {part[1]})" if part else "")


def is_whole(name: str) -> bool:
    """Whether each shard has all of this parameter."""
    return name not in _SHARDED


def _parts(name: str, inputs: int) -> tuple[int, int]:
    """The dimension of intermediate columns, and how often the parameter has them."""
    dimension, is_of_all = _SHARDED[name]
    return dimension, inputs if is_of_all else 1


def part_of(name: str, layer) -> Part:
    """What this rank's layer has of a tensor whose first dimension is its experts."""
    experts = layer.local_experts
    first = (experts[0] if experts else 0, layer.shape.experts)
    if layer.shape.tp == 1 or is_whole(name):
        return Part(None, first, layer.shard)
    dimension, count = _parts(name, layer.shape.inputs)
    return Part(Cut(dimension, layer.shard, layer.shape.tp, count), first)


def sizes_of_all(name: str, layer) -> tuple[int, ...]:
    """The sizes of a parameter with the experts of all ranks, whole."""
    sizes = [layer.shape.experts, *getattr(layer, name).shape[1:]]
    if not is_whole(name):
        sizes[_parts(name, layer.shape.inputs)[0]] *= layer.shape.tp
    return tuple(sizes)


def describe_layer(layer, prefix: str, before: tuple) -> dict:
    """MoE.sharded_state_dict() of a layer."""
    classes, count = checkpoint_classes(), layer._group.size // layer._group.tp
    if classes is not None and layer.shape.experts % count:
        raise ValueError(f"{layer.shape.experts} experts are shared by {count} ranks, expected a multiple for Megatron's checkpoints")
    data_rank = expert_data_rank()
    return {
        prefix + name: describe(classes, prefix + name, getattr(layer, name), part_of(name, layer), before, data_rank)
        for name in OF_EXPERTS
        if getattr(layer, name, None) is not None
    }


def take(name: str, whole: torch.Tensor, shard: int, tp: int, inputs: int = 2) -> torch.Tensor:
    """Shard number `shard` of a parameter of a layer with `inputs` matrices before its activation: a copy, or `whole`
    itself.

    ValueError: tp does not divide the intermediate size.
    """
    if tp == 1 or is_whole(name):
        return whole
    dimension, count = _parts(name, inputs)
    columns = whole.shape[dimension] // count
    if columns % tp:
        raise ValueError(f"tp is {tp}, expected a divisor of the intermediate size {columns} of {name}")
    parts = [part.chunk(tp, dimension)[shard] for part in whole.chunk(count, dimension)]
    return torch.cat(parts, dimension).contiguous()


def join(name: str, shards: list[torch.Tensor], inputs: int = 2) -> torch.Tensor:
    """The whole parameter from all its shards, in order. Of whole parameters it takes the first."""
    if len(shards) == 1 or is_whole(name):
        return shards[0]
    dimension, count = _parts(name, inputs)
    parts = [shard.chunk(count, dimension) for shard in shards]
    return torch.cat([part[number] for number in range(count) for part in parts], dimension)


def shards_of(layer: torch.nn.Module, name: str, whole: torch.Tensor) -> dict[str, torch.Tensor]:
    """The parameters of a layer for whole experts, of which it gets its shard: so scales are the same at all shards."""
    shape = layer.shape
    made = codes.tensors_of(shape.stored(name), name, whole)
    return {each: take(each, tensor, layer.shard, shape.tp, shape.inputs) for each, tensor in made.items()}


@torch.no_grad()
def set_expert(layer: torch.nn.Module, row: int, *matrices: torch.Tensor, is_shard: bool = False):
    """Sets the weights of row `row` of a layer's parameters: gate, if there is one, and up [I, H], and down [H, I], of a whole
    expert, of which the layer gets its shard, or of that shard. If the layer has codes, these are made of what is given."""
    *before, down = matrices
    for name, given in (("gate_up_weight", torch.cat(before)), ("down_weight", down)):
        if not is_shard:
            own = {each: tensor[0] for each, tensor in shards_of(layer, name, given.unsqueeze(0)).items()}
        elif getattr(layer, name).is_floating_point():  # other layers than MoE have no shape
            own = {name: given}
        else:
            own = codes.tensors_of(layer.shape.stored(name), name, given)
        for each, tensor in own.items():
            write(getattr(layer, each)[row], tensor)


def sums_adapters(shape, places) -> bool:
    """Whether gradients of adapters are sums, over shards or over copies of an expert (places: placement.Places, or None)."""
    return shape.tp > 1 or places is not None and places.have_copies


class Marked:
    """A layer whose parameters have attributes by which Megatron-style code knows how many ranks have the same numbers
    (docs/RANKS_IN_PYTORCH.md), whenever and however they come into it. It has `shape`, a graphs.LayerShape.

    allreduce              False: a gradient is complete when the layer's backward has ended, and other ranks of the group that
                           shares dense parameters have other experts or shards. So it is summed over replicas of the layer only.
    tensor_model_parallel  True: each of the tp ranks has a shard, which a norm counts; False: they have the same numbers
    """

    def register_parameter(self, name: str, param):
        super().register_parameter(name, param)
        self._mark()

    def _apply(self, *arguments, **options):
        super()._apply(*arguments, **options)
        self._mark()  # conversions may make other parameters
        return self

    def __setstate__(self, state: dict):
        super().__setstate__(state)
        self._mark()  # copies of parameters lose their attributes

    def _mark(self):
        shape = self.shape
        # shards that get the same tokens are no members of the group that shares dense parameters
        is_alone = shape.ranks == 1 or shape.ep == 1 and shape.tokens == "same"
        for name, parameter in self.named_parameters(recurse=False):
            parameter.allreduce = is_alone
            parameter.tensor_model_parallel = shape.tp > 1 and not is_whole(name)


class SumOverShards(torch.autograd.Function):
    """apply(gather, *tensors): tensors [E, ...] that all shards have whole; their gradients are summed over the shards,
    at all of them in the same order, so that the bits of the sums are the same. `gather` is Group.gather_shards. The
    gradients should be float32. Collective."""

    @staticmethod
    def forward(ctx, gather, *tensors):
        ctx.gather = gather
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx, *grads):
        wanted = [number for number in range(len(grads)) if ctx.needs_input_grad[1 + number]]
        columns = [grads[number].shape[1:].numel() for number in wanted]
        rows = [grads[number].reshape(-1, width) for number, width in zip(wanted, columns)]
        total = sum(ctx.gather(torch.cat(rows, dim=1)))
        found = [None] * len(grads)
        for number, each in zip(wanted, total.split(columns, dim=1)):
            found[number] = each.reshape(grads[number].shape)
        return (None, *found)
