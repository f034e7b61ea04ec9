"""Layers with adapters: values and all gradients are those of eager PyTorch."""

import itertools
import unittest

import torch
from grouped import grouped

import sluice_torch
from models.eager_moe import EagerMoE
from sluice_torch import Steps
from sluice_torch.lora import LoRAConfig

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, TOKENS = 64, 48, 6, 2, 37


def make_pair(config, dtype=torch.float32, **options):
    """A layer and its eager twin in float32, both with the same random adapters."""
    torch.manual_seed(9)
    sizes = (HIDDEN, INTERMEDIATE, EXPERTS, TOP_K)
    layer = sluice_torch.MoE(*sizes, lora=config, dtype=dtype, **grouped(threads=1, **options))
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if "lora_b" in name:
                parameter.normal_(std=config.rank**-0.5)
            elif name.endswith("weight"):
                parameter.normal_(std=parameter.shape[2] ** -0.5)
    twin = EagerMoE(*sizes, lora=config, dtype=torch.float32)
    # what the products of the layer see: rounded to bfloat16
    twin.load_state_dict({name: value.bfloat16().float() for name, value in layer.state_dict().items()})
    twin.gate_up_weight.requires_grad_(False)
    twin.down_weight.requires_grad_(False)
    return layer, twin


def make_inputs(dtype=torch.float32, tokens=TOKENS):
    generator = torch.Generator().manual_seed(8)
    x = torch.randn(tokens, HIDDEN, generator=generator).bfloat16().to(dtype).requires_grad_()
    weights, ids = torch.rand(tokens, EXPERTS - 1, generator=generator).softmax(-1).topk(TOP_K)  # the last has none
    dy = torch.randn(tokens, HIDDEN, generator=generator).bfloat16().to(dtype)
    return x, ids, weights.detach().requires_grad_(), dy


def gradients(layer, x, ids, weights, dy):
    """y and the gradients of x, of the routing weights and of what is trained, by name."""
    trained = {name: parameter for name, parameter in layer.named_parameters() if parameter.requires_grad}
    y = layer(x, ids, weights)
    found = torch.autograd.grad(y, [x, weights, *trained.values()], dy)
    return dict(zip(["y", "x", "expert_weights", *trained], [y.detach(), *found]))


class LoraTest(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)

    def assert_close(self, found, expected, tolerance=2e-2):
        self.assertEqual(list(found), list(expected))
        for name, value in found.items():
            scale = expected[name].abs().max().item()
            difference = (value.float() - expected[name].float()).abs().max().item()
            self.assertLessEqual(difference, tolerance * scale, name)
            self.assertGreater(scale, 0, name)

    def test_values_and_all_gradients_are_those_of_eager_pytorch(self):
        for keep, dtype in itertools.product(("all", "minimal"), (torch.float32, torch.bfloat16)):
            with self.subTest(keep=keep, dtype=dtype):
                config = LoRAConfig(4, 6.0)
                layer, twin = make_pair(config, dtype, keep=keep)
                found = gradients(layer, *make_inputs(dtype))
                self.assertEqual(len(found), 3 + 6)
                self.assertEqual(found["gate_lora_a"].dtype, dtype)
                self.assert_close(found, gradients(twin, *make_inputs()))

    def test_any_targets_can_be_adapted(self):
        for targets in (("gate",), ("up",), ("down",), ("up", "down")):
            with self.subTest(targets=targets):
                layer, twin = make_pair(LoRAConfig(3, 3.0, targets))
                found = gradients(layer, *make_inputs())
                self.assertEqual(list(found)[3:], LoRAConfig(3, 3.0, targets).names())
                self.assert_close(found, gradients(twin, *make_inputs()))

    def test_a_new_layer_is_what_it_is_without_adapters(self):
        torch.manual_seed(3)
        layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, lora=LoRAConfig(8, 16), steps=Steps(threads=1))
        plain = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, steps=Steps(threads=1))
        plain.load_state_dict({name: value for name, value in layer.state_dict().items() if "lora" not in name})
        x, ids, weights, _ = make_inputs(torch.bfloat16)
        with torch.no_grad():
            self.assertTrue(torch.equal(layer(x, ids, weights), plain(x, ids, weights)))

    def test_merged_adapters_give_the_same_without_their_products(self):
        config = LoRAConfig(4, 6.0)
        layer, _ = make_pair(config)
        x, ids, weights, _ = make_inputs()
        plain = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, dtype=torch.float32, steps=Steps(threads=1))
        with torch.no_grad():
            apart = layer(x, ids, weights)
            parameters = dict(layer.named_parameters())
            plain.gate_up_weight.copy_(layer.gate_up_weight)
            plain.down_weight.copy_(layer.down_weight)
            before = plain.down_weight.clone()
            sluice_torch.lora.merge_adapters(config, parameters, plain.gate_up_weight, plain.down_weight)
            self.assertFalse(torch.allclose(before, plain.down_weight))
            merged = plain(x, ids, weights)
            self.assert_close({"y": merged}, {"y": apart})
            sluice_torch.lora.merge_adapters(config, parameters, plain.gate_up_weight, plain.down_weight, sign=-1)
            torch.testing.assert_close(plain.down_weight, before)

    def test_adapters_that_make_no_sense_are_refused_with_their_values(self):
        for arguments, word in (
            ((0,), "rank of adapters is 0"),
            ((4, -1.0), "alpha of adapters is -1.0"),
            ((4, float("nan")), "alpha of adapters is nan"),
            ((4, 4, ("gate", "middle")), "'middle'"),
            ((4, 4, ("gate", "gate")), "expected some of gate, up, down"),
            ((4, 4, ()), "targets of adapters are ()"),
        ):
            with self.assertRaises(ValueError) as caught:
                LoRAConfig(*arguments)
            self.assertIn(word, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
