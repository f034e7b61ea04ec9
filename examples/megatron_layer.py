#!/usr/bin/python3
"""One layer of a trained model with its experts on several ranks, written as Megatron's token dispatchers are (docs/MEGATRON.md).

On two ranks: python3 -m torch.distributed.run --nproc_per_node 2 --redirects 1:1 --tee 1:1 examples/megatron_layer.py MODEL
"""
import argparse
import copy

import common
import torch
import torch.distributed as dist
from common import RANK, RANKS, say
from decoder import sum_of_experts
from tqdm import tqdm

from sluice_torch.fused_a2a import fused_combine, fused_dispatch  # instead of: from megatron.core.transformer.moe.fused_a2a


class Experts(torch.nn.Module):
    """A block whose experts are shared by the ranks: each has some of them, in order."""

    def __init__(self, block, group):
        super().__init__()
        self.gate, self.top_k, self.count, self.group = block.gate, block.top_k, len(block.experts), group
        own = self.count // group.size()
        self.experts = copy.deepcopy(block.experts[group.rank() * own : (group.rank() + 1) * own])

    def forward(self, x):
        probs, indices = self.gate(x).softmax(-1).topk(self.top_k, dim=-1)
        probs = probs / probs.sum(-1, keepdim=True)
        rows, indices, probs, _, handle = fused_dispatch(x, indices, probs, self.count, self.group)
        y, _ = fused_combine(sum_of_experts(self.experts, rows, indices, probs), self.group, handle)
        return y


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder that train_lm.py has written")
    parser.add_argument("--tokens", type=int, default=512, help="of each rank (default 512)")
    args = parser.parse_args()
    block = common.load_model(args.model, "eager").float().model.layers[0].mlp
    if len(block.experts) % RANKS:
        raise ValueError(f"{args.model} has {len(block.experts)} experts, expected a multiple of the ranks, {RANKS}")
    if RANKS == 1:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    layer, furthest = Experts(block, dist.group.WORLD), 0.0
    for step in tqdm(range(4), desc="steps", disable=RANK > 0):
        x = torch.randn(args.tokens, block.gate.in_features, generator=torch.Generator().manual_seed(4 * RANK + step))
        ours, theirs = (x.clone().requires_grad_() for _ in range(2))
        y, expected = layer(ours), block(theirs)[0]
        gradients = (torch.autograd.grad(each.square().sum(), x)[0] for each, x in ((y, ours), (expected, theirs)))
        for found, wanted in ((y, expected), tuple(gradients)):
            furthest = max(furthest, ((found - wanted).norm() / wanted.norm()).item())
    say(f"{RANKS} ranks: y and its gradient differ from one process's by {furthest:.1e}; look at the import: nothing else changes")


if __name__ == "__main__":
    common.run(main)
