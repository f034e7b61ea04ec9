"""Converts states of models whose experts are layers of Sluice: between numbers of ranks, and to and from the layout
of the model before replace_moe().

A rank's state_dict() has only its own experts, and their range in "expert_range"; with tp above 1 only its shard of them
(sharding.py), whose number and tp follow the range. A whole state has all experts, like the state of a model without ep_group:
each expert once, in order, where a rank's state of a layer with `spare` has the experts of its places, and their "placement". An
original state has the names and shapes of the checkpoint of the original model.

    on files, without a process group       whole = reshard(shards, 1)[0]; original = to_original(model, whole)
    in a job, collectively                  whole = full(model); original = to_original(model)
    into a replaced model, at each rank     model.load_state_dict(from_original(model, original))

All of them copy bits, except when they merge adapters. They do not convert states of optimizers, and leave out histories
of amaxes (delayed scaling), which begin again.
"""

import torch
import torch.distributed as dist

from . import graphs, lora
from .encodings import codes
from .encodings.scaling import EXTRA_STATE
from .graphs import BIASES, WEIGHTS
from .layers import placement, sharding
from .layers.moe import PLACEMENT, MoE
from .layers.sharding import EXPERT_RANGE, OF_EXPERTS, describe_range
from .replacing.structure import Layout, to_gate_first, to_in_turn


def reshard(shards, ranks: int, rank: int | None = None, *, tp: int = 1, spare: int | None = None):
    """The states of `ranks` ranks, `tp` of which share an expert, from the states of any number of ranks with any tp, in
    any order; with `rank` only that rank's. With `spare` they are for layers with that many spare places.

    ValueError: experts or shards of them are missing or repeated, or other tensors differ; the message names them.
    """
    if tp < 1 or ranks % tp:
        raise ValueError(f"tp is {tp}, expected a divisor of the {ranks} ranks")
    if ranks < 1 or rank is not None and not 0 <= rank < ranks:
        raise ValueError(f"rank {rank} of {ranks} ranks, expected 0 to {max(ranks, 1) - 1}")
    whole = _join(list(shards))
    if ranks == 1 and spare is None:
        return whole if rank is not None else [whole]
    parts = [_part(whole, each, ranks, tp, spare) for each in (range(ranks) if rank is None else [rank])]
    return parts if rank is None else parts[0]


def full(model: torch.nn.Module, rank: int | None = None) -> dict | None:
    """The whole state of a model. Collective over the ranks of each layer that has several.

    With `rank`, a global one, only that process gets it and needs the memory for it; others get None.
    """
    state = dict(model.state_dict())
    for name, layer in model.named_modules(remove_duplicate=False):
        if not isinstance(layer, MoE) or layer._group.size == 1 and layer.places is None:
            continue
        prefix = f"{name}." if name else ""
        for extra in (EXPERT_RANGE, PLACEMENT, EXTRA_STATE):
            state.pop(prefix + extra, None)
        for own in OF_EXPERTS:
            if prefix + own in state:
                state[prefix + own] = gather(own, state[prefix + own], layer, rank)
    return state if rank is None or rank == dist.get_rank() else None


def to_original(model: torch.nn.Module, state: dict | None = None, *, merge: bool = False, rank: int | None = None):
    """The state in the form before replace_moe(): of `state`, a whole state of the model, or of full(model, rank).

    Adapters, which an original model does not have, keep their names; with `merge` they are added to the weights. Weights
    of codes become bfloat16.
    ValueError: a state that is not whole.
    """
    state = full(model, rank) if state is None else dict(state)
    if state is None:
        return None
    for place, prefix, layout, layer in replaced_layers(model):
        state.pop(prefix + EXTRA_STATE, None)
        weights = {own: state.pop(prefix + own) for own in OF_EXPERTS if prefix + own in state}
        if prefix + EXPERT_RANGE in state or any(len(each) != layout.count for each in weights.values()):
            counts = sorted({len(each) for each in weights.values()})
            raise ValueError(f"{prefix}gate_up_weight has {counts} experts, expected all {layout.count}: call reshard first")
        missing = [own for own in (*WEIGHTS, *layer.shape.biases) if own not in weights]
        if missing:
            raise ValueError(f"the state has no {prefix}{missing[0]}")
        gate_up, down, *biases = (weights.pop(own) for own in (*WEIGHTS, *layer.shape.biases))
        gate_up, down = (
            codes.numbers_of(layer.shape.stored(own), each, *(weights.pop(name) for name in layer.shape.beside(own)))
            for own, each in zip(WEIGHTS, (gate_up, down))
        )
        if merge and layer.lora is not None:
            gate_up, down = gate_up.clone(), down.clone()
            lora.merge_adapters(layer.lora, weights, gate_up, down)
            weights = {}
        state.update(_in_layout(place, layout, gate_up, down, *biases))
        state.update({prefix + own: each for own, each in weights.items()})
    return state


