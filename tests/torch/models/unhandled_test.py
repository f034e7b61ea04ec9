"""Blocks that look like a mixture of experts but are not replaced are reported with a reason; other models are not."""

import unittest
import warnings

import torch
from torch import nn

from models import layouts
from models.eager_moe import EagerMoE
from models.unhandled import PLAIN, UNHANDLED
from models.untouched import assert_untouched, everything_of
from models.variants import Block
from sluice_torch.replacing.replace import replace_moe
from sluice_torch.replacing.structure import Unsupported


def inside(block):
    return nn.ModuleDict({"first": Block(), "layer": nn.ModuleDict({"attention": nn.Linear(32, 32), "mlp": block})})


class UnhandledTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        torch.set_num_threads(1)

    def test_each_is_an_error_with_its_name_and_reason_and_nothing_is_replaced(self):
        self.assertGreaterEqual(len(UNHANDLED), 20)
        for name, (make, reason) in UNHANDLED.items():
            with self.subTest(block=name):
                model = inside(make())
                before = everything_of(model)
                with self.assertRaises(Unsupported) as caught:
                    replace_moe(model, layer=EagerMoE)
                self.assertRegex(str(caught.exception), r"^block 'layer\.mlp")
                self.assertIn(reason, str(caught.exception))
                self.assertNotIn("first", str(caught.exception))
                assert_untouched(self, model, before)

    def test_without_strict_the_others_are_replaced_and_these_are_named_with_their_reasons(self):
        for name, (make, reason) in UNHANDLED.items():
            with self.subTest(block=name), warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                model = inside(make())
                kept = everything_of(model.layer)
                replaced = replace_moe(model, layer=EagerMoE, strict=False)
                self.assertEqual(replaced, ["first"])
                skipped = list(replaced.skipped)
                self.assertEqual(len(skipped), 1, skipped)
                self.assertTrue(skipped[0].startswith("layer.mlp"), skipped)
                self.assertIn(reason, replaced.skipped[skipped[0]])
                self.assertEqual(sum(str(each.message).count("left unchanged") for each in seen), 1)
                assert_untouched(self, model.layer, kept)
                again = replace_moe(model, layer=EagerMoE, strict=False)
                self.assertEqual((list(again), list(again.skipped)), ([], skipped))

    def test_models_without_experts_are_not_taken_for_one_and_a_warning_says_so(self):
        for name, make in PLAIN.items():
            with self.subTest(model=name), warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                replaced = replace_moe(make(), layer=EagerMoE)
                self.assertEqual((list(replaced), replaced.skipped), ([], {}))
                self.assertTrue(any("found no block that looks like MoE" in str(each.message) for each in seen))

    def test_all_blocks_are_named_in_one_error(self):
        model = nn.Sequential(layouts.Qwen3Block(act=nn.GELU()), Block(), *[make() for make, _ in UNHANDLED.values()])
        with self.assertRaises(Unsupported) as caught:
            replace_moe(model, layer=EagerMoE)
        lines = str(caught.exception).split("\n")
        self.assertEqual(len(lines), 1 + len(UNHANDLED))
        self.assertTrue(all(line.startswith("block '") for line in lines))


if __name__ == "__main__":
    unittest.main()
