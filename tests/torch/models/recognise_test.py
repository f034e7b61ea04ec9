"""replace_moe() refuses whole classes of blocks that a layer would silently change, and leaves the model unchanged."""

import contextlib
import random
import threading
import unittest
from unittest import mock

import numpy
import torch
from torch import nn

from models import layouts, variants
from models.eager_moe import EagerMoE
from models.untouched import assert_untouched, everything_of
from sluice_torch.replacing import replace
from sluice_torch.replacing.replace import replace_moe
from sluice_torch.replacing.structure import Unsupported


def random_numbers():
    return torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()


@contextlib.contextmanager
def default_bfloat16():
    torch.set_default_dtype(torch.bfloat16)
    try:
        yield
        assert torch.get_default_dtype() == torch.bfloat16
    finally:
        torch.set_default_dtype(torch.float32)


class RecogniseTest(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        torch.manual_seed(2)

    def refused(self, block, *words):
        """With an error that says the words; the model and the caller's random numbers are as they were."""
        model = nn.Sequential(nn.Identity(), block.train(), variants.Block())
        model[1].gate.weight.grad = torch.ones_like(model[1].gate.weight)
        before, numbers = everything_of(model), random_numbers()
        losses = len(variants.LOSSES)
        with self.assertRaises(Unsupported) as caught:
            replace_moe(model, layer=EagerMoE)
        self.assertIn("block '1'", str(caught.exception))
        self.assertNotIn("block '2'", str(caught.exception))
        for word in words:
            self.assertIn(word, str(caught.exception))
        assert_untouched(self, model, before)
        self.assertEqual(len(variants.LOSSES), losses)
        for now, then in zip(random_numbers(), numbers):
            self.assertTrue(torch.equal(now, then) if isinstance(now, torch.Tensor) else now == then)

    def test_state_that_a_layer_does_not_use_is_named_even_where_it_has_no_effect_yet(self):
        blocks = variants.state_variants()
        self.assertGreaterEqual(len(blocks), 20)
        for name, make in blocks.items():
            with self.subTest(state=name):
                self.refused(make(), name.split(" (")[0])

    def test_what_a_block_does_in_training_only_is_refused_before_anything_is_changed(self):
        blocks = variants.training_variants()
        self.assertGreaterEqual(len(blocks), 20)
        for name, make in blocks.items():
            with self.subTest(block=name):
                self.refused(make(), name.split(":")[0])

    def test_what_would_be_lost_with_the_experts_or_their_block_is_refused(self):
        def parametrized(block):
            nn.utils.parametrize.register_parametrization(block.experts[2].up_proj, "weight", nn.Identity())

        def tied(block):
            block.experts[3].up_proj.weight = block.experts[4].up_proj.weight

        def twice(block):
            block.experts[3] = block.experts[4]

        def marked(block):
            block.experts[0].up_proj.weight.main_grad = torch.zeros(variants.INTERMEDIATE, variants.HIDDEN)

        changes = {
            "has hooks (Linear)": lambda block: block.experts[1].down_proj.register_forward_pre_hook(lambda *_: None),
            "has hooks (GatedMlp)": lambda block: block.experts[1].register_full_backward_hook(lambda *_: None),
            "has hooks (Block)": lambda block: block._register_load_state_dict_pre_hook(lambda *_: None),
            "(Linear), parametrizations": lambda block: block.experts[7].up_proj.weight.register_hook(lambda grad: grad * 2),
            "has hooks (ParametrizedLinear)": parametrized,
            "has hooks (Block), parametrizations or its own forward": lambda block: setattr(block, "forward", block.forward),
            "shares weights of experts": tied,
            "shares experts": twice,
            "main_grad": marked,
            "cannot be copied": lambda block: setattr(block, "lock", threading.Lock()),
            "expert 5 computes something else": lambda block: setattr(block.experts[5], "act_fn", nn.ReLU()),
        }
        for words, change in changes.items():
            with self.subTest(words):
                block = variants.Block()
                change(block)
                self.refused(block, words)

    def test_experts_that_two_blocks_share_are_refused_in_both(self):
        for make in (variants.Block, layouts.StackedBlock):
            model = nn.Sequential(make(), make())
            model[1].experts = model[0].experts
            before = everything_of(model)
            with self.assertRaisesRegex(Unsupported, "block '0'.* shares experts .*1.experts"):
                replace_moe(model, layer=EagerMoE)
            assert_untouched(self, model, before)

    def test_an_error_of_any_layer_leaves_all_blocks_as_they_are(self):
        made = []

        def second_fails(*arguments, **options):
            made.append(arguments)
            if len(made) == 2:
                raise MemoryError("no memory for the second layer")
            return EagerMoE(*arguments, **options)

        model = nn.Sequential(variants.Block(), layouts.TransposedBlock(), layouts.StackedBlock())
        before = everything_of(model)
        with self.assertRaisesRegex(MemoryError, "second layer"):
            replace_moe(model, layer=second_fails)
        assert_untouched(self, model, before)

    def test_blocks_of_one_structure_are_tried_once_and_others_each(self):
        tries = []

        def noisy(noise):
            block = variants.Block()
            block.noise = noise
            return block

        real = replace._Found._try_all
        with mock.patch.object(replace._Found, "_try_all", lambda *each: tries.append(each) or real(*each)):
            model = nn.Sequential(*[variants.Block() for _ in range(4)], noisy(0.0), noisy(0.1), variants.Block(top_k=3))
            self.assertEqual(len(replace_moe(model, layer=EagerMoE)), 7)
        self.assertEqual(len(tries), 4)
        self.assertEqual([block.routing.top_k for block in model], [2] * 6 + [3])

    def test_one_of_equal_classes_that_is_noisy_is_told_from_the_others(self):
        make = variants.variant(
            prepare=lambda self: setattr(self, "noise", 0.0),
            logits=lambda self, rows: self.gate(rows) + self.noise * torch.randn(len(rows), variants.EXPERTS),
        )
        model = nn.Sequential(make(), make(), make())
        model[1].noise = 0.5
        with self.assertRaisesRegex(Unsupported, "^block '1' .*another result each time in evaluation mode"):
            replace_moe(model, layer=EagerMoE)
        replace_moe(model, layer=EagerMoE, strict=False)
        self.assertEqual([hasattr(block, "layout") for block in model], [True, False, True])
        self.assertEqual(model[0].noise, 0.0)
        with self.assertRaisesRegex(AttributeError, "noise is what the replaced block was recognised by"):
            model[0].noise = 0.5

    def test_modes_of_the_caller_change_nothing(self):
        modes = (torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16), default_bfloat16)
        detached = variants.training_variants()["another gradient: weights detached"]
        for mode in modes:
            model = nn.Sequential(variants.Block(), layouts.StackedBlock())
            refused = nn.Sequential(detached())
            with mode():
                self.assertEqual(replace_moe(model, layer=EagerMoE), ["0", "1"])
                with self.assertRaisesRegex(Unsupported, "another gradient"):
                    replace_moe(refused, layer=EagerMoE)
        self.assertEqual(torch.get_default_dtype(), torch.float32)

    def test_a_block_under_two_names_of_one_module_is_replaced_under_both(self):
        model = nn.Module()
        model.first = model.second = variants.Block()
        self.assertEqual(replace_moe(model, layer=EagerMoE), ["first"])
        self.assertIs(model.first, model.second)
        self.assertTrue(hasattr(model.second, "layout"))


if __name__ == "__main__":
    unittest.main()
