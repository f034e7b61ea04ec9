"""Frozen weights that stay packed between steps: the same bits, and every change that autograd counts takes effect."""

import unittest

import torch
from moe_layers import Batch, make


def make_frozen(seed=0, **options):
    layer = make(seed=seed, **options)
    layer.gate_up_weight.requires_grad_(False)
    layer.down_weight.requires_grad_(False)
    return layer


def packed_bytes(layer) -> list[int]:
    return [held.op.packed_bytes() for held in layer._layers.values()]


class FrozenTest(unittest.TestCase):
    def setUp(self):
        # more rows per expert than are multiplied without packing
        self.batch = Batch(tokens=200)

    def step(self, layer):
        y = self.batch.run(layer)
        return [y, *torch.autograd.grad(y, [self.batch.x, self.batch.expert_weights], self.batch.dy)]

    def assert_same(self, found, expected):
        for a, b in zip(found, expected):
            self.assertTrue(torch.equal(a, b))

    def test_steps_have_the_bits_of_layers_that_pack_in_each_task(self):
        expected = self.step(make_frozen())
        layer = make_frozen(pack_frozen=True)
        self.assert_same(self.step(layer), expected)
        first = packed_bytes(layer)
        self.assertGreater(min(first), 0)
        for _ in range(3):
            self.assert_same(self.step(layer), expected)
        self.assertEqual(packed_bytes(layer), first)
        with torch.no_grad():
            self.assertTrue(torch.equal(self.batch.run(layer), expected[0]))

    def test_changes_in_place_are_seen(self):
        layer, other = make_frozen(pack_frozen=True), make_frozen(seed=5)
        self.step(layer)
        with torch.no_grad():
            layer.down_weight.copy_(other.down_weight)
            layer.gate_up_weight.copy_(other.gate_up_weight)
        self.assert_same(self.step(layer), self.step(other))
        layer.load_state_dict(make_frozen().state_dict())
        self.assert_same(self.step(layer), self.step(make_frozen()))

    def test_a_change_between_forward_and_backward_is_seen(self):
        layer, other = make_frozen(pack_frozen=True), make_frozen()
        for each in (layer, other):
            self.step(each)
        for each in (layer, other):
            y = self.batch.run(each)
            with torch.no_grad():
                each.down_weight.mul_(2)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                y.backward(self.batch.dy)
        self.assert_same(self.step(layer), self.step(other))

    def test_other_tensors_are_seen(self):
        layer, other = make_frozen(pack_frozen=True), make_frozen(seed=5)
        for seed in range(4):  # memory of the earlier ones is free to be taken again
            other = make_frozen(seed=seed)
            layer.down_weight = torch.nn.Parameter(other.down_weight.detach().clone(), requires_grad=False)
            layer.gate_up_weight.data = other.gate_up_weight.detach().clone()
            self.assert_same(self.step(layer), self.step(other))

    def test_layers_of_one_shape_keep_their_own(self):
        layers = [make_frozen(seed=seed, pack_frozen=True) for seed in range(3)]
        for _ in range(2):
            for seed, layer in enumerate(layers):
                self.assert_same(self.step(layer), self.step(make_frozen(seed=seed)))

    def test_trained_weights_are_not_kept(self):
        layer = make(pack_frozen=True)
        self.batch.grads(layer)
        self.assertEqual(packed_bytes(layer), [0])

    def test_rounded_weights_are_not_kept(self):
        layer = make_frozen(pack_frozen=True, dtype=torch.float32)
        for seed in range(3):
            with torch.no_grad():
                layer.down_weight.copy_(make_frozen(seed=seed, dtype=torch.float32).down_weight)
            other = make_frozen(dtype=torch.float32)
            with torch.no_grad():
                other.down_weight.copy_(layer.down_weight)
            self.assert_same(self.step(layer), self.step(other))
        self.assertEqual(packed_bytes(layer), [0])


if __name__ == "__main__":
    unittest.main()
