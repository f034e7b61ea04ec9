"""The layer in eager PyTorch, in float32: tests compare sluice_torch.MoE with it, and try replace_moe() on it."""

import torch
from torch import nn

from sluice_torch import lora as adapters
from sluice_torch.layers.activations import ACTIVATIONS, inputs_of, parse


class EagerMoE(nn.Module):
    """Made and called like sluice_torch.MoE, for one rank."""

    def __init__(
        self,
        hidden,
        intermediate,
        num_experts,
        top_k,
        *,
        activation="swiglu",
        lora=None,
        dtype=torch.bfloat16,
        initialise=True,
        bias=False,
    ):
        super().__init__()
        (self.activation, self.limit), self.lora = parse(activation), lora
        make = torch.randn if initialise else torch.empty
        self.gate_up_weight = nn.Parameter(make(num_experts, inputs_of(self.activation) * intermediate, hidden).to(dtype))
        self.down_weight = nn.Parameter(make(num_experts, hidden, intermediate).to(dtype))
        if bias:
            self.gate_up_bias, self.down_bias = (nn.Parameter(make(each.shape[:2]).to(dtype)) for each in (self.gate_up_weight, self.down_weight))
        if lora:
            made = adapters.make_parameters(lora, num_experts, hidden, intermediate, dtype)
            for name, parameter in made.items():
                self.register_parameter(name, parameter)

    def change(self, target, expert):
        """The matrix that an adapter adds."""
        a, b = (getattr(self, f"{target}_lora_{side}")[expert].float() for side in "ab")
        return self.lora.scaling * (b @ a)

    def matrices(self, expert):
        before = self.gate_up_weight[expert].float().split(self.down_weight.shape[2])
        names = ("gate", "up", "down")[2 - len(before) :]
        parts = dict(zip(names, (*before, self.down_weight[expert].float())))
        for target in self.lora.targets if self.lora else ():
            parts[target] = parts[target] + self.change(target, expert)
        return list(parts.values())

    def biases(self, expert):
        if not hasattr(self, "down_bias"):
            return [0, 0, 0]
        return [*self.gate_up_bias[expert].float().split(self.down_weight.shape[2]), self.down_bias[expert].float()]

    def forward(self, x, expert_ids, expert_weights):
        y = torch.zeros(x.shape, dtype=torch.float32)
        for expert in expert_ids[expert_ids >= 0].unique().tolist():
            token, place = torch.where(expert_ids == expert)
            *before, (down, after) = zip(self.matrices(expert), self.biases(expert))
            rows = x.index_select(0, token).float()
            act = ACTIVATIONS[self.activation](*(rows @ matrix.t() + bias for matrix, bias in before), self.limit)
            y = y.index_add(0, token, (act @ down.t() + after) * expert_weights[token, place, None])
        return y.to(x.dtype)
