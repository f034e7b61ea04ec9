"""What forwards keep for backwards, depending on `keep`, and how much that is."""

import unittest

import torch

import sluice_torch
from models.lora_test import make_inputs, make_pair
from sluice_torch.lora import LoRAConfig

TOKENS = 999


class KeepTest(unittest.TestCase):
    def test_keeping_less_takes_less_memory(self):
        saved = {}
        for keep in ("all", "minimal"):
            layer, _ = make_pair(LoRAConfig(4, 6.0), torch.bfloat16, keep=keep)
            x, ids, weights, dy = make_inputs(torch.bfloat16, tokens=TOKENS)
            before = sluice_torch.memory()["saved_bytes"]
            layer(x, ids, weights).backward(dy)
            saved[keep] = sluice_torch.memory()["saved_bytes"] - before
        print(f"kept for backward, {TOKENS} tokens: all {saved['all']} bytes, minimal {saved['minimal']}")
        self.assertLess(saved["minimal"], 0.8 * saved["all"])


if __name__ == "__main__":
    unittest.main()
