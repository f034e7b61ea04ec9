"""replace_moe() refuses whole classes of blocks that a layer would silently change, and leaves the model as it was."""

import random
import unittest

import numpy
import torch
from torch import nn

from models import variants
from models.eager_moe import EagerMoE
from models.untouched import assert_untouched, everything_of
from sluice_torch.replace import replace_moe
from sluice_torch.structure import Unsupported


def random_numbers():
    return torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()


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


if __name__ == "__main__":
    unittest.main()
