"""What forwards keep for backwards, depending on `keep`, and how much that is."""

import unittest

import torch
from grouped import grouped

import sluice_torch
from sluice_torch.lora import LoRAConfig

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, TOKENS = 64, 96, 8, 2, 999
ACTIVATIONS = 2 * INTERMEDIATE * TOP_K * TOKENS  # bytes in bf16


def kept(**options):
    """The bytes that one forward keeps until its backward."""
    layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, **grouped(**options))
    x = torch.randn(TOKENS, HIDDEN).to(torch.bfloat16).requires_grad_()
    ids = torch.stack([torch.randperm(EXPERTS)[:TOP_K] for _ in range(TOKENS)]).int()
    before = sluice_torch.memory()["saved_bytes"]
    y = layer(x, ids, torch.rand(TOKENS, TOP_K, requires_grad=True))
    saved = sluice_torch.memory()["saved_bytes"] - before
    y.backward(torch.randn_like(y))
    return saved


class KeepTest(unittest.TestCase):
    def test_keeping_less_takes_less_memory(self):
        saved = {keep: kept(encode="mxfp8", keep=keep) for keep in ("all", "minimal")}
        print(f"kept for backward, {TOKENS} tokens, mxfp8: all {saved['all']} bytes, minimal {saved['minimal']}")
        self.assertLess(saved["minimal"], 0.8 * saved["all"])

    def test_no_activation_is_kept_that_its_gradient_writes_weighted(self):
        for lora in (None, LoRAConfig(4, 6.0)):
            with self.subTest(lora=lora):
                saved = {keep: kept(lora=lora, keep=keep) for keep in ("all", "minimal")}
                print(f"kept for backward, {TOKENS} tokens, bf16: all {saved['all']} bytes, minimal {saved['minimal']}")
                self.assertLess(saved["all"], saved["minimal"] + ACTIVATIONS / 2)


if __name__ == "__main__":
    unittest.main()
