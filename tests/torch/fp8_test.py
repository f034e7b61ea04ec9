"""Layers whose products round to FP8 with a scale per tensor: values, gradients, ranks and errors, against plain PyTorch
that quantises."""

import copy
import types
import unittest
from unittest import mock

import core_jobs
import fp8
import sluice_torch
import torch
import torch.distributed as dist
from grouped import grouped
from moe_eager import BOUND, error
from encodings_test import EXPERTS, HIDDEN, INS, INTERMEDIATE, NAMES, OUTS, TOP_K, all_weights, batch, make, spread, step, worst
from sluice_torch import te
from sluice_torch.encodings import amax
from sluice_torch.recipe import DelayedScaling, Float8CurrentScaling, Format

# Delayed scaling: arguments of fp8.Rule, and those of a recipe.
RULES = {
    (): {},
    (3, "max", 1, 1): {"amax_history_len": 3, "margin": 1},
    (4, "most_recent", -0.5, 2): {"amax_history_len": 4, "amax_compute_algo": "most_recent", "margin": -0.5, "interval": 2},
}
LAST = {False: Format.E4M3, True: Format.HYBRID}


def several(steps=6):
    """Batches whose magnitudes grow and shrink, the third one without rows for expert 0."""
    for number in range(steps):
        x, ids, weights, dy = batch(seed=number)
        if number == 2:
            ids = torch.where(ids == 0, -1, ids)
        yield x * 2.0 ** (3 * (number % 3)), ids, weights, dy / 2.0 ** (4 * (number % 2))


