"""Shared by the tests of the op: a small layer, its tensors, and the same layer in plain PyTorch."""

import os
import random

import torch
from sluice_torch import cache, graphs

torch.ops.load_library(os.environ["SLUICE_TORCH_LIBRARY"])

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, MAX_TOKENS = 64, 48, 8, 2, 128
WEIGHTS = ["gate_up_weight", "down_weight"]
ALL = ("x", "expert_weights", "gate_up_weight", "down_weight")


def program(ranks=1, trainable=ALL, **options):
    """The path of the layer's program; without `trainable` it has no backward."""
    shape = graphs.LayerShape(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, ranks=ranks, max_tokens=MAX_TOKENS)
    return cache.compile_graph(graphs.forward_graph(shape), trainable=trainable, **options)


def alone(threads=2):
    return torch.classes.sluice.Ranks("", 0, 1, threads, 20.0)


def layer(ranks=None, **options):
    return torch.classes.sluice.Layer(ranks or alone(), program(**options), WEIGHTS)


def job_name():
    return f"torch-test-{random.SystemRandom().getrandbits(64):x}"


class Tensors:
    """x, ids, expert_weights and weights of a layer; each except ids is a leaf that requires a gradient."""

    def __init__(self, tokens=37, seed=1, experts=range(EXPERTS), weights_seed=1):
        made = torch.Generator().manual_seed(seed)
        self.x = torch.randn(tokens, HIDDEN, generator=made).bfloat16().requires_grad_()
        chosen = [torch.randperm(EXPERTS, generator=made)[:TOP_K] for _ in range(tokens)]
        self.ids = torch.stack(chosen) if tokens else torch.zeros(0, TOP_K, dtype=torch.long)
        self.expert_weights = torch.rand(tokens, TOP_K, generator=made).requires_grad_()
        self.dy = torch.randn(tokens, HIDDEN, generator=made).bfloat16()
        made = torch.Generator().manual_seed(weights_seed)
        gate_up = 0.1 * torch.randn(EXPERTS, 2 * INTERMEDIATE, HIDDEN, generator=made)
        down = 0.1 * torch.randn(EXPERTS, HIDDEN, INTERMEDIATE, generator=made)
        own = list(experts)
        self.gate_up = gate_up[own].bfloat16().requires_grad_()
        self.down = down[own].bfloat16().requires_grad_()

    @property
    def leaves(self):
        return [self.x, self.expert_weights, self.gate_up, self.down]

    def run(self, layer, main_grads=()):
        weights = [self.gate_up, self.down]
        return torch.ops.sluice.moe(layer, self.x, self.ids, self.expert_weights, weights, list(main_grads))

    def plain(self):
        """y in float32, by a loop over experts."""
        x, gate_up, down = self.x.float(), self.gate_up.float(), self.down.float()
        y = torch.zeros(len(x), HIDDEN)
        for expert in range(EXPERTS):
            token, k = (self.ids == expert).nonzero(as_tuple=True)
            gate, up = (x[token] @ gate_up[expert].T).chunk(2, dim=1)
            rows = (torch.nn.functional.silu(gate) * up) @ down[expert].T
            y = y.index_add(0, token, rows * self.expert_weights[token, k][:, None])
        return y


def difference(found, expected):
    """The largest difference, relative to the largest expected number."""
    largest = expected.float().abs().max().item() if expected.numel() else 0
    if not expected.numel():
        return 0.0
    return (found.float() - expected.float()).abs().max().item() / max(largest, 1e-30)
