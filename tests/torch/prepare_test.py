"""prepare() and prepare_backward(): programs and packed weights are ready before the first step, and nothing else changes."""

import unittest

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from decoder import Decoder
from grouped import grouped
from models import layouts
from moe_eager import route
from sluice_torch import cache
from sluice_torch.lora import LoRAConfig

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 128, 128, 8, 2
KINDS = ("bf16", "int8,rows=int8", "int4:g32,rows=int8", "int4:g64z", "fp8e4m3:128x128", "mxfp4", "nvfp4")


def make(encode="bf16", seed=0, frozen=True, **options):
    torch.manual_seed(seed)
    options = {"pack_frozen": True, **options}
    layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, encode=encode, **grouped(threads=2, **options))
    for name, parameter in layer.named_parameters():
        if frozen and "lora" not in name:
            parameter.requires_grad_(False)
        if "lora_b" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return layer


def batch(tokens=200, seed=1):
    """x, ids, weights and dy; with these tokens each expert has rows."""
    made = torch.Generator().manual_seed(seed)
    ids, weights = route(tokens, EXPERTS, TOP_K, seed)
    x, dy = (torch.randn(tokens, HIDDEN, generator=made).bfloat16() for _ in range(2))
    return x.requires_grad_(), ids, weights.requires_grad_(), dy


def packed(layer) -> list[int]:
    """Bytes of each program's packed weights."""
    return [held.op.packed_bytes() for held in layer._layers.values()]


def infer(layer):
    x, ids, weights, _ = batch()
    with torch.no_grad():
        return [layer(x, ids, weights)]


def train(layer):
    x, ids, weights, dy = batch()
    y = layer(x, ids, weights)
    trained = [each for each in layer.parameters() if each.requires_grad]
    return [y, *torch.autograd.grad(y, [x, weights, *trained], dy)]


PREPARATIONS = {
    "prepare": (lambda layer, **options: layer.prepare(**options), infer),
    "submit_prepare": (lambda layer, **options: layer.submit_prepare(**options).wait(), infer),
    "prepare_backward": (lambda layer, **options: layer.prepare_backward(**options), train),
    "submit_prepare_backward": (lambda layer, **options: layer.submit_prepare_backward(**options).wait(), train),
}


