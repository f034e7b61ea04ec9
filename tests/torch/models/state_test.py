"""States are converted between numbers of ranks, and to the original layout and back, bit by bit."""

import pathlib
import tempfile
import unittest
import unittest.mock

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from models import layouts
from sluice_torch import Parallel, Steps, state
from torch import nn

DTYPES = (torch.float32, torch.bfloat16)
ADAPTERS = (None, sluice_torch.LoRAConfig(3, 6.0), sluice_torch.LoRAConfig(2, 2.0, ("up",)))


class Model(nn.Module):
    """Two blocks of a layout, one of them under two names, and other parameters and buffers."""

    def __init__(self, layout, dtype, seed=1, experts=8):
        super().__init__()
        torch.manual_seed(seed)
        self.norm = nn.BatchNorm1d(64)
        self.layers = nn.ModuleList([layouts.LAYOUTS[layout](experts=experts), layouts.LAYOUTS[layout](experts=experts)])
        self.again = self.layers[0]
        self.to(dtype)
        with torch.no_grad():  # numbers that differ only in their bits
            self.norm.weight[0], self.norm.weight[1] = float("nan"), -0.0


# Adapters of which a rank has a shard where tp ranks share experts, with the dimension.
SHARDED = {"gate_lora_b": 1, "up_lora_b": 1, "down_lora_a": 2}


def make(layout, dtype, lora=None, group=None, seed=1, experts=8, tp=1):
    """A replaced model with adapters of random numbers, and the state that it had before."""
    model = Model(layout, dtype, seed, experts)
    original = {name: value.clone() for name, value in model.state_dict().items()}
    with unittest.mock.patch("sluice_torch.replacing.replace.try_replacement"):  # replace_test compares outputs and gradients
        sluice_torch.replace_moe(model, lora=lora, parallel=Parallel(group, tp=tp, timeout=20), steps=Steps(threads=1))
    whole = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if "lora" in name:
            layer, own = model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]
            shape = [experts, *parameter.shape[1:]]
            shape[SHARDED.get(own, 0)] *= tp if own in SHARDED else 1
            drawn = torch.randn(shape, generator=whole)[layer.first_expert : layer.first_expert + len(parameter)]
            part = drawn.chunk(tp, SHARDED[own])[layer.shard] if own in SHARDED else drawn
            parameter.data = part.to(dtype).contiguous()
    return model, original


def bits(value):
    return value.contiguous().reshape(-1).view(torch.uint8)


def assert_same(found, expected):
    assert set(found) == set(expected), set(found) ^ set(expected)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape, name
        assert torch.equal(bits(found[name]), bits(value)), name


def without_adapters(found):
    return {name: value for name, value in found.items() if "lora" not in name}


def cases():
    """Each layout without adapters in each type, and with each kind of adapters in one."""
    for number, layout in enumerate(layouts.LAYOUTS):
        for which, lora in enumerate(ADAPTERS):
            for dtype in DTYPES if lora is None else (DTYPES[(number + which) % 2],):
                yield layout, dtype, lora


def one_of_each_layout(first):
    """A case of each layout, with types and adapters in turn: another `first` pairs them otherwise."""
    kinds = len(DTYPES) + len(ADAPTERS) - 1
    found = list(cases())
    return [found[layout * kinds + (layout + first) % kinds] for layout in range(len(layouts.LAYOUTS))]


def round_trips(rank, size):
    check_round_trips(rank, size, 1, {2: one_of_each_layout(0) + one_of_each_layout(2), 3: one_of_each_layout(1)}[size])


def round_trips_of_shards(rank, size):
    check_round_trips(rank, size, 2, one_of_each_layout({2: 3, 4: 0}[size]))


