"""Small layers at one rank, tensors of a step for them, and the results of plain PyTorch for both."""

import unittest

import sluice_torch
import torch
from grouped import grouped
from moe_eager import BOUND, eager, error, route

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 64, 48, 8, 2
NAMES = ("x", "expert_weights", "gate_up_weight", "down_weight")


def make(dtype=torch.bfloat16, seed=0, **options):
    torch.manual_seed(seed)
    return sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, dtype=dtype, **grouped(threads=2, **options))


class Batch:
    """Tensors of a step; all except ids require gradients."""

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