class Fp8Test(unittest.TestCase):
    def test_values_and_gradients_are_those_of_rounded_factors(self):
        given = batch()
        expected = {each: each.layer(*given[:3], *all_weights(), given[3])[0] for each in fp8.ALL}
        for rounding, wanted in expected.items():
            for dtype in (torch.bfloat16, torch.float32):
                found = step(make(encode=rounding.encode(), dtype=dtype), *given)
                for name, a, b in zip(NAMES, found, wanted):
                    self.assertLess(error(a, b), BOUND, (rounding, name))
            for other in (None, "mxfp8", "mxfp8,grads=mxfp8e5m2"):  # so this test would notice
                self.assertGreater(worst(step(make(encode=other), *given), wanted), 2 * BOUND)
        narrow, hybrid = expected.values()
        self.assertGreater(worst(narrow[1:], hybrid[1:]), 2 * BOUND)

    def test_delayed_scales_come_from_earlier_steps(self):
        for number, (rule, arguments) in enumerate(RULES.items()):
            for rounding in fp8.ALL[number % 2 :]:
                layer = make(encode=DelayedScaling(fp8_format=LAST[rounding.hybrid], **arguments))
                rules = {name: fp8.Rule(*rule) for name in (*fp8.ROWS, *fp8.GRADS)}
                used, current = None, 0  # the first step has its own
                for given in several():
                    expected, found = rounding.layer(*given[:3], *all_weights(), given[3], used)
                    for name, a, b in zip(NAMES, step(layer, *given), expected):
                        self.assertLess(error(a, b), BOUND, (rule, rounding, name))
                    current = max(current, worst(rounding.layer(*given[:3], *all_weights(), given[3])[0], expected))
                    for name, each in rules.items():
                        each.add(found[name])
                    used = {name: each.used for name, each in rules.items()}
                self.assertGreater(current, 2 * BOUND)  # so this test would notice

    def test_a_step_has_the_same_bits_again_and_in_other_layers(self):
        given = batch()
        for encode in ("fp8e4m3,grads=fp8e5m2", "fp8e4m3:delayed"):
            layer = make(encode=encode)
            others = [make(encode=encode), copy.deepcopy(layer), make(encode=encode, keep="minimal")]
            for number in range(3):
                found = step(layer, *given)
                for other in others:
                    for name, a, b in zip(NAMES, found, step(other, *given)):
                        self.assertTrue(torch.equal(a, b), (encode, number, name))
            packed = make(encode=encode, pack_frozen=True).requires_grad_(False)
            packed.load_state_dict(layer.state_dict())
            for each in (layer, packed):
                each.eval()
            with torch.no_grad():
                y = layer(*given[:3])
                for other in (layer, packed, packed):
                    self.assertTrue(torch.equal(other(*given[:3]), y))
                self.assertTrue(torch.equal(layer.submit_forward(*given[:3]).wait(), y))

    def test_sorted_rows_are_rounded_too(self):
        x, ids, weights, _ = batch()
        rows, counts = x[ids[:, 0].argsort(stable=True)], torch.bincount(ids[:, 0], minlength=EXPERTS)
        first = torch.stack([ids[:, 0].sort().values, -torch.ones(len(x)).long()], 1)
        with torch.no_grad():
            found = make(encode="fp8e4m3").forward_sorted(rows, counts)
            self.assertTrue(torch.equal(found, make(encode="fp8e4m3")(rows, first, torch.ones_like(weights))))
            self.assertGreater(error(found, make().forward_sorted(rows, counts)), BOUND)

    def test_numbers_that_are_not_finite_are_left_out_of_amaxes(self):
        x, ids, weights, dy = batch()
        x[7, 3], x[9, 2] = float("nan"), float("inf")
        clean = ((ids != ids[7, 0]) & (ids != ids[7, 1])).all(1) & (torch.arange(len(x)) != 9)
        y = make(encode="fp8e4m3")(x, ids, weights)
        self.assertTrue(y[7].isnan().all() and y[9].isnan().all())
        others = torch.ones(len(x), dtype=torch.bool)
        others[[7, 9]] = False
        expected = fp8.Rounding().layer(*(each[others] for each in (x, ids, weights)), *all_weights(), dy[others])[0][0]
        self.assertTrue(y[others].isfinite().all() and clean.any())
        known = fp8.Rounding().layer(x.masked_fill(~x.isfinite(), 0), ids, weights, *all_weights(), dy)[1]["rows_x"]
        self.assertTrue(torch.isfinite(known).all())
        self.assertLess(error(y[others], expected), 4 * BOUND)  # amaxes of the rest of both rows count, too
        gate_up = all_weights()[0].float()
        gate_up[1, 2, 3], gate_up[2, 0, 0] = float("inf"), 3.4e38  # the latter is no finite bfloat16 number
        found = amax.amax_of(gate_up)
        self.assertTrue(torch.equal(found, fp8.amax_of(gate_up.bfloat16().double(), (1, 2)).float()[:, None]))
        self.assertTrue(torch.equal(amax.amax_of(torch.full((2, 1, 1), float("nan"))), torch.zeros(2, 1)))
        self.assertTrue(torch.equal(amax.amax_of(torch.zeros(2, 0, 4)), torch.zeros(2, 1)))

    def test_amaxes_of_weights_are_computed_once_per_change(self):
        layer, given, counted = make(encode="fp8e4m3"), batch(), []
        count = mock.patch.object(amax, "amax_of", side_effect=lambda weight, own=amax.amax_of: counted.append(1) or own(weight))
        with count:
            for calls in (2, 0):
                counted.clear()
                with torch.no_grad():
                    before = layer(*given[:3])
                self.assertEqual(len(counted), calls)
            with torch.no_grad():
                layer.down_weight.mul_(4)
                after = layer(*given[:3])
            self.assertEqual(len(counted), 1)
            self.assertTrue(torch.equal(after, 4 * before))  # cut, if it were the old one
            step(layer, *given)
            layer.down_weight.data.mul_(4)  # as optimizers do
            with torch.no_grad():
                self.assertTrue(torch.equal(layer(*given[:3]), 16 * before))
            layer.down_weight = torch.nn.Parameter(layer.down_weight.detach() / 16)
            with torch.no_grad():
                self.assertTrue(torch.equal(layer(*given[:3]), before))

    def test_main_grads_and_adapters(self):
        given = batch()
        layer = make(encode="fp8e4m3,grads=fp8e5m2")
        layer.down_weight.main_grad = torch.zeros(layer.down_weight.shape)
        y = layer(*given[:3])
        y.backward(given[3])
        expected = fp8.Rounding(hybrid=True).layer(*given[:3], *all_weights(), given[3])[0]
        self.assertLess(error(layer.down_weight.main_grad, expected[4]), BOUND)
        adapted = make(encode="fp8e4m3,grads=fp8e5m2", lora=sluice_torch.LoRAConfig(8))
        self.assertTrue(torch.equal(adapted(*given[:3]), y))  # B is 0
        adapted(*given[:3]).backward(given[3])
        self.assertGreater(adapted.down_lora_b.grad.abs().max(), 0)
        kept = []
        for keep in ("all", "minimal"):
            torch.manual_seed(3)
            adapted = make(encode="fp8e4m3:delayed", lora=sluice_torch.LoRAConfig(8), keep=keep)
            for _ in range(3):
                adapted.zero_grad(set_to_none=True)
                adapted(*given[:3]).backward(given[3])
            kept.append([adapted.down_lora_b.grad, adapted.gate_lora_b.grad])
        for a, b in zip(*kept):
            self.assertTrue(torch.equal(a, b))
            self.assertGreater(a.abs().max(), 0)

    def test_linear_layers_round_too(self):
        for kind in (te.TEColumnParallelLinear, te.TERowParallelLinear):
            check_linear(kind, None)

    def test_tuning_rounds_products(self):
        x, ids, weights, dy = batch()
        gate_up, down = all_weights()
        for encode in ("fp8e4m3", "fp8e4m3:delayed"):
            options = {"encode": encode, "threads": 2}
            tuning = sluice_torch.FineTuning(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, **grouped(**options))
            tuning.load_weights(gate_up[:, :INTERMEDIATE], gate_up[:, INTERMEDIATE:], down)
            layer = make(**options)
            for _ in range(3):
                y, grad = tuning.forward(x, ids, weights), tuning.backward(dy)["x"]
                expected = step(layer, x, ids, weights, dy)
                self.assertTrue(torch.equal(y, expected[0]) and torch.equal(grad, expected[1]), encode)

    def test_what_is_wrong_is_refused(self):
        def linear(**options):
            return te.TERowParallelLinear(64, 64, **options)

        for making, message in (
            (lambda: make(encode="fp4"), "encode: found 'fp4', expected an encoding"),
            (lambda: make(encode="fp8e4m3:late"), "encode: found 'fp8e4m3:late', expected an encoding"),
            (lambda: make(encode="fp8e4m3,grads=mxfp8"), "encode: grads=mxfp8, expected one like trained=fp8e4m3"),
            (lambda: make(encode="mxfp8,rows=fp8e4m3:delayed"), "encode: rows=fp8e4m3:delayed, expected one like trained=mxfp8"),
            (lambda: make(encode="fp8e4m3,sent=mxfp8"), "encode: sent=mxfp8, expected bf16 with rows=fp8e4m3: tokens would be sent only after"),
            (lambda: make(encode="sent=mxfp8"), "encode: sent=mxfp8, expected rows that products round in the same way"),
            (lambda: linear(encode="fp8e4m3:late"), "encode: found 'fp8e4m3:late'"),
            (lambda: make(encode="int8,fp8e4m3"), "encode: weights=int8 are codes, which products do not round"),
            (lambda: DelayedScaling(amax_history_len=0), "amax_history_len is 0, expected a whole number from 1 on"),
            (lambda: DelayedScaling(interval=0), "interval is 0, expected a whole number from 1 on"),
            (lambda: DelayedScaling(interval=1.5), "interval is 1.5, expected a whole number from 1 on"),
            (lambda: DelayedScaling(amax_compute_algo="mean"), "amax_compute_algo is 'mean', expected one of max, most_recent"),
            (lambda: DelayedScaling(margin="1"), "margin is '1', expected a number from -64 to 64"),
            (lambda: DelayedScaling(margin=float("nan")), "margin is nan, expected a number"),
            (lambda: DelayedScaling(reduce_amax=1), "reduce_amax is 1, expected True or False"),
            (lambda: DelayedScaling(fp8_format="hybrid"), "fp8_format is 'hybrid', expected Format.E4M3 or Format.HYBRID"),
            (lambda: DelayedScaling(fp8_mha=True), "fp8_mha is True, expected False"),
            (lambda: Float8CurrentScaling(fp8_dpa=True), "fp8_dpa is True, expected False"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                making()

    def test_sizes_need_not_be_multiples_of_blocks(self):
        layer = sluice_torch.MoE(40, 24, EXPERTS, TOP_K, encode="fp8e4m3", steps=sluice_torch.Steps(threads=2))
        x, ids, weights, dy = batch()
        given = x[:, :40], ids, weights, dy[:, :40]
        expected = fp8.Rounding().layer(*given[:3], layer.gate_up_weight, layer.down_weight, given[3])[0]
        for name, a, b in zip(NAMES, step(layer, *given), expected):
            self.assertLess(error(a, b), BOUND, name)

    def test_ranks_round_as_one_does(self):
        core_jobs.run_ranks(self, "ranks", 2)


def check_linear(kind, group):
    """Steps of this rank of a linear layer with sequence parallelism, with current and delayed scaling."""
    rank, size = (dist.get_rank(), dist.get_world_size()) if group else (0, 1)
    column = kind is te.TEColumnParallelLinear
    config = types.SimpleNamespace(sequence_parallel=True, params_dtype=torch.float32)
    weight = spread(OUTS, INS, seed=5)
    weight[0, 0] = 60  # the largest magnitude is not that of both ranks' parts
    for amaxes in ("", ":delayed"):
        for rounding in fp8.ALL:
            options = {"encode": rounding.encode(amaxes), "threads": 2 // size}
            layer = kind(INS, OUTS, config=config, bias=False, tp_group=group, timeout=20, **options)
            with torch.no_grad():
                layer.weight.copy_(weight.chunk(size, 0 if column else 1)[rank])
            used = None
            rules = fp8.Rule(), fp8.Rule()
            for number in range(3):
                x, dy = spread(80, INS, seed=6) * 4.0**number, spread(80, OUTS, seed=7) * 2.0**-number
                parts = (0, 1) if column else (1, 0)
                given = x.chunk(size, parts[0])[rank][:, None].clone().requires_grad_()
                y = layer(given)[0]
                dx, of_weight = torch.autograd.grad(y, [given, layer.weight], dy.chunk(size, parts[1])[rank][:, None])
                cuts = (parts[1], parts[0], 0 if column else 1)
                expected, found = linear_of(rounding, size, column, x, weight, dy, used)
                for a, whole, cut in zip((y[:, 0], dx[:, 0], of_weight), expected, cuts):
                    own = whole.chunk(size, cut)[rank]
                    assert a.shape == own.shape and error(a, own) < BOUND, (kind, rounding, amaxes, number, error(a, own))
                for rule, each in zip(rules, found):
                    rule.add(each)
                used = tuple(rule.used for rule in rules) if amaxes else None


def linear_of(rounding, size, column, x, weight, dy, used):
    """fp8.Rounding.linear() of ranks that scale their parts of the weight and, without histories, of rows or gradients by
    their own amaxes; a history has the largest of all ranks."""
    shards = weight.chunk(size, 0 if column else 1)
    cut_x, cut_dy = ([x] * size, dy.chunk(size, 1)) if column else (x.chunk(size, 1), [dy] * size)
    parts = [rounding.linear(*each, used) for each in zip(cut_x, shards, cut_dy)]
    y, dx, of_weight = zip(*(part for part, _ in parts))
    whole = [torch.cat(y, 1), sum(dx), torch.cat(of_weight, 0)] if column else [sum(y), torch.cat(dx, 1), torch.cat(of_weight, 1)]
    return whole, [torch.stack(each).max() for each in zip(*(found for _, found in parts))]


def ranks(rank, size):
    parts = [batch(tokens, seed) for seed, tokens in enumerate((70, 51))]
    world = dist.group.WORLD
    for amaxes in ("", ":delayed"):
        for more in ({}, {"tp": 2}, {"tp": 2, "tokens": "same"}, {"spare": 0}):
            rounding = fp8.Rounding(True, more.get("tp", 1))
            layer = make(encode=rounding.encode(amaxes), ep_group=world, threads=1, timeout=20, **more)
            same = more.get("tokens") == "same"
            own, given = (0, parts[:1]) if same else (rank, parts)
            first = len(parts[0][0]) * own
            tokens = slice(first, first + len(parts[own][0]))
            experts, part = layer.local_experts, layer.shape.part
            columns = slice(layer.shard * part, (layer.shard + 1) * part)
            used, rules = None, {name: fp8.Rule() for name in (*fp8.ROWS, *fp8.GRADS)}
            for number in range(3):
                scaled = [(x * 4.0**number, ids, weights, dy) for x, ids, weights, dy in given]
                x, ids, weights, dy = (torch.cat(each) for each in zip(*scaled))
                wanted, found = rounding.layer(x, ids, weights, *all_weights(), dy, used)
                gate_up = torch.cat([half[:, columns] for half in wanted[3][experts].chunk(2, 1)], 1)
                expected = [*(each[tokens] for each in wanted[:3]), gate_up, wanted[4][experts][..., columns]]
                for name, a, b in zip(NAMES, step(layer, *scaled[own]), expected):
                    assert error(a, b) < BOUND, (amaxes, more, number, name, error(a, b))
                for name, rule in rules.items():
                    rule.add(found[name])
                if amaxes:
                    used = {name: rule.used for name, rule in rules.items()}
    for kind in (te.TEColumnParallelLinear, te.TERowParallelLinear):
        check_linear(kind, world)


if __name__ == "__main__" and not core_jobs.main({"ranks": ranks}):
    unittest.main()
