"""Layers whose products round to MXFP8: values, gradients, ranks and errors, against plain PyTorch that quantises."""

import copy
import types
import unittest

import core_jobs
import mxfp8
import sluice_torch
import torch
import torch.distributed as dist
from decoder import Decoder
from grouped import grouped
from models import layouts
from moe_eager import BOUND, error, route
from sluice_torch import Steps, te

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 96, 64, 4, 2
NAMES = ("y", "x", "expert_weights", "gate_up_weight", "down_weight")
INS, OUTS = 64, 128


def spread(*shape, seed):
    """bfloat16 numbers whose magnitudes differ within blocks, so that formats and powers matter."""
    made = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=made) * torch.randn(shape, generator=made).exp()).bfloat16()


def all_weights():
    """Rows of the gate have other magnitudes, and those of up the inverse, so that squares matter."""
    gate_up, down = spread(EXPERTS, 2 * INTERMEDIATE, HIDDEN, seed=3), spread(EXPERTS, HIDDEN, INTERMEDIATE, seed=4)
    powers = 2.0 ** torch.randint(0, 14, (INTERMEDIATE, 1), generator=torch.Generator().manual_seed(8))
    return gate_up / 16 * torch.cat([1 / powers, powers]).bfloat16(), down / 16


def make(dtype=torch.bfloat16, **options):
    layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, dtype=dtype, **grouped(**{"threads": 2, **options}))
    part, shard = layer.shape.part, layer.shard
    gate_up, down = all_weights()
    columns = slice(shard * part, (shard + 1) * part)
    with torch.no_grad():
        for row, expert in enumerate(layer.local_experts):
            gate, up = gate_up[expert].chunk(2)
            layer.gate_up_weight[row] = torch.cat([gate[columns], up[columns]])
            layer.down_weight[row] = down[expert][:, columns]
    return layer


def batch(tokens=150, seed=1):
    ids, weights = route(tokens, EXPERTS, TOP_K, seed)
    return spread(tokens, HIDDEN, seed=seed), ids, weights, spread(tokens, HIDDEN, seed=seed + 100)


def step(layer, x, ids, weights, dy):
    """What mxfp8.Rounding.layer() returns."""
    leaves = [x.clone().requires_grad_(), weights.clone().requires_grad_(), layer.gate_up_weight, layer.down_weight]
    y = layer(leaves[0], ids, leaves[1])
    return [y.detach(), *torch.autograd.grad(y, leaves, dy)]


def worst(found, expected):
    return max(error(a.double(), b) for a, b in zip(found, expected))