def from_original(model: torch.nn.Module, original) -> dict:
    """The state of this rank's replaced model from the mapping `original`, the state of the original model. Only this
    rank's experts are read, and only its shard of them is kept. Adapters that `original` does not have are taken from the model.

    ValueError: weights that are missing or of another shape.
    """
    state = {}
    taken = set()
    for place, prefix, layout, layer in replaced_layers(model):
        taken.update(_names(place, layout))
        for own, each in zip((*WEIGHTS, *BIASES), _out_of_layout(original, place, layout, layer)):
            made = sharding.shards_of(layer, own, each) if layer.shape.has_codes else {own: each}
            state.update({prefix + name: tensor for name, tensor in made.items()})
        for own, parameter in layer.named_parameters(recurse=False):
            if prefix + own in state:
                continue
            taken.add(prefix + own)
            state[prefix + own] = parameter.detach()
            if prefix + own in original:
                given = original[prefix + own][layer.local_experts]
                state[prefix + own] = sharding.take(own, given, layer.shard, layer.shape.tp, layer.shape.inputs).clone()
        if layer._group.size > 1:
            state[prefix + EXPERT_RANGE] = torch.tensor(layer._experts_here())
        if layer.places is not None:
            state[prefix + PLACEMENT] = layer.placement.clone()
    for name in original.keys():
        if name not in taken:
            state[name] = original[name]
    return state


def replaced_layers(model: torch.nn.Module):
    """(path. of the block or module, path. of its layer, Layout, layer) of each replaced block, under all of its
    names."""
    for path, module in model.named_modules(remove_duplicate=False):
        layout = getattr(module, "layout", None)
        if isinstance(layout, Layout):
            place = f"{path}." if path else ""
            own = layout.experts or "layer"
            yield place, f"{place}{own}.", layout, module.get_submodule(own)


def _names(place: str, layout: Layout) -> list[str]:
    if layout.stacked:
        return [place + part for part in layout.parts]
    return [f"{place}{layout.experts}.{expert}.{part}" for expert in range(layout.count) for part in layout.parts]


def _in_layout(place: str, layout: Layout, *own: torch.Tensor) -> dict:
    """What _out_of_layout() reads, from gate_up, down and their biases of all experts."""
    if layout.stacked:
        own = list(own)
        if layout.in_turn:
            own[::2] = [to_in_turn(each, 1) for each in own[::2]]
        made = [each.transpose(1, 2).contiguous() if layout.transposed and each.dim() == 3 else each for each in own]
        return dict(zip(_names(place, layout), made))
    (gate_up, down), made = own, []
    for expert in range(layout.count):
        made += [part.clone() for part in (*gate_up[expert].split(layout.intermediate), down[expert])]
    return dict(zip(_names(place, layout), made))


