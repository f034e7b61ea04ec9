"""Mixtures of experts in layouts that replace_moe() does not know and must report, and models that are none."""

import torch
from torch import nn

from models.layouts import GatedMlp, StackedExperts
from models.variants import EXPERTS, HIDDEN, INTERMEDIATE, Block, variant


class Parts(nn.Module):
    """Modules and parameters by name; forward is not called when layouts are recognised."""

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


def matrix(*shape):
    return nn.Parameter(torch.randn(*shape))


def mlp(hidden=HIDDEN, intermediate=INTERMEDIATE, bias=True):
    return nn.Sequential(nn.Linear(hidden, intermediate, bias), nn.ReLU(), nn.Linear(intermediate, hidden, bias))


def mlps(count=EXPERTS, make=mlp):
    return nn.ModuleList(make() for _ in range(count))


def gated():
    return GatedMlp(HIDDEN, INTERMEDIATE)


def router(count=EXPERTS):
    return nn.Linear(HIDDEN, count, bias=False)


def stacks(prefix="w", count=2, bias=False):
    shapes = [(EXPERTS, 2 * INTERMEDIATE, HIDDEN), (EXPERTS, HIDDEN, INTERMEDIATE)]
    if count == 3:
        shapes = [(EXPERTS, INTERMEDIATE, HIDDEN), (EXPERTS, HIDDEN, INTERMEDIATE), (EXPERTS, INTERMEDIATE, HIDDEN)]
    made = {f"{prefix}{number}": matrix(*shape) for number, shape in enumerate(shapes, 1)}
    if bias:
        made.update({f"{prefix}{number}_bias": matrix(*shape[:2]) for number, shape in enumerate(shapes, 1)})
    return made


class Linear3(nn.Module):
    """A matrix of each expert."""

    def __init__(self, ins, outs):
        super().__init__()
        self.weight = matrix(EXPERTS, outs, ins)


class ScoredInputs(nn.Module):
    """Stacked experts whose rows are scaled by their scores before, not after, the activation."""

    def __init__(self):
        super().__init__()
        self.gate_up_proj = matrix(EXPERTS, HIDDEN, 2 * INTERMEDIATE)
        self.down_proj = matrix(EXPERTS, INTERMEDIATE, HIDDEN)

    def forward(self, rows, ids, weights):
        y = torch.zeros_like(rows)
        for number in range(EXPERTS):
            token, place = torch.where(ids == number)
            gate, up = (rows[token] * weights[token, place, None] @ self.gate_up_proj[number]).chunk(2, -1)
            y = y.index_add(0, token, nn.functional.silu(gate) * up @ self.down_proj[number])
        return y