class EncodingsTest(unittest.TestCase):
    def test_values_and_gradients_are_those_of_rounded_factors(self):
        given = batch()
        expected = {rounding: rounding.layer(*given[:3], *all_weights(), given[3]) for rounding in mxfp8.ALL}
        for rounding, wanted in expected.items():
            for dtype in (torch.bfloat16, torch.float32):
                found = step(make(dtype, encode=rounding.encode), *given)
                for name, a, b in zip(NAMES, found, wanted):
                    self.assertLess(error(a, b), BOUND, (rounding, name))
            for other, unwanted in expected.items():
                if other != rounding:  # so this test would notice
                    self.assertGreater(worst(found, unwanted), 2 * BOUND, (rounding, other))

    def test_a_step_has_the_same_bits_again_and_in_other_layers(self):
        given = batch()
        for rounding in mxfp8.ALL:
            options = {"encode": rounding.encode}
            layer = make(**options)
            first = step(layer, *given)
            for other in (layer, make(**options), copy.deepcopy(layer), make(**options, keep="minimal")):
                for a, b in zip(first, step(other, *given)):
                    self.assertTrue(torch.equal(a, b), rounding)
            packed = make(**options, pack_frozen=True).requires_grad_(False)
            with torch.no_grad():
                for other in (layer, packed, packed):
                    self.assertTrue(torch.equal(other(*given[:3]), first[0]))
                self.assertTrue(torch.equal(layer.submit_forward(*given[:3]).wait(), first[0]))

    def test_sorted_rows_are_rounded_too(self):
        x, ids, weights, _ = batch()
        rows, counts = x[ids[:, 0].argsort(stable=True)], torch.bincount(ids[:, 0], minlength=EXPERTS)
        with torch.no_grad():
            found = make(encode="mxfp8").forward_sorted(rows, counts)
            only = make(encode="mxfp8")(rows, torch.stack([ids[:, 0].sort().values, -torch.ones(len(x)).long()], 1),
                                           torch.ones_like(weights))
            self.assertTrue(torch.equal(found, only))
            self.assertGreater(error(found, make().forward_sorted(rows, counts)), BOUND)

    def test_main_grads_and_adapters(self):
        given = batch()
        rounding = mxfp8.Rounding(squares=True, hybrid=True)
        layer = make(encode=rounding.encode)
        layer.down_weight.main_grad = torch.zeros(layer.down_weight.shape)
        y = layer(*given[:3])
        y.backward(given[3])
        expected = rounding.layer(*given[:3], *all_weights(), given[3])
        self.assertLess(error(layer.down_weight.main_grad, expected[4]), BOUND)
        adapted = make(encode=rounding.encode, lora=sluice_torch.LoRAConfig(32))
        self.assertTrue(torch.equal(adapted(*given[:3]), y))  # B is 0
        adapted(*given[:3]).backward(given[3])
        self.assertGreater(adapted.down_lora_b.grad.abs().max(), 0)

    def test_linear_layers_round_too(self):
        for column in (te.TEColumnParallelLinear, te.TERowParallelLinear):
            for rounding in mxfp8.ALL:
                check_linear(column, rounding, None)

    def test_blocks_of_models_take_the_encodings(self):
        for encode in ("mxfp8,grads=mxfp8e5m2", "fp8e4m3:delayed,grads=fp8e5m2"):
            torch.manual_seed(2)
            model = Decoder(lambda: layouts.Qwen3Block(64, 64))
            sluice_torch.replace_moe(model, encode=encode, steps=Steps(threads=2))
            layers = [module for module in model.modules() if isinstance(module, sluice_torch.MoE)]
            self.assertEqual([layer.shape.encodings.text for layer in layers], [encode] * 2)
            self.assertIn(f"encode={encode!r}", repr(layers[0]))

    def test_tuning_rounds_products(self):
        x, ids, weights, dy = batch()
        tuning = sluice_torch.FineTuning(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, encode="mxfp8", steps=Steps(threads=2))
        gate_up, down = all_weights()
        tuning.load_weights(gate_up[:, :INTERMEDIATE], gate_up[:, INTERMEDIATE:], down)
        found, layer = tuning.forward(x, ids, weights), make(encode="mxfp8")
        self.assertTrue(torch.equal(found, layer(x, ids, weights)))
        self.assertTrue(torch.equal(tuning.backward(dy)["x"], step(layer, x, ids, weights, dy)[1]))

    def test_tokens_that_are_sent_as_codes_give_the_same_results(self):
        x, ids, weights, dy = batch()
        for rounding in mxfp8.ALL:
            want = step(make(encode=rounding.encode), x, ids, weights, dy)
            sending = rounding.encode + (",sent=mxfp8:floor" if rounding.floor else ",sent=mxfp8")
            for more in ({}, {"keep": "minimal"}):
                found = step(make(encode=sending, **more), x, ids, weights, dy)
                for name, a, b in zip(NAMES, found, want):
                    if name != "gate_up_weight":
                        self.assertTrue(torch.equal(a, b), (rounding, name))
                # rounded along a row, then down a column, of the numbers that its codes stand for
                sent = rounding.layer(rounding.rows(x), ids, weights, *all_weights(), dy)[3]
                self.assertLess(error(found[3], sent), BOUND, rounding)
            frozen = make(encode=sending).requires_grad_(False)
            self.assertTrue(torch.equal(frozen(x, ids, weights), want[0]))
        self.assertIn("sent=mxfp8", repr(make(encode="mxfp8,sent=mxfp8")))
        tuning = sluice_torch.FineTuning(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, encode="mxfp8,sent=mxfp8", steps=Steps(threads=2))
        gate_up, down = all_weights()
        tuning.load_weights(gate_up[:, :INTERMEDIATE], gate_up[:, INTERMEDIATE:], down)
        self.assertTrue(torch.equal(tuning.forward(x, ids, weights), make(encode="mxfp8")(x, ids, weights)))

    def test_what_is_wrong_is_refused(self):
        def linear(ins, outs, **options):
            return te.TEColumnParallelLinear(ins, outs, **options)

        for making, message in (
            (lambda: make(encode="mxfp3"), r"encode: found 'mxfp3', expected an encoding \(bf16, int8, .*\), or PLACE=ENCODING"),
            (lambda: make(encode=7), "encode is 7, expected a text, such as 'int4:g64,rows=int8', or a recipe"),
            (lambda: make(encode="mxfp8,grads=e5m2"), "encode: grads=e5m2, expected one of bf16, int8, fp8e4m3,"),
            (lambda: make(encode="grads=mxfp8e5m2"), "encode: grads=mxfp8e5m2, expected one like trained=bf16"),
            (lambda: make(encode="int8,mxfp8"), "encode: weights=int8 are codes, which products do not round"),
            (lambda: sluice_torch.MoE(80, 64, 4, 2, encode="mxfp8"), "hidden: 80, expected a multiple of 32 for mxfp8"),
            (
                lambda: sluice_torch.MoE(64, 48, 4, 2, encode="mxfp8:32x32"),
                "intermediate columns of a rank: 48, expected a multiple of 32 for mxfp8:32x32",
            ),
            (
                lambda: make(encode="mxfp8", lora=sluice_torch.LoRAConfig(8)),
                "rank of adapters: 8, expected a multiple of 32 for mxfp8",
            ),
            (lambda: linear(80, 64, encode="mxfp8"), "columns of x at a rank: 80, expected a multiple of 32 for mxfp8"),
            (lambda: linear(64, 80, encode="mxfp8"), "columns of y at a rank: 80, expected a multiple of 32 for mxfp8"),
            (lambda: linear(64, 64, encode="int8"), "encode='int8': weights of a linear layer are trained"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                making()

    def test_arguments_of_earlier_versions_say_how_they_are_spelled_now(self):
        for options, message in (
            ({"weights": "int4"}, "MoE has no argument 'weights' any more: weights='int4' is encode='int4,rows=int8' now"),
            ({"precision": "mxfp8-32x32"}, "precision='mxfp8-32x32' is encode='mxfp8:32x32' now"),
            ({"group": 32}, "group=32 is encode='int4:g32, int4:g64 or int4:g128' now"),
            ({"zeros": True}, "zeros=True is encode='int4:z, int4:g32z"),
            ({"backward": "int8"}, "backward='int8' is encode='grads=int8' now"),
            ({"fp8_format": "hybrid"}, "is encode='fp8e4m3,grads=fp8e5m2 or mxfp8,grads=mxfp8e5m2' now"),
            ({"exponent": "floor"}, "exponent='floor' is encode='mxfp8:floor' now"),
            ({"fp8_dispatch": True}, "fp8_dispatch=True is encode='mxfp8,sent=mxfp8' now"),
            ({"recipe": "delayed"}, "recipe='delayed' is encode='fp8e4m3:delayed' now"),
            ({"recipe": sluice_torch.recipe.DelayedScaling()}, "is encode=recipe now"),
            ({"presision": "mxfp8"}, "MoE has no argument 'presision', expected some of hidden, intermediate, num_experts, top_k, "),
        ):
            with self.assertRaises(TypeError) as refused:
                make(**options)
            self.assertIn(message, str(refused.exception))
        with self.assertRaisesRegex(TypeError, r"TEColumnParallelLinear has no argument 'precision' any more"):
            te.TEColumnParallelLinear(64, 64, precision="mxfp8")

    def test_ranks_round_as_one_does(self):
        core_jobs.run_ranks(self, "ranks", 2)

    def test_ranks_with_other_recipes_are_refused_at_all_of_them(self):
        core_jobs.run_ranks(self, "other_recipes", 2)


def check_linear(kind, rounding, group):
    """A step of this rank of a linear layer with sequence parallelism."""
    rank, size = (dist.get_rank(), dist.get_world_size()) if group else (0, 1)
    column = kind is te.TEColumnParallelLinear
    config = types.SimpleNamespace(sequence_parallel=True, params_dtype=torch.float32)
    options = {"encode": rounding.encode, "threads": 2 // size, "timeout": 20}
    layer = kind(INS, OUTS, config=config, bias=False, tp_group=group, **options)
    weight, x, dy = spread(OUTS, INS, seed=5), spread(80, INS, seed=6), spread(80, OUTS, seed=7)
    with torch.no_grad():
        layer.weight.copy_(weight.chunk(size, 0 if column else 1)[rank])
    parts = (0, 1) if column else (1, 0)
    given = x.chunk(size, parts[0])[rank][:, None].clone().requires_grad_()
    y = layer(given)[0]
    dx, of_weight = torch.autograd.grad(y, [given, layer.weight], dy.chunk(size, parts[1])[rank][:, None])
    cuts = (parts[1], parts[0], 0 if column else 1)
    for a, whole, cut in zip((y[:, 0], dx[:, 0], of_weight), rounding.linear(x, weight, dy), cuts):
        expected = whole.chunk(size, cut)[rank]
        assert a.shape == expected.shape and error(a, expected) < BOUND, (kind, rounding, error(a, expected))
    again = layer(given)[0]
    assert torch.equal(again, y)


def ranks(rank, size):
    parts = [batch(tokens, seed) for seed, tokens in enumerate((70, 51))]
    world = dist.group.WORLD
    for rounding in mxfp8.ALL:
        options = {"encode": rounding.encode, "ep_group": world, "threads": 1, "timeout": 20}
        for more in ({}, {"tp": 2}, {"tp": 2, "tokens": "same"}, {"spare": 2}):
            layer = make(**options, **more)
            same = more.get("tokens") == "same"
            own, given = (0, parts[:1]) if same else (rank, parts)
            x, ids, weights, dy = (torch.cat(each) for each in zip(*given))
            wanted = rounding.layer(x, ids, weights, *all_weights(), dy)
            first = len(parts[0][0]) * own
            tokens = slice(first, first + len(parts[own][0]))
            experts, part = layer.local_experts, layer.shape.part
            columns = slice(layer.shard * part, (layer.shard + 1) * part)
            gate_up = torch.cat([half[:, columns] for half in wanted[3][experts].chunk(2, 1)], 1)
            expected = [*(each[tokens] for each in wanted[:3]), gate_up, wanted[4][experts][..., columns]]
            found = step(layer, *parts[own])
            for name, a, b in zip(NAMES, found, expected):
                if "spare" in more and name.endswith("_weight"):
                    continue  # copies of an expert share its rows, in blocks of their own
                assert error(a, b) < BOUND, (rounding, more, name, error(a, b))
            for a, b in zip(found, step(layer, *parts[own])):
                assert torch.equal(a, b), (rounding, more)
        for kind in (te.TEColumnParallelLinear, te.TERowParallelLinear):
            check_linear(kind, rounding, world)


def other_recipes(rank, size):
    given = batch(seed=rank)
    options = {"ep_group": dist.group.WORLD, "threads": 1, "timeout": 20}
    right, plain = make(encode="mxfp8", **options), make(**options)
    mx, square = {"encode": "mxfp8"}, {"encode": "mxfp8:32x32"}
    for zero, one, names in (
        ({}, {"encode": "mxfp8,grads=mxfp8e5m2"}, ("moe_layer_mxfp8_mxfp8e5m2", "moe_layer")),
        (mx, {"encode": "mxfp8:floor"}, ("moe_layer_mxfp8_floor", "moe_layer_mxfp8")),
        (square, mx, ("moe_layer_mxfp8", "moe_layer_mxfp8_32x32")),
    ):
        message = "rank 1 is about to make layer '{}', but rank 0 is about to make layer '{}'".format(*names)
        check_refused(lambda: step(make(**(one if rank else zero), **options), *given), message)
    first = step(right, *given)
    step(plain, *given)
    message = (
        "rank 1 runs entry 'forward' of context {} of its workspace (program '{}'), but rank 0 of context {} (program '{}')"
    )
    programs = (0, "moe_layer_mxfp8"), (1, "moe_layer")
    check_refused(lambda: step(right if rank else plain, *given), message.format(*programs[0], *programs[1]))
    for a, b in zip(first, step(right, *given)):
        assert torch.equal(a, b)
    recipe = sluice_torch.recipe.MXFP8BlockScaling()
    with sluice_torch.fp8_autocast(enabled=rank == 0, fp8_recipe=recipe):
        check_refused(lambda: step(plain, *given), message.format(*programs[1], *programs[0]))
    with sluice_torch.fp8_autocast(fp8_recipe=recipe):
        for a, b in zip(first, step(plain, *given)):
            assert torch.equal(a, b)
    wrong = sluice_torch.MoE(HIDDEN, 48, EXPERTS, TOP_K, **grouped(**options))
    with sluice_torch.fp8_autocast(enabled=rank == 0, fp8_recipe=recipe):
        check_refused(lambda: wrong(*given[:3]), "intermediate columns of a rank: 48, expected a multiple of 32 for mxfp8")


def check_refused(call, message):
    try:
        call()
    except (RuntimeError, ValueError) as refused:
        assert message in str(refused), str(refused)
    else:
        raise AssertionError(f"not refused: {message}")


if __name__ == "__main__" and not core_jobs.main({"ranks": ranks, "other_recipes": other_recipes}):
    unittest.main()