class PrepareTest(unittest.TestCase):
    def assert_ready(self, layer, step, expected):
        """The next step compiles nothing, packs nothing, and has the bits of `expected`."""
        compiled, before = cache.compilations(), packed(layer)
        found = step(layer)
        self.assertEqual((cache.compilations(), packed(layer)), (compiled, before))
        self.assertEqual(len(found), len(expected))
        for a, b in zip(found, expected):
            self.assertTrue(torch.equal(a, b))

    def test_the_first_step_packs_nothing_and_has_the_same_bits(self):
        for encode in KINDS:
            for name, (prepare, step) in PREPARATIONS.items():
                with self.subTest(encode=encode, call=name):
                    other = make(encode, lora=LoRAConfig(4))
                    expected = step(other)
                    layer = make(encode, lora=LoRAConfig(4))
                    prepare(layer)
                    # codes that bfloat16 rows multiply have no packed form
                    self.assertTrue(min(packed(layer)) > 0 or encode in KINDS[3:])
                    self.assertEqual(packed(layer), packed(other))  # a step that reaches each expert packs as much
                    self.assert_ready(layer, step, expected)

    def test_the_requested_gradients_choose_the_program(self):
        layer = make()
        layer.prepare_backward(x=True, expert_weights=False)
        x, ids, weights, dy = batch()
        layer(x, ids, weights.detach()).backward(dy)
        self.assertEqual(len(layer._layers), 1)
        train(layer)
        self.assertEqual(len(layer._layers), 2)
        with self.assertRaisesRegex(RuntimeError, "prepare_backward without a required gradient"):
            layer.prepare_backward(x=False, expert_weights=False)

    def test_trained_weights_and_their_gradients_stay(self):
        layer = make(frozen=False)
        main = torch.full(layer.down_weight.shape, -0.0)
        layer.down_weight.main_grad = main
        before = {name: each.detach().clone() for name, each in layer.named_parameters()}
        version = main._version
        layer.prepare_backward()
        self.assertEqual(packed(layer), [0])
        for name, each in layer.named_parameters():
            self.assertTrue(torch.equal(each, before[name]), name)
            self.assertIsNone(each.grad, name)
        self.assertTrue(torch.signbit(main).all() and main._version == version)
        compiled = cache.compilations()
        train_with_main_grad(layer)
        self.assertEqual((cache.compilations(), len(layer._layers)), (compiled, 1))

    def test_a_change_after_it_takes_effect(self):
        layer, other = make(), make(seed=5)
        layer.prepare()
        layer.prepare_backward()
        layer.load_state_dict(other.state_dict())
        for step in (infer, train):
            for a, b in zip(step(layer), step(other)):
                self.assertTrue(torch.equal(a, b))

    def test_few_tokens_per_step_reach_all_experts(self):
        x, ids, weights, _ = batch()
        for most in (1, 3):  # 4 tokens reach 8 experts
            layer, other = make(max_tokens=most), make(max_tokens=most)
            layer.prepare()
            with torch.no_grad():
                for rows in torch.arange(200).split(most):
                    other(x[rows], ids[rows], weights[rows])
            self.assertEqual(packed(layer), packed(other))

    def test_memory_is_taken_for_the_given_tokens(self):
        sizes = {}
        for tokens in (0, 4096):
            sluice_torch.clear_cache()
            layer = make()
            layer.prepare_backward(tokens)
            sizes[tokens] = sluice_torch.memory()["saved_bytes"]
            del layer
        self.assertGreater(sizes[4096], sizes[0] + 4096 * 2 * TOP_K * INTERMEDIATE)

    def test_rows_of_preparations_are_not_counted(self):
        layer = make(spare=0)
        layer.prepare()
        self.assertEqual(layer.take_rows_seen().sum(), 0)

    def test_layers_with_scales_of_steps_are_refused(self):
        layer = sluice_torch.MoE(64, 64, 4, 2, encode="fp8e4m3:delayed", steps=sluice_torch.Steps(threads=2))
        for prepare in (layer.prepare, layer.prepare_backward):
            with self.assertRaisesRegex(RuntimeError, "prepare with encode='fp8e4m3:delayed', whose steps have scales of their own"):
                prepare()

    def test_other_numbers_of_tokens_are_refused(self):
        layer = make(max_tokens=100)
        for call in (layer.prepare, layer.prepare_backward):
            for tokens in (-1, 101, 1.5, True):
                with self.assertRaisesRegex(ValueError, f"tokens is {tokens}, expected a number from 0 to max_tokens, which is 100"):
                    call(tokens)
        layer.prepare(100)

    def test_submitted_ones_run_in_the_order_of_all_steps(self):
        layer = make()
        x, ids, weights, _ = batch()
        first = layer.submit_prepare()
        with torch.no_grad():
            y = layer.submit_forward(x, ids, weights)
        second = layer.submit_prepare_backward()
        second.wait()
        self.assertTrue(first.done() and y.done() and second.done())
        self.assertTrue(torch.equal(y.wait(), infer(make())[0]))
        self.assert_ready(layer, train, train(make()))

    def test_fine_tuning(self):
        torch.manual_seed(1)
        options = {"lora": LoRAConfig(4), "depth": 1, "threads": 2, "pack_frozen": True, "encode": "int8,rows=int8"}
        tuning = sluice_torch.FineTuning(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, **grouped(**options))
        for call in (tuning.prepare, tuning.submit_prepare_backward):
            with self.assertRaisesRegex(RuntimeError, "weights of 8 experts are not loaded"):
                call()
        up = torch.randn(EXPERTS, INTERMEDIATE, HIDDEN)
        tuning.load_weights(up, up, up.transpose(1, 2))
        x, ids, weights, dy = (each.detach() for each in batch())
        tuning.submit_prepare()
        tuning.submit_prepare_backward(tokens=200)
        with self.assertRaisesRegex(RuntimeError, "prepare while 2 submitted steps are pending"):
            tuning.prepare()
        self.assertIsNone(tuning.wait())
        self.assertIsNone(tuning.wait())
        before, compiled = packed(tuning.layer), cache.compilations()
        self.assertEqual((len(before), tuning.saved), (2, 0))
        tuning.forward(x, ids, weights, save=False)
        tuning.forward(x, ids, weights)
        tuning.backward(dy)
        self.assertEqual((packed(tuning.layer), cache.compilations()), (before, compiled))

    def test_the_layers_of_a_replaced_model(self):
        torch.manual_seed(2)
        model = Decoder(layouts.Qwen3Block)
        options = {"encode": "int8,rows=int8", "lora": LoRAConfig(4), "pack_frozen": True, "threads": 2}
        sluice_torch.replace_moe(model, **grouped(**options))
        layers = [module for module in model.modules() if isinstance(module, sluice_torch.MoE)]
        pending = [layer.submit_prepare_backward(tokens=9) for layer in layers]
        for each in pending:
            each.wait()
        before, compiled = [packed(layer) for layer in layers], cache.compilations()
        self.assertGreater(min(map(min, before)), 0)
        model(torch.arange(9)[None]).float().sum().backward()
        self.assertEqual(([packed(layer) for layer in layers], cache.compilations()), (before, compiled))

    def test_ranks(self):
        for size in (2, 4):
            with self.subTest(ranks=size):
                core_jobs.run_ranks(self, "ranks", size)


def train_with_main_grad(layer):
    x, ids, weights, dy = batch()
    layer(x, ids, weights).backward(dy)


def ranks(rank, size):
    for mesh in ({}, {"tp": 2}, {"tp": 2, "tokens": "same"}, {"spare": 4}):
        for name, (prepare, step) in PREPARATIONS.items():
            options = {"ep_group": dist.group.WORLD, "timeout": 20, "lora": LoRAConfig(4), **mesh}
            layer, other = make("int8,rows=int8", **options), make("int8,rows=int8", **options)
            if "spare" in mesh:  # expert 0 has 5 places
                expert_at = [0, 1, 2, 3, 0, 4, 5, 0, 6, 7, 0, 0]
                for each in (layer, other):
                    each.place(expert_at)
            prepare(layer, tokens=0 if rank else 3)
            step(other)
            before, compiled = packed(layer), cache.compilations()
            assert min(before) > 0 and before == packed(other), (mesh, name, before, packed(other))
            step(layer)
            assert (packed(layer), cache.compilations()) == (before, compiled), (mesh, name)
    tokens = -1 if rank == size - 1 else 0
    try:
        layer.prepare(tokens)
    except (RuntimeError, ValueError) as error:
        expected = "tokens is -1" if rank == size - 1 else f"rank {size - 1}: tokens is -1, expected a number from 0"
        assert expected in str(error), error
    else:
        raise AssertionError("a refusal by one rank is one of all")
    layer.prepare()


if __name__ == "__main__" and not core_jobs.main({"ranks": ranks}):
    unittest.main()
