"""Blocks of gpt-oss: experts with biases, gate and up in turn, and a limit, replaced by layers."""

import copy
import unittest

import torch
from torch import nn

import sluice_torch
from models import layouts
from moe_eager import BOUND, error
from sluice_torch import state
from sluice_torch.graphs import BIASES, WEIGHTS
from sluice_torch.replacing.structure import Unsupported

BLOCKS = {"gpt-oss": layouts.OldOssBlock, "gpt-oss (transformers 5)": layouts.OssBlock}
NAMES = ("gate_up_proj", "down_proj", "gate_up_proj_bias", "down_proj_bias")


def in_layout(layer, values):
    """Tensors of the layer's parameters, in the order of NAMES, as the original block has them."""
    for value in values[::2]:
        gate, up = value.chunk(2, 1)
        value.copy_(torch.stack((gate, up), 2).flatten(1, 2))
    return [each.transpose(1, 2) if each.dim() == 3 else each for each in values]


class GptOssTest(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        torch.manual_seed(4)

    def test_a_replaced_block_gives_the_same_and_its_experts_get_the_same_gradients(self):
        for family, make in BLOCKS.items():
            block = make()
            model = nn.Sequential(copy.deepcopy(block))
            found = sluice_torch.replace_moe(model, steps=sluice_torch.Steps(threads=1))
            self.assertEqual([row.models for row in found.families.values()], [family])
            layer, results = model[0].experts.layer, []
            x, dy = torch.randn(2, 3, 20, 64)
            for each in (model[0], block):
                rows = x.clone().requires_grad_()
                y, scores = each(rows)
                y.backward(dy)
                results.append([y, scores, rows.grad, each.router.weight.grad, each.router.bias.grad])
            results[0] += in_layout(layer, [getattr(layer, name).grad for name in (*WEIGHTS, *BIASES)])
            results[1] += [getattr(block.experts, name).grad for name in NAMES]
            for number, (one, other) in enumerate(zip(*results)):
                self.assertEqual(one.shape, other.shape)
                self.assertLess(error(one, other), 1.5 * BOUND, (family, number))

    def test_a_state_has_the_order_of_the_original(self):
        block = layouts.OssBlock()
        original = {f"0.{name}": each.clone() for name, each in block.state_dict().items()}
        model = nn.Sequential(block)
        sluice_torch.replace_moe(model)
        layer = model[0].experts.layer
        gate_up, bias = (original[f"0.experts.{name}"] for name in NAMES[::2])
        self.assertTrue(torch.equal(layer.gate_up_weight[3, 2], gate_up[3, :, 4]))  # row 2 of the gate
        self.assertTrue(torch.equal(layer.gate_up_bias[3, 48 + 5], bias[3, 11]))  # number 5 of up
        found = state.to_original(model)
        self.assertEqual(set(found), set(original))
        for name, tensor in original.items():
            self.assertTrue(torch.equal(found[name], tensor), name)
        other = nn.Sequential(layouts.OssBlock())
        sluice_torch.replace_moe(other)
        other.load_state_dict(state.from_original(other, original))
        for name, tensor in model.state_dict().items():
            self.assertTrue(torch.equal(other.state_dict()[name], tensor), name)

    def test_parameters_are_trained_as_they_were(self):
        for frozen in ((), ("gate_up_proj",), ("down_proj_bias",), NAMES):
            block = layouts.OssBlock()
            for name in frozen:
                getattr(block.experts, name).requires_grad_(False)
            model = nn.Sequential(block)
            sluice_torch.replace_moe(model)
            layer = model[0].experts.layer
            own = dict(zip(NAMES, (getattr(layer, name) for name in (*WEIGHTS, *BIASES))))
            self.assertEqual([name for name in NAMES if not own[name].requires_grad], list(frozen))
        for options in ({"encode": "int8"}, {"lora": sluice_torch.LoRAConfig(2)}):
            model = nn.Sequential(layouts.OssBlock())
            sluice_torch.replace_moe(model, **options)
            layer = model[0].experts.layer
            self.assertFalse(any(getattr(layer, name).requires_grad for name in (*WEIGHTS, *BIASES)))

    def test_experts_of_another_form_are_refused(self):
        def without(name):
            return lambda experts: delattr(experts, name)

        def of_shape(name, *shape):
            return lambda experts: setattr(experts, name, nn.Parameter(torch.zeros(shape)))

        class Halved(layouts.OssExperts):
            def one(self, expert):
                apply = super().one(expert)
                return lambda rows: apply(rows) - self.down_proj_bias[expert] / 2

        cases = {
            r"experts have gate_up_proj_bias of shape \[8, 96\], expected nothing but two stacked tensors, and two biases or none": without("down_proj_bias"),
            r"gate_up_proj_bias \[8, 48\], .* compute none of": of_shape("gate_up_proj_bias", 8, 48),
            r"down_proj_bias \[7, 64\] .* compute none of": of_shape("down_proj_bias", 7, 64),
            r"compute none of swiglu, geglu, .* with the gate before up, or both in turn": without("limit"),
            r"compute none of swiglu": lambda experts: setattr(experts, "__class__", Halved),
        }
        for message, change in cases.items():
            block = layouts.OssBlock()
            change(block.experts)
            with self.subTest(message), self.assertRaisesRegex(Unsupported, f"^block '0' .*{message}"):
                sluice_torch.replace_moe(nn.Sequential(block))


if __name__ == "__main__":
    unittest.main()