def _out_of_layout(original, place: str, layout: Layout, layer: MoE):
    """gate_up and down of this rank's experts, and their biases: its shard of them, or all where codes are made of them."""
    local, shape = layer.local_experts, layer.shape
    shard, tp = (0, 1) if shape.has_codes else (layer.shard, shape.tp)
    columns, hidden = layout.intermediate, layout.hidden
    names = _names(place, layout)
    if layout.stacked:
        shapes = [(layout.count, shape.inputs * columns, hidden), (layout.count, hidden, columns)]
        of_biases = [size[:2] for size in shapes[: len(layout.biases)]]
        shapes = [(size[0], size[2], size[1]) if layout.transposed else size for size in shapes]
        own = [_take(original, *pair)[local] for pair in zip(names, shapes + of_biases)]
        own = [each.transpose(1, 2) if layout.transposed and each.dim() == 3 else each for each in own]
        if layout.in_turn:
            own[::2] = [to_gate_first(each, 1) for each in own[::2]]
        own = [sharding.take(name, each, shard, tp, shape.inputs) for name, each in zip((*WEIGHTS, *BIASES), own)]
        return [each.clone().contiguous() for each in own]
    gate_up = down = None
    shapes = [(columns, hidden)] * shape.inputs + [(hidden, columns)]
    part = columns // tp
    own = slice(shard * part, (shard + 1) * part)
    for row, expert in enumerate(local):
        of_expert = names[len(shapes) * expert : len(shapes) * (expert + 1)]
        *before, out = (_take(original, *pair) for pair in zip(of_expert, shapes))
        if gate_up is None:
            gate_up = torch.empty(len(local), shape.inputs * part, hidden, dtype=before[0].dtype)
            down = torch.empty(len(local), hidden, part, dtype=out.dtype)
        if {each.dtype for each in before} != {gate_up.dtype} or out.dtype != down.dtype:
            raise ValueError(f"{of_expert[0]} is {before[0].dtype}, but an earlier expert's is {gate_up.dtype}")
        torch.cat([each[own] for each in before], out=gate_up[row])
        down[row] = out[:, own]
    return gate_up, down


def _take(original, name: str, shape: tuple) -> torch.Tensor:
    if name not in original:
        raise ValueError(f"the original state has no {name}")
    found = original[name].detach()
    if tuple(found.shape) != shape:
        raise ValueError(f"{name} of the original state has shape {list(found.shape)}, expected {list(shape)}")
    return found


def _join(shards: list[dict]) -> dict:
    """The whole state from the states of all ranks."""
    if not shards:
        raise ValueError("no states are given, expected those of all ranks")
    shards = [_without_histories(shard) for shard in shards]
    for number, shard in enumerate(shards):
        if set(shard) != set(shards[0]):
            name = sorted(set(shard) ^ set(shards[0]))[0]
            raise ValueError(f"state {number} and state 0 have other tensors: {name} is in one of them only")
    prefixes = {name[: -len(EXPERT_RANGE)] for name in shards[0] if name.rpartition(".")[2] == EXPERT_RANGE}
    whole = {}
    for name, first in shards[0].items():
        prefix, _, own = name.rpartition(".")
        prefix += "." if prefix else ""
        if prefix in prefixes and own in OF_EXPERTS:
            groups = _in_order(shards, prefix, name)
            inputs = _inputs(shards[0], prefix) or 2
            whole[name] = torch.cat([_join_shards(name, own, [shard[name] for shard in group], inputs) for group in groups])
        elif own != EXPERT_RANGE or prefix not in prefixes:
            _check_same(name, [shard[name] for shard in shards])
            whole[name] = first
    return _without_copies(whole)


def _without_histories(state: dict) -> dict:
    """A state in which layers have no histories of amaxes, which are of one rank's rows."""
    own = {prefix + EXTRA_STATE for prefix in [name[: -len(WEIGHTS[0])] for name in state if name.rpartition(".")[2] == WEIGHTS[0]]}
    return {name: value for name, value in state.items() if name not in own}


def _without_copies(state: dict) -> dict:
    """A state with one expert after the other, from one of all places. ValueError: copies of an expert that differ."""
    for prefix in [name[: -len(PLACEMENT)] for name in state if name.rpartition(".")[2] == PLACEMENT]:
        if not _inputs(state, prefix):
            continue
        expert_at = state.pop(prefix + PLACEMENT).tolist()
        for name in [prefix + own for own in OF_EXPERTS if prefix + own in state]:
            firsts = [expert_at.index(expert) for expert in range(max(expert_at) + 1)]
            for place, expert in enumerate(expert_at):
                if not _same_bits(state[name][place], state[name][firsts[expert]]):
                    raise ValueError(
                        f"{name}: expert {expert} at place {place} differs from that at place {firsts[expert]}: are they of "
                        "one step?"
                    )
            state[name] = state[name][firsts]
    return state


def _join_shards(name: str, own: str, shards: list[torch.Tensor], inputs: int) -> torch.Tensor:
    if sharding.is_whole(own):
        _check_same(name, shards, "were codes made of each shard by itself?" if "_weight_" in own else _OF_STEPS)
    return sharding.join(own, shards, inputs)


