"""Models of each layout train with layers of Sluice as with eager experts: the same losses, step by step."""

import os
import unittest

import torch

import sluice_torch
from decoder import Decoder, loss_of
from models import layouts

STEPS = 20
TEXT = os.path.join(os.path.dirname(os.path.abspath(layouts.__file__)), "text", "constitution.txt")


def batches():
    with open(TEXT, "rb") as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    generator = torch.Generator().manual_seed(2)
    for _ in range(STEPS):
        starts = torch.randint(0, len(text) - 40, (4,), generator=generator)
        yield torch.stack([text[start : start + 33] for start in starts.tolist()])


def train(model):
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=3e-3)
    losses = []
    for tokens in batches():
        loss = loss_of(model, tokens)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


class CurvesTest(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)

    def compare(self, make_block, dtype, tolerance, prepare=lambda model: model):
        """Both models start equal; the loss falls, and never differs by more than `tolerance`."""
        torch.manual_seed(4)
        model = prepare(Decoder(make_block).to(dtype))
        twin = prepare(Decoder(make_block).to(dtype))
        twin.load_state_dict(model.state_dict())
        self.assertEqual(len(sluice_torch.replace_moe(model, steps=sluice_torch.Steps(threads=1))), 2)
        found, expected = train(model), train(twin)
        self.assertLess(expected[-1], expected[0] - 1.0)
        difference = (found - expected).abs().max().item()
        print(f"{dtype}: from {expected[0]:.3f} to {expected[-1]:.3f}, largest difference {difference:.4f}")
        self.assertLess(difference, tolerance)

    def test_every_layout_with_float32_parameters(self):
        for name, block in layouts.LAYOUTS.items():
            with self.subTest(layout=name):
                print(name, end=" ")
                self.compare(block, torch.float32, 0.03)

    def test_every_layout_with_bfloat16_parameters(self):
        for name, block in layouts.LAYOUTS.items():
            with self.subTest(layout=name):
                print(name, end=" ")
                self.compare(block, torch.bfloat16, 0.06)

    def test_a_model_whose_experts_are_frozen(self):
        def freeze(model):
            for layer in model.layers:
                layer.mlp.experts.requires_grad_(False)
            return model

        self.compare(layouts.Qwen3Block, torch.float32, 0.03, freeze)


if __name__ == "__main__":
    unittest.main()
