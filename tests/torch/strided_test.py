"""Tensors that are not contiguous, or that negate the content of their memory, are used by their values."""

import copy
import unittest

import sluice_torch
import torch
from models import layouts
from moe_layers import EXPERTS, HIDDEN, TOP_K, Batch, make
from torch import nn


def wider(tensor):
    """A part of the columns of a wider tensor."""
    filled = torch.full((*tensor.shape[:-1], tensor.shape[-1] + 3), 7).to(tensor.dtype)
    return torch.cat([filled[..., :1], tensor, filled[..., :2]], -1)[..., 1 : 1 + tensor.shape[-1]]


def negated(tensor):
    """The same values as a view that PyTorch negates when it reads."""
    view = torch._neg_view(-tensor)
    assert view.is_neg() and view.is_contiguous()
    return view


# Each returns a tensor with the same values but other strides, a stride of 0, an offset or a negative bit.
WAYS = {
    "transposed": lambda t: t.t().contiguous().t(),
    "part of the columns": wider,
    "every second row": lambda t: torch.stack([t, torch.zeros_like(t)], 1).flatten(0, 1)[::2],
    "every second column": lambda t: torch.stack([t, torch.zeros_like(t)], 2).flatten(1, 2)[:, ::2],
    "from the middle of a tensor": lambda t: torch.cat([torch.zeros_like(t), t])[len(t) :],
    "a part of a third dimension": lambda t: torch.stack([t, torch.zeros_like(t)], 2)[:, :, 0],
    "by as_strided": lambda t: t.t().contiguous().as_strided(t.shape, (1, t.shape[0])),
}
FLOATS = {"a negated view": negated}


class Values(nn.Module):
    """A block without the logits that it may give, too."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        y = self.block(x)
        return y[0] if isinstance(y, tuple) else y


def is_taken(block, x):
    """Whether an eager block can be called with it: those of which forward() says view() take no transposed one."""
    try:
        return block(x) is not None
    except RuntimeError:
        return False


class StridedTest(unittest.TestCase):
    def assert_same(self, found, expected):
        for a, b in zip(found, expected):
            self.assertEqual(a.dtype, b.dtype)
            self.assertTrue(torch.equal(a, b))

    def step(self, layer, x, ids, weights, dy):
        """y and all gradients."""
        y = layer(x, ids, weights)
        leaves = [x, weights, layer.gate_up_weight, layer.down_weight]
        return [y.detach(), *torch.autograd.grad(y, leaves, dy)]

    def test_each_operand_may_have_any_strides(self):
        batch, tried = Batch(), 0
        for dtype in (torch.bfloat16, torch.float32):
            layer = make(dtype)
            plain = [batch.x.detach().to(dtype), batch.ids, batch.expert_weights.detach(), batch.dy.to(dtype)]
            inputs = [t.clone().requires_grad_(t.is_floating_point()) for t in plain[:3]]
            expected = self.step(layer, *inputs, plain[3])
            for way, place in ((way, place) for way in {**WAYS, **FLOATS} for place in range(4)):
                if place == 1 and way in FLOATS:
                    continue
                with self.subTest(way=way, operand=place, dtype=dtype):
                    given = list(plain)
                    given[place] = {**WAYS, **FLOATS}[way](plain[place])
                    self.assertTrue(torch.equal(given[place], plain[place]))
                    given = [t.detach().requires_grad_(t.is_floating_point()) for t in given[:3]] + given[3:]
                    self.assert_same(self.step(layer, *given), expected)
                    tried += 1
        self.assertEqual(tried, 62)

    def test_expanded_operands_are_what_they_show(self):
        layer, batch = make(), Batch()
        one = batch.x.detach()[:1]
        ids, weights = batch.ids[:1], batch.expert_weights.detach()[:1]
        y = layer(one.expand(9, -1), ids.expand(9, -1), weights.expand(9, -1))
        self.assertTrue(torch.equal(y, layer(*(t.repeat(9, 1) for t in (one, ids, weights)))))
        x = batch.x.detach().clone().requires_grad_()
        layer(x, batch.ids, batch.expert_weights).sum().backward()  # the gradient of y is one number, expanded
        again = batch.x.detach().clone().requires_grad_()
        y = layer(again, batch.ids, batch.expert_weights)
        y.backward(torch.ones_like(y))
        self.assertTrue(torch.equal(x.grad, again.grad))

    def test_three_dimensions_in_any_order(self):
        layer, made = make(), torch.Generator().manual_seed(3)
        x = torch.randn(5, 7, HIDDEN, generator=made).bfloat16().transpose(0, 1)
        ids, weights = Batch(35).ids, Batch(35).expert_weights.detach()
        expected = layer(x.contiguous(), ids, weights)
        self.assertTrue(torch.equal(layer(x, ids, weights), expected))
        as_x = [t.view(7, 5, TOP_K).transpose(0, 1).contiguous().transpose(0, 1) for t in (ids, weights)]
        self.assertTrue(torch.equal(layer(x, *as_x), expected))

    def test_steps_in_flight_take_any_strides(self):
        layer, batch = make(), Batch()
        plain = [batch.x.detach(), batch.ids, batch.expert_weights.detach()]
        with torch.no_grad():
            expected = layer(*plain)
            for name, way in WAYS.items():
                with self.subTest(way=name):
                    pending = layer.submit_forward(*(way(tensor) for tensor in plain))
                    self.assertTrue(torch.equal(pending.wait(), expected))

    def test_rows_are_sent_from_any_strides(self):
        batch = Batch(20)
        plain = [batch.x.detach(), batch.ids, batch.expert_weights.detach()]
        expected = sluice_torch.exchange.dispatch(*plain, EXPERTS)
        back = sluice_torch.exchange.combine(expected[0], None, expected[-1])
        for name, way in WAYS.items():
            with self.subTest(way=name):
                found = sluice_torch.exchange.dispatch(*(way(tensor) for tensor in plain), EXPERTS)
                self.assert_same(found[:4], expected[:4])
                self.assertTrue(torch.equal(sluice_torch.exchange.combine(way(found[0]), None, found[-1]), back))

    def test_replaced_blocks_take_what_the_original_takes(self):
        for layout, make_block in layouts.LAYOUTS.items():
            torch.manual_seed(4)
            block = Values(make_block(HIDDEN)).eval()
            replaced = copy.deepcopy(block)
            sluice_torch.replace_moe(replaced, steps=sluice_torch.Steps(threads=2))
            x = torch.randn(6, 4, HIDDEN)
            with torch.no_grad():
                expected = replaced(x)
                tried = 0
                for name, strided in (
                    ("batch second", x.transpose(0, 1).contiguous().transpose(0, 1)),
                    ("part of the columns", wider(x)),
                    ("every second token", torch.stack([x, x + 1], 2).flatten(1, 2)[:, ::2]),
                ):
                    if is_taken(block, strided):
                        with self.subTest(layout=layout, x=name):
                            self.assertTrue(torch.equal(replaced(strided), expected))
                            tried += 1
                self.assertGreaterEqual(tried, 2, layout)


if __name__ == "__main__":
    unittest.main()