def _in_order(shards: list[dict], prefix: str, name: str) -> list[list[dict]]:
    """The states of the shards, in order, of each range of experts, in order."""
    ranges = [shard[prefix + EXPERT_RANGE].tolist() for shard in shards]
    tp = ranges[0][4] if len(ranges[0]) > 3 else 1
    order, groups, place = sorted(range(len(shards)), key=lambda each: ranges[each]), [], 0
    for number, each in enumerate(order):
        first, end, experts, *shard = ranges[each]
        starts = number % tp == 0
        expected = place if starts else ranges[order[number - 1]][0]
        if (
            first != expected
            or not starts and end != place
            or experts != ranges[0][2]
            or end - first != len(shards[each][name])
            or (shard or [0, 1]) != [number % tp, tp]
        ):
            raise ValueError(_not_all(ranges, prefix))
        place = end
        groups += [[]] if starts else []
        groups[-1].append(shards[each])
    if place != ranges[0][2] or len(shards) % tp:
        raise ValueError(_not_all(ranges, prefix))
    return groups


def _not_all(ranges: list, prefix: str) -> str:
    given = ", ".join(describe_range(each) for each in sorted(ranges))
    return f"states have experts {given} in {prefix.rstrip('.') or 'the layer'}, expected all, each once"


_OF_STEPS = "are they of one step?"


def _check_same(name: str, tensors: list, question: str = _OF_STEPS):
    for number, tensor in enumerate(tensors):
        if not _same_bits(tensor, tensors[0]):
            raise ValueError(f"{name} of state {number} differs from that of state 0: {question}")


def _same_bits(a, b) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return a is b or bool(a == b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a is b or torch.equal(*(each.contiguous().reshape(-1).view(torch.uint8) for each in (a, b)))


def _part(whole: dict, rank: int, ranks: int, tp: int, spare: int | None) -> dict:
    part = {}
    for name, value in whole.items():
        prefix, _, own = name.rpartition(".")
        prefix += "." if prefix else ""
        inputs = _inputs(whole, prefix) if own in OF_EXPERTS else None
        if inputs is None:
            part[name] = value
            continue
        shape = graphs.LayerShape(1, tp, len(value), 1, ranks, tp=tp, spare=spare)
        own_places = shape.places_of(rank)
        if spare is None:
            experts = value[own_places.start : own_places.stop]
        else:
            expert_at = placement.choose(shape, torch.ones(len(value))).expert_at
            experts = value[expert_at[own_places.start : own_places.stop]]
            part[prefix + PLACEMENT] = torch.tensor(expert_at, dtype=torch.int32)
        part[name] = sharding.take(own, experts, rank % tp, tp, inputs).clone()  # a view would be saved with its whole storage
        shard = [rank % tp, tp] if tp > 1 else []
        if ranks > 1:
            part[prefix + EXPERT_RANGE] = torch.tensor([own_places.start, own_places.stop, shape.places, *shard])
    return part


def _inputs(state: dict, prefix: str) -> int | None:
    """The matrices before the activation in the weights of a layer of Sluice: gate_up [E, 2I, H], or [E, I, H] without a
    gate, and down [E, H, I]. None: these are others."""
    gate_up, down = (state.get(prefix + own) for own in WEIGHTS)
    if gate_up is None or down is None or gate_up.dim() != 3 or down.dim() != 3:
        return None
    experts, hidden, intermediate = down.shape
    return next((n for n in (1, 2) if tuple(gate_up.shape) == (experts, n * intermediate, hidden)), None)


def gather(name: str, own: torch.Tensor, layer: MoE, rank: int | None) -> torch.Tensor | None:
    """A whole parameter of a layer, from all its ranks, at `rank` or at all."""
    shape = layer.shape
    if shape.ranks == 1:
        return _first_places(layer, own)
    counts = [len(shape.places_of(each)) for each in range(shape.ranks)]
    padded = torch.zeros(max(counts), *own.shape[1:], dtype=own.dtype)
    padded[: len(own)] = own
    found = layer._group.gather(padded, f"gather {name}", rank)
    if found is None:
        return None
    groups = [found[first : first + shape.tp] for first in range(0, shape.ranks, shape.tp)]
    whole = [_join_shards(name, name, group, shape.inputs)[:count] for group, count in zip(groups, counts[:: shape.tp])]
    return _first_places(layer, torch.cat(whole))


def _first_places(layer: MoE, placed: torch.Tensor) -> torch.Tensor:
    return placed if layer.places is None else placed[[places[0] for places in layer.places.of]]
