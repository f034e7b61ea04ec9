"""fp8_autocast: which steps round their products, and that backwards and repeated forwards follow their forwards."""

import copy
import threading
import types
import unittest
from unittest import mock

import sluice_torch
import torch
from decoder import Decoder, loss_of
from grouped import grouped
from models import layouts
from moe_eager import route
from sluice_torch import fp8_autocast, te
from sluice_torch.recipe import Float8CurrentScaling, Format, MXFP8BlockScaling, Recipe
from torch.utils.checkpoint import checkpoint

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, TOKENS = 64, 32, 4, 2, 50
RECIPES = {
    "mxfp8 e4m3": MXFP8BlockScaling(),
    "mxfp8 hybrid": MXFP8BlockScaling(fp8_format=Format.HYBRID),
    "squares": MXFP8BlockScaling(weights="32x32", exponent="floor"),
    "fp8": Float8CurrentScaling(),
}
# The encodings of a layer that rounds likewise.
ARGUMENTS = {
    "mxfp8 e4m3": {"encode": "mxfp8"},
    "mxfp8 hybrid": {"encode": "mxfp8,grads=mxfp8e5m2"},
    "squares": {"encode": "mxfp8:32x32:floor"},
    "fp8": {"encode": "fp8e4m3,grads=fp8e5m2"},
    "bf16": {"encode": "bf16"},
}


def make(**options):
    torch.manual_seed(0)
    return sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, **grouped(threads=2, **options))


def batch():
    made = torch.Generator().manual_seed(1)
    x, dy = (torch.randn(TOKENS, HIDDEN, generator=made).bfloat16() for _ in range(2))
    ids, weights = route(TOKENS, EXPERTS, TOP_K, 1)
    return x.requires_grad_(), ids, weights, dy


X, IDS, WEIGHTS, DY = batch()


def forward(layer):
    return layer(X, IDS, WEIGHTS)


def grads(layer, y):
    return torch.autograd.grad(y, [X, layer.gate_up_weight, layer.down_weight], DY)


def repeated(layer, reentrant):
    """y of a forward that the backward repeats."""
    modes = {"use_reentrant": reentrant}
    return checkpoint(lambda x: layer(x, IDS, WEIGHTS), X, **modes)


def grads_of(layer, y):
    """Those of repeated(): by backward(), which checkpoints of both kinds allow."""
    for leaf in (X, *layer.parameters()):
        leaf.grad = None
    y.backward(DY)
    return X.grad, layer.gate_up_weight.grad, layer.down_weight.grad


