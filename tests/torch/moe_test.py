"""sluice_torch.MoE at one rank: values, gradients, the programs that compute them, and errors."""

import unittest

import sluice_torch
import torch
from moe_eager import eager, route
from moe_layers import EXPERTS, HIDDEN, INTERMEDIATE, NAMES, TOP_K, Batch, MoETest, make
from sluice_torch import FineTuning, MoE, Steps, cache
from sluice_torch.layers.activations import ACTIVATIONS, LIMITED, parse, spelled


class ValuesTest(MoETest):
    def test_every_activation_is_that_of_plain_pytorch(self):
        for kind in ACTIVATIONS:
            with self.subTest(kind):
                layer = make(activation=spelled(kind, 0.5 if kind in LIMITED else None))
                self.check(layer, Batch())

    def test_float32_and_bfloat16_go_together(self):
        for parameters in (torch.bfloat16, torch.float32):
            for x in (torch.bfloat16, torch.float32):
                with self.subTest(parameters=parameters, x=x):
                    self.check(make(parameters), Batch(dtype=x))

    def test_gradients_of_float32_parameters_are_not_rounded(self):
        layer, batch = make(torch.float32), Batch()
        for grad in batch.grads(layer)[2:]:
            self.assertFalse(torch.equal(grad, grad.bfloat16().float()))

    def test_any_number_of_tokens_goes(self):
        layer = make()
        for tokens in (1, 300, 17):
            self.check(layer, Batch(tokens, seed=tokens))

    def test_experts_without_rows_have_gradients_of_zero(self):
        layer, batch = make(), Batch(among=3)
        self.check(layer, batch)
        for grad in batch.grads(layer)[2:]:
            self.assertEqual(grad[3:].float().abs().sum(), 0)

    def test_no_tokens_give_gradients_of_zero(self):
        layer, batch = make(), Batch(0)
        y = batch.run(layer)
        self.assertEqual(y.shape, (0, HIDDEN))
        for grad in batch.grads(layer, y):
            self.assertEqual(grad.float().abs().sum(), 0)

    def test_tokens_may_have_several_dimensions(self):
        layer, batch = make(), Batch(24)
        flat = batch.run(layer)
        x = batch.x.detach().view(2, 3, 4, HIDDEN)
        for shape in ((24, TOP_K), (2, 3, 4, TOP_K)):
            y = layer(x, batch.ids.view(shape), batch.expert_weights.view(shape))
            self.assertTrue(torch.equal(y, flat.view(x.shape)))

    def test_expert_weights_of_other_types_are_used_as_float32(self):
        layer, batch = make(), Batch()
        rounded = batch.expert_weights.detach().bfloat16().requires_grad_()
        y = layer(batch.x, batch.ids, rounded)
        self.assertTrue(torch.equal(y, layer(batch.x, batch.ids, rounded.detach().float())))
        self.assertEqual(torch.autograd.grad(y.float().sum(), rounded)[0].dtype, torch.bfloat16)

    def test_what_is_computed_again_is_the_same(self):
        batch = Batch()
        self.assert_same(batch.grads(make(keep="minimal")), batch.grads(make()))

    def test_experts_a_prime_number_go(self):
        torch.manual_seed(0)
        layer = MoE(HIDDEN, INTERMEDIATE, 7, 3)
        ids, weights = route(11, 7, 3, 1)
        x = torch.randn(11, HIDDEN).bfloat16()
        y = eager(x, ids, weights, layer.gate_up_weight, layer.down_weight)
        self.assert_close(layer(x, ids, weights), y)


