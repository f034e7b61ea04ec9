"""Gradients of adapters are added to a main_grad of their parameter, with the same bits that autograd would give."""

import itertools
import unittest

import torch
from torch.utils.checkpoint import checkpoint

from models.lora_test import make_inputs, make_pair
from sluice_torch import Steps
from sluice_torch.callers.finetune import FineTuning
from sluice_torch.lora import LoRAConfig

CONFIG = LoRAConfig(4, 6.0)


def make_layer(dtype=torch.float32, config=CONFIG, **options):
    """A layer of which every parameter has a value of bfloat16, so that it is the same layer in both types."""
    layer, _ = make_pair(config, torch.float32, **options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(parameter.bfloat16())
    return layer.to(dtype)


def adapters(layer):
    return {name: parameter for name, parameter in layer.named_parameters() if "lora" in name}


def give_main_grads(layer, names=None):
    for name, parameter in adapters(layer).items():
        if names is None or name in names:
            parameter.main_grad = torch.zeros(parameter.shape)


def micro_batches(dtype=torch.float32):
    return [make_inputs(dtype, tokens) for tokens in (37, 20)]


def run(layer, batches):
    for x, ids, weights, dy in batches:
        layer(x, ids, weights).backward(dy)


class LoraMainGradTest(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)

    def assert_main_grads(self, layer, plain):
        """Those of `layer` are the `.grad` of a layer that has none."""
        self.assertGreater(len(adapters(layer)), 0)
        for name, parameter in adapters(layer).items():
            self.assertIsNone(parameter.grad, name)
            self.assertTrue(torch.equal(parameter.main_grad, getattr(plain, name).grad), name)
            self.assertGreater(parameter.main_grad.abs().sum().item(), 0, name)

    def test_micro_batches_are_added_unrounded(self):
        for keep, dtype in itertools.product(("all", "minimal"), (torch.float32, torch.bfloat16)):
            with self.subTest(keep=keep, dtype=dtype):
                plain, layer = make_layer(keep=keep), make_layer(dtype, keep=keep)
                give_main_grads(layer)
                run(plain, micro_batches())
                run(layer, micro_batches())
                self.assert_main_grads(layer, plain)
                self.assertIsNone(layer.gate_up_weight.grad)

    def test_values_and_other_gradients_are_the_same(self):
        for dtype in (torch.float32, torch.bfloat16):
            found = []
            for with_main_grads in (False, True):
                layer = make_layer(dtype)
                if with_main_grads:
                    give_main_grads(layer)
                x, ids, weights, dy = make_inputs(dtype)
                y = layer(x, ids, weights)
                y.backward(dy)
                found.append((y, x.grad, weights.grad))
            for plain, other in zip(*found):
                self.assertTrue(torch.equal(plain, other))

    def test_any_targets_can_have_them(self):
        for targets in (("gate",), ("up", "down")):
            config = LoRAConfig(3, 3.0, targets)
            plain, layer = make_layer(config=config), make_layer(torch.bfloat16, config)
            give_main_grads(layer)
            run(plain, micro_batches())
            run(layer, micro_batches())
            self.assert_main_grads(layer, plain)

    def test_some_adapters_can_have_them(self):
        plain, layer = make_layer(), make_layer()
        give_main_grads(layer, ("gate_lora_b", "down_lora_a"))
        run(plain, micro_batches())
        run(layer, micro_batches())
        for name, parameter in adapters(layer).items():
            has = name in ("gate_lora_b", "down_lora_a")
            self.assertEqual(parameter.grad is None, has, name)
            found = parameter.main_grad if has else parameter.grad
            self.assertTrue(torch.equal(found, getattr(plain, name).grad), name)

    def test_gradients_beside_them_are_rounded_as_ever(self):
        plain, layer = make_layer(torch.bfloat16), make_layer(torch.bfloat16)
        give_main_grads(layer, ("up_lora_a",))
        run(plain, [make_inputs(torch.bfloat16)])
        run(layer, [make_inputs(torch.bfloat16)])
        for name, parameter in adapters(layer).items():
            found = parameter.main_grad.bfloat16() if name == "up_lora_a" else parameter.grad
            self.assertTrue(torch.equal(found, getattr(plain, name).grad), name)

    def test_frozen_adapters_have_no_gradient_anywhere(self):
        plain, layer = make_layer(), make_layer(torch.bfloat16)
        give_main_grads(layer)
        frozen = ("up_lora_a", "up_lora_b", "down_lora_a")
        for name in frozen:
            getattr(layer, name).requires_grad_(False)
        run(plain, micro_batches())
        run(layer, micro_batches())
        for name, parameter in adapters(layer).items():
            self.assertIsNone(parameter.grad, name)
            expected = torch.zeros(parameter.shape) if name in frozen else getattr(plain, name).grad
            self.assertTrue(torch.equal(parameter.main_grad, expected), name)

    def test_weights_that_are_trained_too_have_theirs(self):
        plain, layer = make_layer(), make_layer()
        give_main_grads(layer)
        for each in (plain, layer):
            each.down_weight.requires_grad_(True)
        layer.down_weight.main_grad = torch.zeros(layer.down_weight.shape)
        run(plain, [make_inputs()])
        run(layer, [make_inputs()])
        self.assert_main_grads(layer, plain)
        self.assertIsNone(layer.down_weight.grad)
        self.assertTrue(torch.equal(layer.down_weight.main_grad, plain.down_weight.grad))

    def test_checkpointing_adds_them_once(self):
        plain = make_layer()
        run(plain, [make_inputs()])
        for reentrant in (True, False):
            layer = make_layer(torch.bfloat16)
            give_main_grads(layer)
            x, ids, weights, dy = make_inputs()
            checkpoint(layer, x, ids, weights, use_reentrant=reentrant).backward(dy)
            self.assert_main_grads(layer, plain)

    def test_a_backward_that_asks_for_x_alone_leaves_them_as_they_are(self):
        layer = make_layer()
        give_main_grads(layer)
        x, ids, weights, dy = make_inputs()
        torch.autograd.grad(layer(x, ids, weights), x, dy)
        for name, parameter in adapters(layer).items():
            self.assertEqual(parameter.main_grad.abs().sum().item(), 0, name)

    def test_they_may_come_and_go(self):
        layer = make_layer()
        give_main_grads(layer)
        run(layer, [make_inputs()])
        for parameter in adapters(layer).values():
            kept = parameter.main_grad
            del parameter.main_grad
        run(layer, [make_inputs()])
        self.assertTrue(torch.equal(kept, parameter.grad))

    def test_steps_by_hand_add_to_them_and_give_the_rest(self):
        tuning = FineTuning(64, 48, 6, 2, CONFIG, steps=Steps(threads=1))
        plain = make_layer()
        gate, up = plain.gate_up_weight.chunk(2, dim=1)
        tuning.load_weights(gate, up, plain.down_weight)
        tuning.layer.load_state_dict(plain.state_dict())
        give_main_grads(tuning.layer, ("down_lora_b",))
        x, ids, weights, dy = make_inputs(torch.bfloat16)
        tuning.forward(x, ids, weights)
        found = tuning.backward(dy)
        self.assertEqual(set(found), {"x", "expert_weights", *adapters(tuning.layer)} - {"down_lora_b"})
        run(plain, [make_inputs()])
        self.assertTrue(torch.equal(tuning.layer.down_lora_b.main_grad, plain.down_lora_b.grad))

    def test_one_that_cannot_be_added_to_is_refused(self):
        layer = make_layer()
        x, ids, weights, _ = make_inputs()
        shape = list(layer.up_lora_a.shape)
        for wrong, word in (
            (torch.zeros(shape).bfloat16(), "is torch.bfloat16, expected torch.float32"),
            (torch.zeros(3), f"has shape [3], expected {shape}"),
            (torch.zeros(shape, device="meta"), "is on meta, expected cpu"),
            ([0.0], "is of type list, expected a tensor"),
        ):
            layer.up_lora_a.main_grad = wrong
            with self.assertRaises(ValueError) as caught:
                layer(x, ids, weights)
            self.assertEqual(str(caught.exception), f"main_grad of up_lora_a {word}")
            with torch.no_grad():
                layer(x, ids, weights)


if __name__ == "__main__":
    unittest.main()