def check_round_trips(rank, size, tp, chosen):
    """Cases at this many ranks against one process. All cases are chosen at some number of ranks."""
    for number, (layout, dtype, lora) in enumerate(chosen):
        print("case:", layout, dtype, lora, flush=True)
        model, original = make(layout, dtype, lora, dist.group.WORLD, experts=8, tp=tp)
        alone, _ = make(layout, dtype, lora, experts=8)
        whole = dict(alone.state_dict())
        assert_same(state.full(model), whole)
        found = state.to_original(model)
        assert_same(without_adapters(found), original)
        assert_same(state.from_original(model, found), model.state_dict())
        assert_same(state.from_original(alone, found), whole)
        only = number % size
        at_one = state.to_original(model, rank=only)
        assert (at_one is None) == (rank != only)
        if rank == only:
            assert_same(at_one, found)
        shards = [None] * size
        dist.all_gather_object(shards, dict(model.state_dict()))
        assert_same(state.reshard(shards[::-1], 1)[0], whole)
        assert_same(state.reshard([whole], size, tp=tp)[rank], model.state_dict())
        assert_same(state.reshard([whole], size, rank, tp=tp), model.state_dict())
        assert_same(state.reshard(state.reshard(shards, 5), size, rank, tp=tp), model.state_dict())
        assert_same(state.reshard(state.reshard(shards, 6, tp=3), size, rank, tp=tp), model.state_dict())
        other, other_original = make(layout, dtype, lora, dist.group.WORLD, seed=2, tp=tp)
        model.load_state_dict(state.from_original(model, other_original))
        assert_same(without_adapters(state.to_original(model)), other_original)
        model.load_state_dict(state.reshard([whole], size, rank, tp=tp))
        assert_same(state.full(model), whole)