class ProgramsTest(MoETest):
    def test_token_counts_and_routing_never_compile_again(self):
        layer = make()
        Batch().grads(layer)
        before = cache.compilations(), sluice_torch.memory()["layers"]
        for tokens in (0, 1, 5, 64, 500):
            for among in (2, EXPERTS):
                Batch(tokens, seed=tokens, among=among).grads(layer)
        self.assertEqual((cache.compilations(), sluice_torch.memory()["layers"]), before)

    def test_layers_of_one_shape_share_a_program(self):
        Batch().grads(make())
        before = cache.compilations(), sluice_torch.memory()["layers"]
        Batch().grads(make(seed=5))
        self.assertEqual((cache.compilations(), sluice_torch.memory()["layers"]), before)

    def test_frozen_parameters_have_no_gradient_and_the_others_the_same(self):
        layer, batch = make(), Batch()
        whole = dict(zip(NAMES, batch.grads(layer)))
        for trained in ((), ("x",), ("x", "expert_weights"), ("gate_up_weight",), ("down_weight", "x"), NAMES[1:]):
            with self.subTest(trained):
                leaves = dict(zip(NAMES, batch.leaves(layer)))
                for name, leaf in leaves.items():
                    leaf.grad = None
                    leaf.requires_grad_(name in trained)
                y = batch.run(layer)
                self.assertEqual(y.requires_grad, bool(trained))
                if trained:
                    y.backward(batch.dy)
                for name, leaf in leaves.items():
                    self.assertEqual(leaf.grad is not None, name in trained, name)
                    if name in trained:
                        self.assertTrue(torch.equal(leaf.grad, whole[name]), name)

    def test_without_gradients_the_forward_alone_runs_and_keeps_nothing(self):
        layer, batch = make(), Batch()
        trained = batch.run(layer)
        kept = sluice_torch.memory()["saved_sets_in_use"]
        with torch.no_grad():
            y = batch.run(layer)
        self.assertFalse(y.requires_grad)
        self.assertTrue(torch.equal(y, trained))
        self.assertEqual(sluice_torch.memory()["saved_sets_in_use"], kept)

    def test_memory_tells_what_a_forward_keeps(self):
        layer, batch = make(keep="minimal", activation="reglu"), Batch(200)
        before = sluice_torch.memory()
        y = batch.run(layer)
        during = sluice_torch.memory()
        self.assertEqual(during["saved_sets_in_use"], before["saved_sets_in_use"] + 1)
        rows = 200 * TOP_K
        kept = 200 * 2 * HIDDEN + rows * 2 * 2 * INTERMEDIATE  # tokens, and gate and up of their rows
        self.assertGreaterEqual(during["saved_bytes"] - before["saved_bytes"], kept)
        self.assertGreater(during["workspace_bytes"], 0)
        del y
        self.assertEqual(sluice_torch.memory()["saved_sets_in_use"], before["saved_sets_in_use"])


