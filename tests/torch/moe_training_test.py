"""sluice_torch.MoE under autograd: orders of steps, checkpointing, sums of gradients, optimizers."""

import os
import subprocess
import sys
import unittest

import sluice_torch
import torch
from moe_eager import BOUND, eager, error
from moe_layers import Batch, MoETest, make
from torch.utils.checkpoint import checkpoint


# After a step with or without gradients of weights it makes and frees 48 MB 48 times, and prints the page faults of the last 24. Unless told
# otherwise, glibc maps what is larger than 32 MB anew each time; a smaller one may or may not be given back, by what lies behind it.
FAULTS = """
import resource, sys, torch
from moe_layers import Batch, make
layer, batch = make(), Batch()
batch.run(layer) if sys.argv[1] == "training" else batch.run(layer.requires_grad_(False))
for number in range(48):
    if number == 24:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(12 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES = (48 << 20) // 4096


class TrainingTest(MoETest):
    def test_memory_that_training_frees_is_kept_unless_the_user_has_set_limits(self):
        def faults(kind, **variables):
            ended = subprocess.run(
                [sys.executable, "-c", FAULTS, kind], capture_output=True, text=True, timeout=300, env={**os.environ, **variables}
            )
            self.assertEqual(ended.returncode, 0, ended.stderr)
            return int(ended.stdout)

        self.assertLess(faults("training"), PAGES)
        self.assertGreater(faults("inference"), 2 * PAGES)
        self.assertGreater(faults("training", MALLOC_TRIM_THRESHOLD_="131072"), 2 * PAGES)

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


if __name__ == "__main__":
    unittest.main()
