"""A small Qwen3-MoE of four layers trains on a text with layers of Sluice in any encodings, as with eager experts."""

import os
import sys
import tempfile
import unittest

import torch

sys.path.insert(0, "tools")  # from the root of the tree, or of the runfiles
from bench_torch.training import BOTH, ENCODED, draw, smoothed, train_all  # noqa: E402

STEPS = 25


class TrainingTest(unittest.TestCase):
    def test_both_losses_fall_alike_and_are_drawn(self):
        torch.set_num_threads(1)
        losses = train_all(BOTH, STEPS, threads=1, hidden=64, intermediate=48)
        eager, sluice = (torch.tensor(losses[name]) for name in ("eager", "sluice"))
        self.assertEqual(len(sluice), STEPS)
        self.assertLess(eager[-5:].mean(), eager[0] - 2.0)
        difference = (eager - sluice).abs().max().item()
        print(f"from {eager[0]:.3f} to {eager[-1]:.3f}, largest difference {difference:.4f}")
        self.assertLess(difference, 0.05)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "loss.png")
            draw(losses, path)
            self.assertEqual(os.listdir(folder), ["loss.png"])
            with open(path, "rb") as file:
                self.assertEqual(file.read(8), b"\x89PNG\r\n\x1a\n")

    def test_every_encoding_trains_as_bfloat16_does(self):
        torch.set_num_threads(1)
        losses = train_all(ENCODED, STEPS, threads=1, hidden=64, intermediate=32)
        bf16 = torch.tensor(losses.pop("bf16"))
        self.assertLess(bf16[-5:].mean(), bf16[0] - 2.0)
        for name, values in losses.items():
            difference = (torch.tensor(values) - bf16).abs().max().item()
            print(f"{name}: largest difference from bf16 {difference:.4f}")
            self.assertLess(difference, 0.05, name)
            self.assertGreater(difference, 1e-6, name)

    def test_smoothing_takes_the_mean_of_what_is_there(self):
        self.assertEqual(smoothed([4.0, 2.0, 0.0, 6.0], 2), [4.0, 3.0, 1.0, 3.0])


if __name__ == "__main__":
    unittest.main()
