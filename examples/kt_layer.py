#!/usr/bin/python3
"""Fine-tunes the experts of one layer of a trained model as kt-kernel's callers do (docs/KT.md): 8-bit weights, adapters of rank 8."""
import argparse

import common
import torch
from common import say
from tqdm import tqdm

from sluice_torch.kt import KTMoEWrapper  # instead of: from kt_kernel import KTMoEWrapper


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="folder that train_lm.py has written")
    parser.add_argument("--method", default="AMXINT8_SFT", help="AMXBF16_SFT, AMXINT8_SFT (default) or AMXINT4_SFT")
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    _, hidden, _, experts, top_k, intermediate = map(common.read_config(args.model).get, common.SIZES)
    rank, tokens, threads = 8, 256, torch.get_num_threads()
    wrapper = KTMoEWrapper(
        0, experts, top_k, hidden, intermediate, None, threads, 1, args.model, tokens, method=args.method, mode="sft",
        lora_rank=rank, lora_alpha=16.0, group_size=32,
    )
    wrapper.load_weights()
    sizes = [(rank, hidden), (intermediate, rank)] * 2 + [(rank, intermediate), (hidden, rank)]
    torch.manual_seed(1)
    adapters = [(torch.randn(experts, *size) * (size[1] ** -0.5 if size[0] == rank else 0.0)).bfloat16() for size in sizes]
    gradients = [torch.zeros_like(each) for each in adapters]
    wrapper.init_lora_weights(*adapters, *gradients)
    optimizer = torch.optim.AdamW(adapters, lr=5e-3, weight_decay=0.0)
    x = torch.randn(tokens, hidden).bfloat16()
    weights, ids = torch.randn(tokens, experts).softmax(-1).topk(top_k, dim=-1)
    target, losses = torch.randn(tokens, hidden), []
    for _ in tqdm(range(args.steps), desc="adapters", unit="step"):
        y = wrapper.forward(x, ids, weights, save_for_backward=True).float()
        losses.append((y - target).square().mean().item())
        wrapper.backward((2 / y.numel() * (y - target)).bfloat16())
        for adapter, gradient in zip(adapters, gradients):
            adapter.grad = gradient
        optimizer.step()
    say(f"{args.method}: the squared error to random targets went from {losses[0]:.4f} to {losses[-1]:.4f}; look at the import: nothing else changes")


if __name__ == "__main__":
    common.run(main)
