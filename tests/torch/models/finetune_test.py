"""FineTuning keeps forwards on a stack and reports impossible calls, with their values."""

import unittest

import torch
from grouped import grouped

from models.lora_test import EXPERTS, HIDDEN, INTERMEDIATE, TOP_K, TOKENS, gradients, make_inputs
from models.eager_moe import EagerMoE
from sluice_torch.callers.finetune import FineTuning
from sluice_torch.lora import LoRAConfig
from torch.utils.checkpoint import checkpoint


def make_tuning(load=True, **options):
    torch.manual_seed(5)
    options = {"dtype": torch.float32, "threads": 1, **options}
    tuning = FineTuning(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, LoRAConfig(4, 8.0), **grouped(**options))
    for name, parameter in tuning.layer.named_parameters():
        if "lora_b" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    if load:
        gate, up = torch.randn(2, EXPERTS, INTERMEDIATE, HIDDEN) / HIDDEN**0.5
        tuning.load_weights(gate, up, torch.randn(EXPERTS, HIDDEN, INTERMEDIATE) / INTERMEDIATE**0.5)
    return tuning


def twin_of(tuning):
    twin = EagerMoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, lora=tuning.layer.lora, dtype=torch.float32)
    twin.load_state_dict({name: value.bfloat16().float() for name, value in tuning.layer.state_dict().items()})
    twin.gate_up_weight.requires_grad_(False)
    twin.down_weight.requires_grad_(False)
    return twin


class FineTuningTest(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)

    def assert_gradients(self, found, expected):
        expected = {name: value for name, value in expected.items() if name != "y"}
        self.assertEqual(list(found), list(expected))
        for name, value in found.items():
            scale = expected[name].abs().max().item()
            self.assertLessEqual((value - expected[name]).abs().max().item(), 2e-2 * scale, name)

    def test_backwards_take_forwards_off_the_stack_last_first(self):
        tuning = make_tuning(depth=2)
        twin = twin_of(tuning)
        first, second = make_inputs(), make_inputs(tokens=11)
        tuning.forward(*first[:3])
        tuning.forward(*second[:3])
        self.assertEqual(tuning.saved, 2)
        for x, ids, weights, dy in (second, first):
            self.assert_gradients(tuning.backward(dy), gradients(twin, x, ids, weights, dy))
        self.assertEqual(tuning.saved, 0)

    def test_a_checkpoint_of_the_caller_does_not_repeat_its_forwards(self):
        tuning = make_tuning(dtype=torch.bfloat16)
        x, ids, weights, dy = make_inputs()
        x, dy = x.bfloat16(), dy.bfloat16()

        class Layer(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return tuning.forward(x, ids, weights)

            @staticmethod
            def backward(ctx, dy):
                return tuning.backward(dy)["x"]

        found = []
        for call in (lambda x: Layer.apply(x), lambda x: checkpoint(Layer.apply, x, use_reentrant=False)) * 2:
            leaf = x.detach().clone().requires_grad_()
            found.append(torch.autograd.grad(call(leaf), leaf, dy)[0])
            self.assertEqual(tuning.saved, 0)
            self.assertTrue(torch.equal(found[-1], found[0]))

    def test_submitted_steps_run_in_order_and_are_waited_for_in_order(self):
        tuning = make_tuning(depth=1)
        x, ids, weights, dy = make_inputs()
        expected = tuning.forward(x, ids, weights)
        tuning.backward(dy)
        with torch.no_grad():
            for _ in range(3):
                tuning.submit_forward(x, ids, weights)
                tuning.submit_backward(dy)
            for _ in range(3):
                self.assertTrue(torch.equal(tuning.wait(), expected))
                self.assertEqual(len(tuning.wait()), 2 + 6)

    def fails(self, kind, words, call, *arguments):
        with self.assertRaises(kind) as caught:
            call(*arguments)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_what_cannot_be_is_an_error_with_its_values(self):
        tuning = make_tuning(load=False, depth=2, max_tokens=64)
        x, ids, weights, dy = make_inputs()
        self.fails(RuntimeError, ["weights of 6 experts are not loaded", "[6, 64, 48]"], tuning.forward, x, ids, weights)
        self.fails(ValueError, ["up has shape [6, 64, 48]", "[6, 48, 64]"], tuning.load_weights,
                   torch.zeros(6, 48, 64), torch.zeros(6, 64, 48), torch.zeros(6, 64, 48))
        tuning.load_weights(torch.zeros(6, 48, 64), torch.zeros(6, 48, 64), torch.zeros(6, 64, 48))
        self.fails(RuntimeError, ["backward without a saved forward", "0 of at most 2"], tuning.backward, dy)
        self.fails(RuntimeError, ["wait without a submitted step", "0 are pending"], tuning.wait)
        many = make_inputs(tokens=65)
        self.fails(ValueError, ["65 tokens", "max_tokens, which is 64"], tuning.forward, *many[:3])
        self.fails(ValueError, ["[37, 64, 1]"], tuning.forward, x[:, :, None], ids, weights)
        self.fails(ValueError, ["expert_ids", "[37, 1]"], tuning.forward, x, ids[:, :1].contiguous(), weights)
        self.assertEqual(tuning.saved, 0)  # the failed forward is not on it
        tuning.forward(x, ids, weights)
        tuning.forward(x, ids, weights)
        self.fails(RuntimeError, ["2 forwards are saved"], tuning.forward, x, ids, weights)
        tuning.forward(x, ids, weights, False)  # there is room for a forward that is not saved
        self.fails(ValueError, ["dy has shape [36, 64]", f"[{TOKENS}, 64]"], tuning.backward, dy[1:])
        self.assertEqual(tuning.saved, 2)
        self.assertEqual(len(tuning.backward(dy)), 8)
        tuning.submit_forward(x, ids, weights)
        self.fails(RuntimeError, ["1 submitted steps are pending"], tuning.forward, x, ids, weights)
        tuning.wait()
        self.fails(ValueError, ["depth is 0"], lambda: make_tuning(depth=0))


if __name__ == "__main__":
    unittest.main()
