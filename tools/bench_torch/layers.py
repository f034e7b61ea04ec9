"""The layers to compare, with the same weights and inputs."""

import dataclasses

import torch
from torch import nn

VARIANTS = ("sluice", "eager bf16", "eager fp32")


@dataclasses.dataclass(frozen=True)
class Shape:
    tokens: int
    hidden: int
    intermediate: int
    experts: int
    top_k: int

    def __str__(self):
        return f"H{self.hidden} I{self.intermediate} E{self.experts} K{self.top_k} T{self.tokens}"


class EagerLayer(nn.Module):
    """The loop over experts of eager models: each expert computes its rows and adds the results to their tokens."""

    def __init__(self, gate_up: torch.Tensor, down: torch.Tensor):
        super().__init__()
        self.gate_up = nn.ParameterList(nn.Parameter(each.clone()) for each in gate_up)
        self.down = nn.ParameterList(nn.Parameter(each.clone()) for each in down)

    def forward(self, x, ids, weights):
        y = torch.zeros_like(x)
        for expert, (gate_up, down) in enumerate(zip(self.gate_up, self.down)):
            token, place = torch.where(ids == expert)
            gate, up = nn.functional.linear(x.index_select(0, token), gate_up).chunk(2, -1)
            rows = nn.functional.linear(nn.functional.silu(gate) * up, down)
            y = y.index_add_(0, token, rows * weights[token, place, None].to(rows.dtype))
        return y


def make_inputs(shape: Shape, dtype: torch.dtype) -> list[torch.Tensor]:
    """x, ids, weights and the gradient of y; x and weights require gradients. Seeded."""
    generator = torch.Generator().manual_seed(11)
    scores = torch.rand(shape.tokens, shape.experts, generator=generator)
    weights, ids = scores.softmax(-1).topk(shape.top_k, dim=-1)
    weights = weights / weights.sum(-1, keepdim=True)
    x = torch.randn(shape.tokens, shape.hidden, generator=generator).to(dtype)
    dy = torch.randn(shape.tokens, shape.hidden, generator=generator).to(dtype)
    return [x.requires_grad_(), ids.int(), weights.requires_grad_(), dy]


def make_layer(variant: str, shape: Shape, threads: int) -> nn.Module:
    """A layer of one of VARIANTS. All have the same weights."""
    generator = torch.Generator().manual_seed(12)
    dtype = torch.float32 if variant == "eager fp32" else torch.bfloat16
    size = (shape.experts, 2 * shape.intermediate, shape.hidden)
    gate_up = (torch.randn(size, generator=generator) * shape.hidden**-0.5).to(torch.bfloat16)
    size = (shape.experts, shape.hidden, shape.intermediate)
    down = (torch.randn(size, generator=generator) * shape.intermediate**-0.5).to(torch.bfloat16)
    if variant != "sluice":
        return EagerLayer(gate_up.to(dtype), down.to(dtype))
    import sluice_torch

    sizes = (shape.hidden, shape.intermediate, shape.experts, shape.top_k)
    layer = sluice_torch.MoE(*sizes, dtype=torch.bfloat16, steps=sluice_torch.Steps(threads=threads))
    with torch.no_grad():
        layer.gate_up_weight.copy_(gate_up)
        layer.down_weight.copy_(down)
    return layer


def dtype_of(variant: str) -> torch.dtype:
    return torch.float32 if variant == "eager fp32" else torch.bfloat16


def forward(layer: nn.Module, inputs: list[torch.Tensor]) -> torch.Tensor:
    return layer(*inputs[:3])


def forget(layer: nn.Module, inputs: list[torch.Tensor]):
    """Drops all gradients."""
    for tensor in (*layer.parameters(), *inputs):
        tensor.grad = None