class StateTest(unittest.TestCase):
    def test_round_trips_at_two_ranks(self):
        self.assertGreaterEqual(len(list(cases())), 20)
        core_jobs.run_ranks(self, "round_trips", 2, limit=400)

    def test_round_trips_at_three_ranks(self):
        core_jobs.run_ranks(self, "round_trips", 3, limit=400)

    def test_round_trips_of_shards_at_two_ranks(self):
        core_jobs.run_ranks(self, "round_trips_of_shards", 2, limit=400)

    def test_round_trips_of_shards_at_four_ranks(self):
        core_jobs.run_ranks(self, "round_trips_of_shards", 4, limit=400)

    def test_files_of_ranks_become_an_original_checkpoint_without_a_group(self):
        for layout, dtype, lora in one_of_each_layout(3) + one_of_each_layout(1):
            with self.subTest(layout=layout, dtype=dtype, lora=lora), tempfile.TemporaryDirectory() as folder:
                model, original = make(layout, dtype, lora)
                whole = dict(model.state_dict())
                for ranks, tp in ((1, 1), (2, 1), (3, 1), (8, 1), (2, 2), (8, 4), (6, 2)):
                    files = [pathlib.Path(folder) / f"{ranks}-{rank}.pt" for rank in range(ranks)]
                    for file, part in zip(files, state.reshard([whole], ranks, tp=tp)):
                        torch.save(part, file)
                    shards = [torch.load(file) for file in files]
                    if ranks > 1:
                        counts = [len(shard["layers.1." + self.of(layout) + "down_weight"]) for shard in shards]
                        self.assertEqual(sum(counts), 8 * tp)
                        self.assertLess(files[0].stat().st_size, pathlib.Path(folder, "1-0.pt").stat().st_size)
                    (again,) = state.reshard(shards, 1)
                    assert_same(again, whole)
                assert_same(without_adapters(state.to_original(model, again)), original)
                eager = Model(layout, dtype, seed=3)
                eager.load_state_dict(without_adapters(state.to_original(model, again)))
                assert_same(eager.state_dict(), original)

    def of(self, layout):
        return "experts.layer." if layout in ("stacked", "transposed", "gpt-oss") else "experts."

    def test_merged_adapters_change_the_weights_and_go(self):
        lora = sluice_torch.LoRAConfig(3, 6.0)
        for layout in layouts.LAYOUTS:
            model, original = make(layout, torch.float32, lora)
            before = dict(model.state_dict())
            merged = state.to_original(model, merge=True)
            self.assertEqual(set(merged), set(original))
            self.assertNotEqual([n for n in original if not torch.equal(bits(merged[n]), bits(original[n]))], [])
            assert_same(model.state_dict(), before)
            twin, _ = make(layout, torch.float32)
            twin.load_state_dict(state.from_original(twin, merged))
            x = torch.randn(2, 5, 64)
            with torch.no_grad():
                pair = [each.layers[1](x) for each in (model, twin)]
            found, wanted = (each[0] if isinstance(each, tuple) else each for each in pair)
            self.assertLess(((found - wanted).norm() / wanted.norm()).item(), 2e-2)

    def test_states_that_do_not_fit_are_refused_by_name(self):
        model, original = make("qwen3", torch.float32)
        whole = dict(model.state_dict())
        shards = state.reshard([whole], 3)
        gate = "layers.1.experts.4.gate_proj.weight"
        first = {f"layers.0.experts.0.{name}.weight" for name in ("gate_proj", "up_proj")}
        mixed = {name: value.bfloat16() if name in first else value for name, value in original.items()}
        fewer = {name: value for name, value in original.items() if name != gate}
        wrong = dict(original, **{gate: original[gate][1:]})
        halves = state.reshard([whole], 4, tp=2)
        moved = dict(halves[0], **{"layers.0.experts.expert_range": torch.tensor([0, 4, 8, 0, 4])})
        other = dict(shards[1], **{"layers.1.gate.weight": shards[1]["layers.1.gate.weight"] + 1})
        for message, call in (
            ("experts 0 to 2 of 8, 6 to 7 of 8 in layers.0.experts, expected all", lambda: state.reshard(shards[::2], 1)),
            ("experts 0 to 2 of 8, 0 to 2 of 8, 3 to 5 of 8", lambda: state.reshard(shards[:2] + shards[:1], 1)),
            ("experts 0 to 2 of 8 in", lambda: state.reshard(shards[:1], 1)),
            ("layers.1.gate.weight of state 1 differs", lambda: state.reshard([shards[0], other, shards[2]], 1)),
            ("again.experts.expert_range is in one of them only", lambda: state.reshard([shards[0], whole], 1)),
            (r"experts 0 to 3 of 8 \(shard 0 of 2\), 4 to 7 of 8 \(sh", lambda: state.reshard(halves[::2], 1)),
            (r"\(shard 0 of 2\), 0 to 3 of 8 \(shard 0 of 2\), 4", lambda: state.reshard(halves[:1] * 2 + halves[2:], 1)),
            (r"\(shard 0 of 4\), 0 to 3 of 8 \(shard 1 of 2\), 4", lambda: state.reshard([moved, *halves[1:]], 1)),
            ("experts 0 to 3 of 8 .* in layers.0.experts, expected all", lambda: state.reshard(halves[:3], 1)),
            ("tp is 2, expected a divisor of the 3 ranks", lambda: state.reshard([whole], 3, tp=2)),
            ("tp is 5, expected a divisor of the intermediate size 48", lambda: state.reshard([whole], 5, tp=5)),
            ("no states are given", lambda: state.reshard([], 2)),
            ("rank 3 of 3 ranks, expected 0 to 2", lambda: state.reshard(shards, 3, 3)),
            ("rank None of 0 ranks", lambda: state.reshard(shards, 0)),
            (r"has \[3\] experts, expected all 8", lambda: state.to_original(model, shards[0])),
            ("the state has no layers.0.experts.gate_up_weight", lambda: state.to_original(model, original)),
            (f"the original state has no {gate}", lambda: state.from_original(model, fewer)),
            (rf"{gate} of the original state has shape \[47, 64\]", lambda: state.from_original(model, wrong)),
            ("is torch.float32, but an earlier expert's is torch.bfloat16", lambda: state.from_original(model, mixed)),
        ):
            with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                call()


if __name__ == "__main__" and not core_jobs.main(globals()):
    unittest.main()