class HashedStack(nn.Module):
    """Experts that a table gives for ids of tokens, weighted by a router."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts = router(), StackedExperts(HIDDEN, INTERMEDIATE, EXPERTS)

    def forward(self, x, input_ids=None):
        ids = input_ids.reshape(-1, 1) % EXPERTS
        return self.experts(x.reshape(-1, HIDDEN), ids, self.gate(x).reshape(-1, EXPERTS).gather(1, ids)).view(x.shape)


class StackedWith(nn.Module):
    def __init__(self, experts):
        super().__init__()
        self.router = router()
        self.experts = experts

    def forward(self, x):
        rows = x.view(-1, HIDDEN)
        weights, ids = self.router(rows).softmax(-1).topk(2)
        return self.experts(rows, ids, weights).view(x.shape)


def expert_choice(self, x):
    rows = x.reshape(-1, HIDDEN)
    scores = self.gate(rows).softmax(-1)
    weights, tokens = scores.topk(max(1, len(rows) * 2 // EXPERTS), dim=0)
    y = torch.zeros_like(rows)
    for number, expert in enumerate(self.experts):
        y = y.index_add(0, tokens[:, number], expert(rows[tokens[:, number]]) * weights[:, number, None])
    return y.view(x.shape)


def sparse_mixed(self, logits):
    """Two experts by thresholds, the second among what the first leaves."""
    first = logits.max(-1, keepdim=True)
    near = logits.masked_fill((first.values - logits) / logits.abs() > 0.02, float("-inf"))
    left = logits.scatter(-1, first.indices, float("-inf"))
    second = left.max(-1, keepdim=True)
    weights = [near.softmax(-1).gather(-1, first.indices), left.softmax(-1).gather(-1, second.indices)]
    return torch.cat(weights, -1), torch.cat([first.indices, second.indices], -1)


# Description -> (a block, a word of the reason).
UNHANDLED = {
    "experts of two matrices": (lambda: Parts(gate=router(), experts=mlps()), "expected nothing but two or three matrices"),
    "a dict of experts": (
        lambda: Parts(router=Parts(classifier=router()), experts=nn.ModuleDict({f"expert_{n}": mlp() for n in range(4)})),
        "4 experts",
    ),
    "a list inside a part": (lambda: Parts(gate=router(), bank=Parts(members=mlps(make=gated))), "a router gate.weight [8, 32]"),
    "a router and a list two parts down": (
        lambda: Parts(moe=Parts(gate=Parts(wg=router()), experts=Parts(local_experts=mlps()))),
        "8 experts (local_experts)",
    ),
    "flat matrices of all experts": (
        lambda: Parts(
            router=Parts(layer=router()),
            experts=Parts(mlp=Parts(w1=matrix(EXPERTS * INTERMEDIATE, HIDDEN), w2=matrix(EXPERTS * INTERMEDIATE, HIDDEN))),
        ),
        "experts of mlp.w1 [192, 32]",
    ),
    "two wide matrices of local experts": (
        lambda: Parts(router=router(), experts=Parts(weight1=matrix(HIDDEN, 400), weight2=matrix(200, HIDDEN))),
        "weight1 [32, 400]",
    ),
    "stacked with biases": (lambda: Parts(router=router(), experts=Parts(**stacks(bias=True))), "w1_bias [8, 48]"),
    "stacked, three of them": (lambda: Parts(router=router(), experts=Parts(**stacks(count=3))), "3 stacked tensors"),
    "stacked with scores on their rows": (lambda: StackedWith(ScoredInputs()), "compute none of swiglu"),
    "stacked in modules of their own": (
        lambda: Parts(
            router=Parts(layer=router()),
            input_linear=Linear3(HIDDEN, 2 * INTERMEDIATE),
            output_linear=Linear3(INTERMEDIATE, HIDDEN),
        ),
        "input_linear.weight [8, 48, 32]",
    ),
    "stacked beside a router's matrix": (lambda: Parts(router=matrix(EXPERTS, HIDDEN), **stacks()), "router [8, 32]"),
    "stacked beside a matrix of columns": (lambda: Parts(wg=matrix(HIDDEN, EXPERTS), **stacks(count=3)), "wg [32, 8]"),
    "stacked, with experts in their names, and no router": (lambda: Parts(**stacks("experts_w")), "no router"),
    "a list beside a router's matrix": (lambda: Parts(w_gate=matrix(HIDDEN, EXPERTS), members=mlps(make=gated)), "w_gate"),
    "a list of Python": (lambda: Parts(gate=router(), members=[gated() for _ in range(EXPERTS)]), "does not know"),
    "parts with numbers": (lambda: Parts(gate=router(4), **{f"expert{n}": mlp() for n in range(4)}), "parts named expert"),
    "several gates": (lambda: Parts(gates=nn.ModuleList(router() for _ in range(3)), experts=mlps()), "experts have"),
    "slots": (lambda: Parts(phi=matrix(HIDDEN, EXPERTS, 2), experts=mlps()), "8 experts (experts)"),
    "hashed rows": (lambda: Parts(experts=mlps()), "no router"),
    "experts of other sizes": (
        lambda: Parts(gate=router(2), experts=nn.ModuleList([mlp(), mlp(intermediate=40)])), "experts of"
    ),
    "experts that are matrices": (
        lambda: Parts(gate=router(), experts=nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(EXPERTS))), "experts of"
    ),
    "experts of convolutions": (
        lambda: Parts(gate=router(4), experts=nn.ModuleList(nn.Conv1d(HIDDEN, HIDDEN, 3) for _ in range(4))), "experts of"
    ),
    "adapters of experts": (
        lambda: Parts(route=router(), lora_a=matrix(EXPERTS, 4, HIDDEN), lora_b=matrix(EXPERTS, HIDDEN, 4)), "lora_a [8, 4, 32]"
    ),
    "experts chosen by threshold": (variant(choose=lambda self, scores: sparse_mixed(self, scores)), "computes something else"),
    "rows chosen by experts": (variant(forward=expert_choice), "computes something else"),
    "experts twice": (lambda: Parts(gate=router(), experts=mlps(make=gated), others=mlps(make=gated)), "cannot be called"),
    "a router of more rows than experts": (
        lambda: Parts(router=Parts(classifier=router(EXPERTS + 2)), experts=mlps(make=gated)),
        "a router router.classifier.weight [10, 32] that gives 10 scores for 8 experts",
    ),
    "experts of a latent size": (
        lambda: Parts(gate=nn.Linear(20, EXPERTS), down=nn.Linear(20, HIDDEN), experts=mlps(make=gated)),
        "a router gate.weight [8, 20] whose rows of 20 are none of the experts' sizes 24, 32",
    ),
    "a router of several layers": (
        lambda: Parts(router=Parts(down=matrix(16, HIDDEN), mlp=nn.Linear(16, 16), out=nn.Linear(16, EXPERTS)), experts=Parts(local_experts=mlps())),
        "a router router.out.weight [8, 16] whose rows of 16",
    ),
    "flat matrices beside a router": (
        lambda: Parts(router=Parts(layer=router()), experts=Parts(mlp=Parts(w1=matrix(192, HIDDEN), v1=matrix(192, HIDDEN), w2=matrix(192, HIDDEN)))),
        "mlp.w2 [192, 32] and a router router.layer.weight [8, 32], expected",
    ),
    "stacked with a router of a null expert": (
        lambda: Parts(gate=router(EXPERTS + 1), experts=Parts(**stacks("experts_w"))),
        "a router gate.weight [9, 32] that gives 9 scores for 8 experts",
    ),
    "stacked and chosen by ids of tokens": (
        HashedStack,
        "alone (it is called with input_ids too)",
    ),
    "called with a mask": (variant(forward=lambda self, x, mask=None: Block.forward(self, x)), "called with mask too"),
}


class Attention(nn.Module):
    """Heads as stacked matrices."""

    def __init__(self):
        super().__init__()
        for name in ("q", "k", "v"):
            setattr(self, name, matrix(4, HIDDEN, 8))
        self.position_bias = matrix(4, 16)


def convolutions():
    return nn.Sequential(nn.Conv1d(8, 8, 3), nn.ReLU(), nn.Conv1d(8, 8, 3), nn.Flatten(), nn.Linear(64, 8))


PLAIN = {
    "encoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(HIDDEN, 4, 48), 2),
    "encoder with a classifier of as many classes": lambda: Parts(
        layers=nn.TransformerEncoder(nn.TransformerEncoderLayer(HIDDEN, 4, 48), 2), classifier=router(2)
    ),
    "dense feed-forward parts": lambda: nn.Sequential(*[gated() for _ in range(4)], nn.ModuleList([nn.Linear(8, 8)] * 3)),
    "two feed-forward parts of a layer": lambda: Parts(ff1=gated(), ff2=gated(), attention=nn.MultiheadAttention(32, 4)),
    "heads as stacked matrices": lambda: nn.Sequential(Attention(), gated()),
    "convolutions": convolutions,
    "recurrent": lambda: nn.Sequential(nn.LSTM(HIDDEN, HIDDEN, 2, bidirectional=True), nn.Linear(2 * HIDDEN, 4)),
    "several heads": lambda: Parts(body=gated(), heads=nn.ModuleList(mlp() for _ in range(3))),
    "a shared expert alone": lambda: Parts(shared_expert=gated(), norm=nn.LayerNorm(HIDDEN)),
    "embeddings": lambda: Parts(tokens=nn.Embedding(8, HIDDEN), places=nn.Embedding(16, HIDDEN), out=nn.Linear(HIDDEN, 8)),
}
