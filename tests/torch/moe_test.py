"""sluice_torch.MoE at one rank: values, gradients, and what PyTorch does with modules."""

import copy
import io
import unittest

import sluice_torch
import torch
from moe_eager import BOUND, eager, error, route
from sluice_torch import cache
from torch.utils.checkpoint import checkpoint

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 64, 48, 8, 2
NAMES = ("x", "expert_weights", "gate_up_weight", "down_weight")


def make(dtype=torch.bfloat16, seed=0, **options):
    torch.manual_seed(seed)
    return sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, dtype=dtype, threads=2, **options)


class Batch:
    """Tensors of a step that require gradients, but ids."""

    def __init__(self, tokens=37, seed=1, dtype=torch.bfloat16, among=None):
        made = torch.Generator().manual_seed(seed)
        self.x = torch.randn(tokens, HIDDEN, generator=made).to(dtype).requires_grad_()
        self.dy = torch.randn(tokens, HIDDEN, generator=made).to(dtype)
        self.ids, weights = route(tokens, EXPERTS, TOP_K, seed, among)
        self.expert_weights = weights.requires_grad_()

    def run(self, layer):
        return layer(self.x, self.ids, self.expert_weights)

    def leaves(self, layer):
        return [self.x, self.expert_weights, layer.gate_up_weight, layer.down_weight]

    def grads(self, layer, y=None, **options):
        return torch.autograd.grad(self.run(layer) if y is None else y, self.leaves(layer), self.dy, **options)

    def expected(self, layer):
        """y and the gradients of leaves(), in float32."""
        leaves = [leaf.detach().to(torch.bfloat16).float() for leaf in self.leaves(layer)]
        leaves[1] = self.expert_weights.detach().clone()
        leaves = [leaf.requires_grad_() for leaf in leaves]
        y = eager(leaves[0], self.ids, *leaves[1:], layer.shape.activation, layer.shape.limit)
        return y, torch.autograd.grad(y, leaves, self.dy.float(), allow_unused=True)


class MoETest(unittest.TestCase):
    def assert_close(self, found, expected, name=""):
        self.assertEqual(found.shape, expected.shape, name)
        self.assertLess(error(found, expected), BOUND, name)

    def assert_same(self, found, expected):
        for name, a, b in zip(NAMES, found, expected):
            self.assertTrue(torch.equal(a, b), name)

    def check(self, layer, batch):
        y = batch.run(layer)
        expected_y, expected = batch.expected(layer)
        self.assert_close(y, expected_y)
        self.assertEqual(y.dtype, batch.x.dtype)
        for name, leaf, a, b in zip(NAMES, batch.leaves(layer), batch.grads(layer, y), expected):
            self.assertEqual(a.dtype, leaf.dtype, name)
            self.assert_close(a, b, name)


class ValuesTest(MoETest):
    def test_every_activation_is_that_of_plain_pytorch(self):
        for kind in ("swiglu", "swiglu_clamp", "geglu", "reglu"):
            with self.subTest(kind):
                layer = make(activation=kind, limit=0.5 if kind == "swiglu_clamp" else None)
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
        layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, 7, 3)
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
        self.assertGreaterEqual(during["saved_bytes"] - before["saved_bytes"], rows * 2 * (HIDDEN + 2 * INTERMEDIATE))
        self.assertGreater(during["workspace_bytes"], 0)
        del y
        self.assertEqual(sluice_torch.memory()["saved_sets_in_use"], before["saved_sets_in_use"])


