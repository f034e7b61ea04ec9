"""MoE.sharded_state_dict: what a layer with some ranks saves by its description, one with others loads by its own."""

import copy
import unittest

import core_jobs
import megatron_classes
import sluice_torch
import torch
import torch.distributed as dist
from grouped import grouped
from sluice_torch import LoRAConfig, Parallel, Steps

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 64, 64, 4, 2
LAYERS = {
    "trained": {},
    "adapters": {"lora": LoRAConfig(4)},
    "without a gate": {"activation": "relu2"},
    "codes": {"encode": "int4:g32z", "lora": LoRAConfig(4)},
}


def pieces(described):
    """The ShardedTensors of an entry, of whichever class."""
    if isinstance(described, megatron_classes.ShardedTensorFactory):
        return described.build()
    return described if isinstance(described, tuple) else [described]


def save(layer):
    """{key: whole tensor} of all ranks' parts. Parts that overlap are equal, and nothing is missing."""
    own = [(key, each.global_shape, each.global_offset, each.data.detach()) for key, all_of in layer.sharded_state_dict("a.").items() for each in pieces(all_of)]
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, own)
    whole, filled = {}, {}
    for key, shape, offset, data in (each for of_rank in every for each in of_rank):
        place = tuple(slice(first, first + size) for first, size in zip(offset, data.shape))
        assert key not in whole or whole[key].shape == shape, key
        tensor = whole.setdefault(key, torch.zeros(shape, dtype=data.dtype))
        there = filled.setdefault(key, torch.zeros(shape, dtype=torch.bool))
        assert torch.equal(tensor[place][there[place]], data[there[place]]), key
        tensor[place], there[place] = data, True
    assert all(there.all() for there in filled.values())
    return whole


def load(layer, whole):
    for key, all_of in layer.sharded_state_dict("a.").items():
        for each in pieces(all_of):
            place = tuple(slice(first, first + size) for first, size in zip(each.global_offset, each.data.shape))
            with torch.no_grad():
                each.data.copy_(whole[key][place])


def make(seed, **options):
    torch.manual_seed(seed)
    layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, **grouped(ep_group=dist.group.WORLD, threads=1, **options))
    with torch.no_grad():
        for parameter in layer.parameters():
            if parameter.dtype in (torch.bfloat16, torch.float32):
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed + dist.get_rank())))
    return layer


def check(kind, options, size):
    """From experts at each rank to shards of all of them, and back."""
    saved = make(1, **options)
    whole = save(saved)
    state = sluice_torch.state.full(saved)
    for key, tensor in whole.items():
        assert torch.equal(tensor, state[key.removeprefix("a.")]), (kind, key)
    assert set(whole) == {f"a.{name}" for name in state if name != "_extra_state"}, (kind, set(whole) ^ set(state))
    shards = make(7, tp=size, **options)
    load(shards, whole)
    for name, tensor in sluice_torch.state.full(shards).items():
        assert torch.equal(tensor, state[name]), (kind, name)
    again = save(shards)
    assert all(torch.equal(again[key], whole[key]) for key in whole) and set(again) == set(whole), kind
    back = make(9, **options)
    load(back, again)
    assert all(torch.equal(a, b) for a, b in zip(back.parameters(), saved.parameters())), kind


def own_classes(rank, size):
    for kind, options in LAYERS.items():
        check(kind, options, size)
    layer = make(1, tp=size)
    shards = layer.sharded_state_dict("a.", ((0, 2, 5),))
    gate, up = shards["a.gate_up_weight"]
    part = INTERMEDIATE // size
    assert gate.global_shape == up.global_shape == (5, EXPERTS, 2 * INTERMEDIATE, HIDDEN)
    assert (gate.global_offset, up.global_offset) == ((2, 0, part * rank, 0), (2, 0, INTERMEDIATE + part * rank, 0))
    assert gate.data.data_ptr() == layer.gate_up_weight.data_ptr()
    adapters = make(1, tp=size, lora=LoRAConfig(4)).sharded_state_dict()
    assert (adapters["gate_lora_a"].replica, adapters["gate_lora_b"].replica) == (rank, 0)
    for layer, offsets, error, message in (
        (make(1, spare=2), (), RuntimeError, "layer with places"),
        (layer, ((1, 0, 2),), ValueError, r"sharded_offsets have axes \[1\], expected \[0\]"),
    ):
        with unittest.TestCase().assertRaisesRegex(error, message):
            layer.sharded_state_dict("", offsets)


def megatrons_classes(rank, size):
    with megatron_classes.installed():
        for kind, options in LAYERS.items():
            check(kind, options, size)
        layer = make(1, tp=size)
        factory = layer.sharded_state_dict("a.", ((0, 2, 5),))["a.gate_up_weight"]
        assert factory.data is layer.gate_up_weight
        fragments = [each.rank_offsets for each in factory.build()]
        assert fragments == [((0, 2, 5), (1, 0, 1), (2, rank, 2 * size)), ((0, 2, 5), (1, 0, 1), (2, size + rank, 2 * size))], fragments
        assert torch.equal(factory.merge_fn([each.data for each in factory.build()]), layer.gate_up_weight)
        assert factory.replica_id == (0, 0, 0)
        whole = layer.sharded_state_dict()["down_weight"]
        assert whole.data is layer.down_weight
        odd = sluice_torch.MoE(HIDDEN, INTERMEDIATE, 3, TOP_K, parallel=Parallel(dist.group.WORLD), steps=Steps(threads=1))
        with unittest.TestCase().assertRaisesRegex(ValueError, "3 experts are shared by 2 ranks, expected a multiple"):
            odd.sharded_state_dict()
    uneven = sluice_torch.MoE(HIDDEN, INTERMEDIATE, 3, TOP_K, parallel=Parallel(dist.group.WORLD), steps=Steps(threads=1))
    state = sluice_torch.state.full(uneven)
    assert all(torch.equal(tensor, state[key.removeprefix("a.")]) for key, tensor in save(uneven).items())


class ShardedTest(unittest.TestCase):
    def test_states_go_between_experts_and_shards(self):
        core_jobs.run_ranks(self, "own_classes", 2)

    def test_states_go_between_experts_and_shards_by_megatrons_classes(self):
        core_jobs.run_ranks(self, "megatrons_classes", 2)

    def test_one_rank_has_everything(self):
        layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, steps=Steps(threads=1))
        for name, each in copy.deepcopy(layer).sharded_state_dict().items():
            self.assertEqual((each.global_shape, set(each.global_offset)), (tuple(getattr(layer, name).shape), {0}))


if __name__ == "__main__" and not core_jobs.main(globals()):
    unittest.main()