class ErrorsTest(MoETest):
    def refuse(self, message, change, kind=ValueError, **options):
        layer, batch = make(**options), Batch()
        arguments = {"x": batch.x.detach(), "expert_ids": batch.ids.clone()}
        arguments["expert_weights"] = batch.expert_weights.detach()
        change(arguments)
        with self.assertRaisesRegex(kind, message):
            layer(**arguments)
        y = batch.run(layer)  # it goes on
        self.assertEqual(y.shape, (37, HIDDEN))

    def test_weights_without_numbers_are_refused(self):
        layer, batch = make(), Batch()
        there = [each.detach().to("meta") for each in (batch.x, batch.ids, batch.expert_weights)]
        with self.assertRaisesRegex(ValueError, "the layer's weights are on meta: sluice_torch.load_model"):
            layer.to("meta")(*there)

    def test_tensors_that_do_not_fit_are_named(self):
        for message, change in (
            (r"x has shape \[37, 63\], expected \[..., 64\]", lambda a: a.update(x=torch.zeros(37, 63))),
            (r"x is torch.float64, expected", lambda a: a.update(x=a["x"].double())),
            (r"x has layout torch.sparse_coo, expected a dense", lambda a: a.update(x=a["x"].float().to_sparse())),
            (r"x is on meta, expected cpu", lambda a: a.update(x=a["x"].to("meta"))),
            (r"x is of type list, expected a tensor", lambda a: a.update(x=[1, 2])),
            (
                r"expert_ids has shape \[37, 1\], expected \[37, 2\]",
                lambda a: a.update(expert_ids=a["expert_ids"][:, :1].contiguous()),
            ),
            (
                r"expert_weights has shape \[36, 2\], expected \[37, 2\]",
                lambda a: a.update(expert_weights=a["expert_weights"][1:]),
            ),
            (r"expert_weights is torch.int64", lambda a: a.update(expert_weights=a["expert_ids"])),
            (r"expert_ids.*[Ff]loat", lambda a: a.update(expert_ids=a["expert_weights"])),
        ):
            with self.subTest(message):
                self.refuse(message, change)

    def test_ids_of_no_expert_are_named(self):
        for value, message in ((8, "8"), (-2, "-2"), (2**40, str(2**40))):
            def change(arguments, value=value):
                arguments["expert_ids"][3, 1] = value

            self.refuse(message, change, (ValueError, RuntimeError))

    def test_too_many_tokens_are_counted(self):
        layer, batch = make(max_tokens=32), Batch()
        with self.assertRaisesRegex(ValueError, "x has 37 tokens.*at most 32"):
            batch.run(layer)

    def test_a_main_grad_of_another_type_is_refused(self):
        layer, batch = make(), Batch()
        layer.down_weight.main_grad = torch.zeros(layer.down_weight.shape).bfloat16()
        with self.assertRaisesRegex(ValueError, "main_grad of down_weight is torch.bfloat16, expected torch.float32"):
            batch.run(layer)

    def test_options_that_cannot_be_are_named(self):
        for options, message in (
            ({"dtype": torch.float16}, "dtype is torch.float16"),
            ({"keep": "some"}, "keep is 'some'"),
            ({"activation": "relu"}, "activation is 'relu', expected one of swiglu, .*swiglu_clamp:LIMIT, swiglu_oai:LIMIT, silu, relu2"),
            ({"activation": "swiglu:7"}, "activation is 'swiglu:7', but swiglu has no limit; swiglu_clamp and swiglu_oai have one"),
            ({"activation": "swiglu_oai"}, "swiglu_oai needs a limit: activation='swiglu_oai:7'"),
            ({"activation": "swiglu_clamp:0"}, "activation is 'swiglu_clamp:0', expected a limit that is positive"),
            ({"activation": "swiglu_clamp:nan"}, "'swiglu_clamp:nan', expected a limit"),
            ({"activation": "swiglu_clamp:seven"}, "'swiglu_clamp:seven', expected a limit"),
            ({"activation": "swiglu_clamp:0.1"}, "'swiglu_clamp:0.1', expected a limit that is positive and that bfloat16 holds exactly"),
            ({"activation": "swiglu_clamp:1e39"}, "'swiglu_clamp:1e39', expected a limit"),
            ({"max_tokens": 0}, "max_tokens is 0"),
            ({"pack_frozen": 1}, "pack_frozen is 1, expected True or False"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                make(**options)
        sizes = (HIDDEN, INTERMEDIATE, EXPERTS, TOP_K)
        with self.assertRaisesRegex(ValueError, "steps is of type dict, expected sluice_torch.Steps"):
            MoE(*sizes, steps={})
        with self.assertRaisesRegex(ValueError, "parallel is of type int, expected sluice_torch.Parallel"):
            MoE(*sizes, parallel=0)

    def test_arguments_that_became_values_say_where_they_are_now(self):
        sizes = (HIDDEN, INTERMEDIATE, EXPERTS, TOP_K)
        for argument, names in (
            ("parallel=sluice_torch.Parallel", ("ep_group", "tp_group", "mesh", "tp", "tokens", "spare", "timeout")),
            ("steps=sluice_torch.Steps", ("threads", "max_tokens", "keep", "pack_frozen")),
        ):
            for name in names:
                for make_layer in (MoE, FineTuning):
                    with self.assertRaises(TypeError) as refused:
                        make_layer(*sizes, **{name: 1})
                    self.assertIn(f"MoE has no argument {name!r} any more: it is {argument}({name}=...) now", str(refused.exception))
        with self.assertRaisesRegex(TypeError, "no argument 'limit' any more: it is activation='swiglu_oai:LIMIT' now"):
            MoE(*sizes, activation="swiglu_oai", limit=7.0)
        with self.assertRaises(TypeError):
            MoE(*sizes, None)

    def test_the_text_of_an_activation_is_read_again(self):
        for limit in (7.0, 0.5, 7.03125, 2.0**100, 2.0**-100):
            self.assertEqual(parse(spelled("swiglu_oai", limit)), ("swiglu_oai", limit))
        self.assertIn("activation='swiglu_oai:7'", repr(make(activation="swiglu_oai:7.0")))

    def test_another_number_of_threads_than_the_group_has_is_refused(self):
        batch, first = Batch(), make()
        batch.run(first)
        other = MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, activation="reglu", steps=Steps(threads=1))
        with self.assertRaisesRegex(ValueError, "threads is 1, but layers of this group share 2 threads"):
            batch.run(other)


if __name__ == "__main__":
    unittest.main()