class AutocastTest(unittest.TestCase):
    def setUp(self):
        self.layer = make()
        self.expected = {}
        for name, arguments in ARGUMENTS.items():
            y = forward(made := make(**arguments))
            self.expected[name] = [y.detach(), *grads(made, y)]
        for name, each in self.expected.items():  # so that every test can fail
            for other, tensors in self.expected.items():
                if name != other:
                    self.assertFalse(torch.equal(each[1], tensors[1]), (name, other))

    def assert_is(self, name, found):
        for number, (a, b) in enumerate(zip(found, self.expected[name])):
            self.assertTrue(torch.equal(a, b), (name, number))

    def test_steps_in_the_context_use_its_recipe_and_others_bfloat16(self):
        for name, recipe in RECIPES.items():
            with fp8_autocast(enabled=True, fp8_recipe=recipe, fp8_group=None):
                y = forward(self.layer)
                self.assert_is(name, [y, *grads(self.layer, y)])
            y = forward(self.layer)
            self.assert_is("bf16", [y, *grads(self.layer, y)])
        with fp8_autocast():
            self.assert_is("mxfp8 e4m3", [forward(self.layer)])
        with fp8_autocast(enabled=False, fp8_recipe=RECIPES["squares"]):
            self.assert_is("bf16", [forward(self.layer)])

        @fp8_autocast(fp8_recipe=RECIPES["squares"])
        def decorated():
            return forward(self.layer)

        self.assert_is("squares", [decorated()])

    def test_a_backward_follows_its_forward(self):
        ys = {}
        for name, recipe in RECIPES.items():
            with fp8_autocast(fp8_recipe=recipe):
                ys[name] = forward(self.layer)
        ys["bf16"] = forward(self.layer)
        with fp8_autocast(fp8_recipe=RECIPES["squares"]):
            for name in reversed(list(ys)):
                self.assert_is(name, [ys[name], *grads(self.layer, ys[name])])

    def test_contexts_nest_and_end_with_errors(self):
        with fp8_autocast(fp8_recipe=RECIPES["squares"]):
            with fp8_autocast(enabled=False):
                self.assert_is("bf16", [forward(self.layer)])
                with self.assertRaises(ArithmeticError), fp8_autocast(fp8_recipe=RECIPES["mxfp8 hybrid"]):
                    y = forward(self.layer)
                    self.assert_is("mxfp8 hybrid", [y, *grads(self.layer, y)])
                    raise ArithmeticError
                self.assert_is("bf16", [forward(self.layer)])
            self.assert_is("squares", [forward(self.layer)])

    def test_a_layer_with_encodings_keeps_them(self):
        for name, arguments in ARGUMENTS.items():
            with fp8_autocast(fp8_recipe=RECIPES["squares"]):
                self.assert_is(name, [forward(make(**arguments))])
        frozen = make(encode="int8,rows=int8")
        expected = forward(frozen)
        with fp8_autocast():
            self.assertTrue(torch.equal(forward(frozen), expected))

    def test_without_gradients_and_copies(self):
        with torch.no_grad(), fp8_autocast(fp8_recipe=RECIPES["squares"]):
            self.assert_is("squares", [forward(self.layer)])
            self.assert_is("squares", [forward(copy.deepcopy(self.layer))])
            self.assert_is("squares", [self.layer.submit_forward(X, IDS, WEIGHTS).wait()])

    def test_each_thread_has_its_own(self):
        found = []

        def run(recipe):
            with fp8_autocast(fp8_recipe=recipe):
                found.append(forward(self.layer))

        with fp8_autocast(fp8_recipe=RECIPES["squares"]):
            for work in (lambda: found.append(forward(self.layer)), lambda: run(RECIPES["mxfp8 hybrid"])):
                thread = threading.Thread(target=work)
                thread.start()
                thread.join()
            found.append(forward(self.layer))
        for name, y in zip(("bf16", "mxfp8 e4m3", "squares"), found):  # gradients have E5M2, not y
            self.assert_is(name, [y])

    def test_repeated_forwards_follow_the_first(self):
        for reentrant in (True, False):
            for name, recipe in RECIPES.items():
                with fp8_autocast(fp8_recipe=recipe):
                    y = repeated(self.layer, reentrant)
                self.assert_is(name, [y, *grads_of(self.layer, y)])
                with fp8_autocast(fp8_recipe=recipe):
                    y = repeated(self.layer, reentrant)
                    self.assert_is(name, [y, *grads_of(self.layer, y)])
                with fp8_autocast(fp8_recipe=recipe):
                    y = repeated(self.layer, reentrant)
                with fp8_autocast(fp8_recipe=RECIPES["squares"]):
                    self.assert_is(name, [y, *grads_of(self.layer, y)])
                for training in (True, False):  # steps in the other mode do not count
                    self.layer.train(training)
                    with fp8_autocast(fp8_recipe=recipe):
                        y = repeated(self.layer, reentrant)
                    self.layer.train(not training)
                    self.assert_is("bf16", [forward(self.layer)])
                    self.layer.train(training)
                    self.assert_is(name, [y, *grads_of(self.layer, y)])
                self.layer.train()
            y = repeated(self.layer, reentrant)
            with fp8_autocast():
                self.assert_is("bf16", [y, *grads_of(self.layer, y)])
            y = forward(self.layer)
            self.assert_is("bf16", [y, *grads(self.layer, y)])

    def test_contexts_inside_of_repeated_forwards(self):
        def inside(x):
            with fp8_autocast(fp8_recipe=RECIPES["mxfp8 hybrid"]):
                return self.layer(x, IDS, WEIGHTS)

        for reentrant in (True, False):
            y = checkpoint(inside, X, use_reentrant=reentrant)
            self.assert_is("bf16", [forward(self.layer)])
            self.assert_is("mxfp8 hybrid", [y, *grads_of(self.layer, y)])

    def test_a_model_with_repeated_layers_trains_as_one_without(self):
        found = []
        tokens = torch.randint(0, 256, (2, 17), generator=torch.Generator().manual_seed(4))
        for repeats in (False, True):
            torch.manual_seed(3)
            model = Decoder(lambda: layouts.Qwen3Block(64, 32))
            sluice_torch.replace_moe(model, steps=sluice_torch.Steps(threads=2))
            if repeats:
                for layer in model.layers:
                    layer.forward = lambda *given, own=layer.forward: checkpoint(own, *given, use_reentrant=False)
            with fp8_autocast(fp8_recipe=RECIPES["mxfp8 hybrid"]):
                loss = loss_of(model, tokens)
            loss.backward()
            found.append([loss.detach(), *(parameter.grad for parameter in model.parameters())])
        for a, b in zip(*found):
            self.assertTrue(torch.equal(a, b))

    def test_tuning_takes_the_recipe_of_the_caller(self):
        tuning = sluice_torch.FineTuning(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, steps=sluice_torch.Steps(threads=2))
        gate, up = self.layer.gate_up_weight.detach().chunk(2, 1)
        tuning.load_weights(gate, up, self.layer.down_weight.detach())
        with fp8_autocast(fp8_recipe=RECIPES["mxfp8 hybrid"]):
            y = tuning.forward(X, IDS, WEIGHTS)
        self.assert_is("mxfp8 hybrid", [y, tuning.backward(DY)["x"]])
        self.assert_is("bf16", [tuning.forward(X, IDS, WEIGHTS, save=False)])

    def test_linear_layers(self):
        config = types.SimpleNamespace(params_dtype=torch.bfloat16)
        for kind in (te.TEColumnParallelLinear, te.TERowParallelLinear):
            found = []
            for arguments, recipe in (({}, RECIPES["squares"]), (ARGUMENTS["squares"], None), ({}, None)):
                torch.manual_seed(5)
                layer = kind(HIDDEN, 96, config=config, bias=False, threads=2, **arguments)
                with fp8_autocast(enabled=recipe is not None, fp8_recipe=recipe):
                    y = layer(X[:, None])[0]
                dy = torch.ones_like(y) + y.detach()
                found.append([y.detach(), *torch.autograd.grad(y, [X, layer.weight], dy)])
            for a, b, c in zip(*found):
                self.assertTrue(torch.equal(a, b))
                self.assertFalse(torch.equal(a, c))

    def test_what_is_wrong_is_refused(self):
        for recipe, message in (
            (Recipe(), "Recipe is no recipe, expected one of sluice_torch.recipe"),
            ("mxfp8", "fp8_recipe is of type str, expected a recipe of sluice_torch.recipe"),
        ):
            with self.assertRaisesRegex(ValueError, message), fp8_autocast(fp8_recipe=recipe):
                self.fail("the context began")
            with fp8_autocast(enabled=False, fp8_recipe=recipe):
                self.assert_is("bf16", [forward(self.layer)])
        with self.assertRaisesRegex(ValueError, "fp8_group is of type int, expected a group of torch.distributed"), fp8_autocast(fp8_group=7):
            self.fail("the context began")
        self.assertTrue(issubclass(MXFP8BlockScaling, Recipe))
        for arguments, message in (
            ({"weights": "16x16"}, "weights is '16x16', expected one of 1x32, 32x32"),
            ({"fp8_format": "hybrid"}, "fp8_format is 'hybrid', expected Format.E4M3 or Format.HYBRID"),
            ({"exponent": "up"}, "exponent is 'up', expected one of ceil, floor"),
            ({"margin": 1}, "margin is 1, expected 0"),
            ({"fp8_dpa": True}, "fp8_dpa is True, expected False"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                MXFP8BlockScaling(**arguments)

    def test_layers_that_cannot_round_are_refused_and_stay_usable(self):
        ids, weights = IDS, WEIGHTS
        for options, sizes, message in (
            ({}, (64, 48), "intermediate columns of a rank: 48, expected a multiple of 32 for mxfp8"),
            ({"lora": sluice_torch.LoRAConfig(8)}, (64, 32), "rank of adapters: 8, expected a multiple of 32 for mxfp8"),
        ):
            layer = sluice_torch.MoE(*sizes, EXPERTS, TOP_K, **grouped(threads=2, **options))
            before = layer(X, ids, weights)
            with fp8_autocast(), self.assertRaisesRegex(ValueError, message):
                layer(X, ids, weights)
            self.assertTrue(torch.equal(layer(X, ids, weights), before))

    def test_steps_in_bf16_do_not_ask_whether_they_repeat_another(self):
        """Before PyTorch 2.1 the answer takes longer than a small step."""
        with mock.patch("sluice_torch.layers.moe.is_in_backward", side_effect=AssertionError("asked")):
            forward(make()).backward(DY)
            with self.assertRaisesRegex(AssertionError, "asked"):
                forward(make(encode="fp8e4m3:delayed"))


if __name__ == "__main__":
    unittest.main()