class TrainingTest(MoETest):
    def test_two_forwards_go_before_two_backwards_in_either_order(self):
        layer, batches = make(), [Batch(37, 1), Batch(90, 2)]
        alone = [batch.grads(layer) for batch in batches]
        for order in ((0, 1), (1, 0)):
            ys = [batch.run(layer) for batch in batches]
            for which in order:
                self.assert_same(batches[which].grads(layer, ys[which]), alone[which])

    def test_two_layers_in_a_row_train_like_plain_pytorch(self):
        layers, batch = [make(seed=1), make(seed=2)], Batch()
        y = layers[1](batch.run(layers[0]) + batch.x, batch.ids, batch.expert_weights)
        found = torch.autograd.grad(y, batch.leaves(layers[0]) + batch.leaves(layers[1])[2:], batch.dy)
        leaves = [leaf.detach().float().requires_grad_() for leaf in batch.leaves(layers[0])]
        more = [leaf.detach().float().requires_grad_() for leaf in batch.leaves(layers[1])[2:]]
        inner = eager(leaves[0], batch.ids, *leaves[1:]) + leaves[0]
        expected_y = eager(inner, batch.ids, leaves[1], *more)
        expected = torch.autograd.grad(expected_y, leaves + more, batch.dy.float())
        for a, b in zip(found, expected):
            self.assertLess(error(a, b), 2 * BOUND)

    def test_backward_twice_goes_where_the_graph_is_retained(self):
        layer, batch = make(), Batch()
        y = batch.run(layer)
        first = batch.grads(layer, y, retain_graph=True)
        self.assert_same(batch.grads(layer, y), first)
        with self.assertRaisesRegex(RuntimeError, "second time"):
            batch.grads(layer, y)

    def test_micro_batches_add_up_to_the_batch(self):
        for dtype in (torch.bfloat16, torch.float32):
            layer, batch = make(dtype), Batch(60)
            batch.run(layer).backward(batch.dy)
            whole = [layer.gate_up_weight.grad, layer.down_weight.grad]
            layer.zero_grad()
            for part in (slice(0, 10), slice(10, 60)):
                x, ids, weights = (t[part].detach() for t in (batch.x, batch.ids, batch.expert_weights))
                layer(x, ids, weights).backward(batch.dy[part])
            for a, b in zip((layer.gate_up_weight.grad, layer.down_weight.grad), whole):
                self.assert_close(a, b)

    def test_checkpointing_gives_the_same_gradients(self):
        layer, batch = make(), Batch()
        plain = batch.grads(layer)
        before = sluice_torch.memory()["saved_sets_in_use"]
        for reentrant in (True, False):
            batch.x.grad = batch.expert_weights.grad = None
            layer.zero_grad(set_to_none=True)
            y = checkpoint(layer, batch.x, batch.ids, batch.expert_weights, use_reentrant=reentrant)
            y.backward(batch.dy)
            self.assert_same([leaf.grad for leaf in batch.leaves(layer)], plain)
            del y
            self.assertEqual(sluice_torch.memory()["saved_sets_in_use"], before)

    def test_gradients_are_added_to_main_grad(self):
        for dtype in (torch.bfloat16, torch.float32):
            with self.subTest(dtype):
                layer, batch = make(dtype), Batch()
                _, expected = batch.expected(layer)
                parameters = [layer.gate_up_weight, layer.down_weight]
                for parameter in parameters:
                    parameter.main_grad = torch.ones(parameter.shape)
                for _ in range(2):
                    batch.run(layer).backward(batch.dy)
                for parameter, grad in zip(parameters, expected[2:]):
                    self.assertIsNone(parameter.grad)
                    self.assert_close(parameter.main_grad, 2 * grad + 1)

    def test_a_main_grad_may_come_and_go(self):
        layer, batch = make(), Batch()
        plain = batch.grads(layer)
        weight = layer.down_weight
        weight.main_grad = torch.zeros(weight.shape)
        batch.run(layer).backward(batch.dy)
        self.assertIsNone(weight.grad)
        self.assert_close(weight.main_grad, plain[3])
        del weight.main_grad
        self.assert_same(batch.grads(layer), plain)

    def test_one_parameter_may_have_a_main_grad(self):
        layer, batch = make(), Batch()
        _, expected = batch.expected(layer)
        layer.down_weight.main_grad = torch.zeros(layer.down_weight.shape)
        batch.run(layer).backward(batch.dy)
        self.assert_close(layer.down_weight.main_grad, expected[3])
        self.assert_close(layer.gate_up_weight.grad, expected[2])

    def test_an_optimizer_step_is_seen_by_the_next_step(self):
        layer, batch = make(torch.float32), Batch()
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
        losses = []
        for _ in range(4):
            loss = (batch.run(layer).float() - 1).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertEqual(losses, sorted(losses, reverse=True))
        self.check(layer, batch)


class ModuleTest(MoETest):
    def test_a_state_dict_brings_the_layer_back(self):
        first, second, batch = make(seed=1), make(seed=2), Batch()
        self.assertEqual(list(first.state_dict()), ["gate_up_weight", "down_weight"])
        self.assertFalse(torch.equal(batch.run(first), batch.run(second)))
        second.load_state_dict(first.state_dict())
        self.assertTrue(torch.equal(batch.run(first), batch.run(second)))

    def test_copies_and_pickles_are_layers_of_their_own(self):
        layer, batch = make(), Batch()
        y = batch.run(layer)
        file = io.BytesIO()
        torch.save(layer, file)
        file.seek(0)
        for other in (copy.deepcopy(layer), torch.load(file, weights_only=False)):
            self.assertTrue(torch.equal(batch.run(other), y))
            with torch.no_grad():
                other.down_weight.zero_()
            self.assertEqual(batch.run(other).float().abs().sum(), 0)
        self.assertTrue(torch.equal(batch.run(layer), y))

    def test_a_layer_changes_its_type(self):
        layer, batch = make(), Batch()
        y = batch.run(layer)
        self.assertTrue(torch.equal(batch.run(layer.float()), y))
        self.check(layer, batch)

    def test_its_text_has_its_sizes(self):
        self.assertIn("hidden=64, intermediate=48, num_experts=8, top_k=2, activation='swiglu'", repr(make()))

    def test_steps_in_flight_give_what_steps_give(self):
        layers, batches = [make(seed=1), make(seed=2, activation="geglu")], [Batch(50, 3), Batch(5, 4)]
        with torch.no_grad():
            plain = [[batch.run(layer) for batch in batches] for layer in layers]
            pending = [[layer.submit_forward(b.x, b.ids, b.expert_weights) for b in batches] for layer in layers]
            for row, expected in zip(pending, plain):
                for step, y in zip(row, expected):
                    self.assertTrue(torch.equal(step.wait(), y))
                    self.assertTrue(step.done())
        with self.assertRaisesRegex(RuntimeError, "submit_forward has no gradients"):
            layers[0].submit_forward(batches[0].x, batches[0].ids, batches[0].expert_weights)


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

    def test_tensors_that_do_not_fit_are_named(self):
        for message, change in (
            (r"x has shape \[37, 63\], expected \[..., 64\]", lambda a: a.update(x=torch.zeros(37, 63))),
            (r"x is torch.float64, expected", lambda a: a.update(x=a["x"].double())),
            (r"x has shape \[37, 64\] and strides \[1, 37\]", lambda a: a.update(x=a["x"].t().contiguous().t())),
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
            ({"activation": "relu"}, "activation is 'relu'"),
            ({"max_tokens": 0}, "max_tokens is 0"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                make(**options)

    def test_another_number_of_threads_than_the_group_has_is_refused(self):
        batch = Batch()
        batch.run(make())
        other = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, threads=1, activation="reglu")
        with self.assertRaisesRegex(ValueError, "threads is 1, but layers of this group share 2 threads"):
            batch.run(other)


if __name__ == "__main__":
    unittest.main()
