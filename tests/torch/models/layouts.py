"""MoE blocks in the layouts of published models, small and in eager PyTorch, for replace_moe() to find.

Each is written from the published structure: names and shapes of parameters, routing, what a block returns.
"""

import torch
from decoder import GatedMlp, Qwen3Block, sum_of_experts
from torch import nn


class UngatedMlp(nn.Module):
    """down(relu(up(x))^2): an expert of Nemotron."""

    def __init__(self, hidden, intermediate, act=lambda x: nn.functional.relu(x).square()):
        super().__init__()
        self.up_proj = nn.Linear(hidden, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)
        self.act_fn = act

    def forward(self, x):
        return self.down_proj(self.act_fn(self.up_proj(x)))


class MixtralMlp(nn.Module):
    """w2(silu(w1(x)) * w3(x))."""

    def __init__(self, hidden, intermediate):
        super().__init__()
        self.w1 = nn.Linear(hidden, intermediate, bias=False)
        self.w2 = nn.Linear(intermediate, hidden, bias=False)
        self.w3 = nn.Linear(hidden, intermediate, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.w2(self.act_fn(self.w1(x)) * self.w3(x))


class MixtralBlock(nn.Module):
    """Like Qwen3-MoE, always normalised, with other names."""

    def __init__(self, hidden=64, intermediate=48, experts=8, top_k=2):
        super().__init__()
        self.num_experts_per_tok = top_k
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(MixtralMlp(hidden, intermediate) for _ in range(experts))
        self.jitter_noise = 0.0

    def forward(self, x):
        rows = x.view(-1, x.shape[-1])
        logits = self.gate(rows)
        weights, ids = logits.softmax(-1, dtype=torch.float).topk(self.num_experts_per_tok, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        return sum_of_experts(self.experts, rows, ids, weights).view(x.shape), logits


class DeepseekGate(nn.Module):
    """Sigmoid scores; a bias affects the choice, but not the weights; experts of the best groups only."""

    def __init__(self, hidden, experts, top_k, groups, top_groups, factor):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(experts, hidden) * hidden**-0.5)
        self.register_buffer("e_score_correction_bias", torch.linspace(-0.1, 0.1, experts))
        self.top_k, self.groups, self.top_groups, self.routed_scaling_factor = top_k, groups, top_groups, factor

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        scores = nn.functional.linear(rows.float(), self.weight.float()).sigmoid()
        choice = scores.detach() + self.e_score_correction_bias
        grouped = choice.view(len(rows), self.groups, -1)
        best = grouped.topk(2, dim=-1).values.sum(-1).topk(self.top_groups, dim=-1).indices
        allowed = torch.zeros(len(rows), self.groups, dtype=torch.bool).scatter_(1, best, True)
        choice = choice.masked_fill(~allowed[:, :, None].expand_as(grouped).reshape_as(choice), 0.0)
        ids = choice.topk(self.top_k, dim=-1).indices
        weights = scores.gather(1, ids)
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return ids, weights * self.routed_scaling_factor


class DeepseekBlock(nn.Module):
    """A gate that gives ids and weights, and shared experts, which are one wider MLP."""

    def __init__(self, hidden=64, intermediate=48, experts=8, top_k=3, groups=4, top_groups=2, shared=1):
        super().__init__()
        self.n_routed_experts = experts
        self.gate = DeepseekGate(hidden, experts, top_k, groups, top_groups, factor=2.5)
        self.experts = nn.ModuleList(GatedMlp(hidden, intermediate) for _ in range(experts))
        self.shared_experts = GatedMlp(hidden, intermediate * shared)

    def forward(self, x):
        ids, weights = self.gate(x)
        y = sum_of_experts(self.experts, x.view(-1, x.shape[-1]), ids, weights)
        return y.view(x.shape) + self.shared_experts(x)


class NemotronBlock(DeepseekBlock):
    """Like DeepSeek-V3, with experts of two matrices."""

    def __init__(self, hidden=64, intermediate=48, experts=8, top_k=3):
        super().__init__(hidden, intermediate, experts, top_k)
        self.experts = nn.ModuleList(UngatedMlp(hidden, intermediate) for _ in range(experts))
        self.shared_experts = UngatedMlp(hidden, 32)


class JambaBlock(nn.Module):
    """Like Qwen3-MoE, never normalised; its router has another name."""

    def __init__(self, hidden=64, intermediate=48, experts=8, top_k=2):
        super().__init__()
        self.top_k = top_k
        self.router = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(GatedMlp(hidden, intermediate) for _ in range(experts))

    def forward(self, x):
        rows = x.view(-1, x.shape[-1])
        logits = self.router(rows)
        weights, ids = logits.softmax(-1, dtype=torch.float).topk(self.top_k, dim=-1)
        return sum_of_experts(self.experts, rows, ids, weights).view(x.shape), logits


class Qwen2Block(Qwen3Block):
    """Qwen2-MoE: not normalised, and a shared expert with a gate."""

    def __init__(self, hidden=64, intermediate=48, experts=8, top_k=2):
        super().__init__(hidden, intermediate, experts, top_k, norm_topk_prob=False)
        self.shared_expert = GatedMlp(hidden, 32)
        self.shared_expert_gate = nn.Linear(hidden, 1, bias=False)

    def forward(self, x):
        y, logits = super().forward(x)
        return y + self.shared_expert_gate(x).sigmoid() * self.shared_expert(x), logits


class StackedExperts(nn.Module):
    """gate_up_proj [E, 2I, H] and down_proj [E, H, I]."""

    def __init__(self, hidden, intermediate, experts, act=nn.functional.silu):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(experts, 2 * intermediate, hidden) * hidden**-0.5)
        self.down_proj = nn.Parameter(torch.randn(experts, hidden, intermediate) * intermediate**-0.5)
        self.act_fn = act

    def matrices(self, expert):
        return self.gate_up_proj[expert], self.down_proj[expert]

    def one(self, expert):
        gate_up, down = self.matrices(expert)

        def apply(rows):
            gate, up = (rows @ gate_up.t()).chunk(2, -1)
            return (self.act_fn(gate) * up) @ down.t()

        return apply

    def forward(self, hidden_states, top_k_index, top_k_weights):
        experts = [self.one(expert) for expert in range(len(self.gate_up_proj))]
        return sum_of_experts(experts, hidden_states, top_k_index, top_k_weights)


class StackedBlock(nn.Module):
    """A router that gives logits, weights and ids, and stacked experts."""

    def __init__(self, hidden=64, intermediate=48, experts=8, top_k=2, act=nn.functional.silu):
        super().__init__()
        self.gate = TopKRouter(hidden, experts, top_k)
        self.experts = StackedExperts(hidden, intermediate, experts, act)

    def forward(self, x):
        rows = x.view(-1, x.shape[-1])
        _, weights, ids = self.gate(rows)
        return self.experts(rows, ids, weights).view(x.shape)


class TopKRouter(nn.Module):
    def __init__(self, hidden, experts, top_k):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(experts, hidden) * hidden**-0.5)
        self.top_k = top_k

    def forward(self, rows):
        logits = nn.functional.linear(rows, self.weight)
        weights, ids = logits.softmax(-1, dtype=torch.float).topk(self.top_k, dim=-1)
        return logits, weights / weights.sum(-1, keepdim=True), ids


class TransposedExperts(StackedExperts):
    """gate_up_proj [E, H, 2I] and down_proj [E, I, H], with weights for all experts, [T, E], before the ids."""

    def __init__(self, hidden, intermediate, experts):
        super().__init__(hidden, intermediate, experts)
        self.gate_up_proj = nn.Parameter(self.gate_up_proj.detach().transpose(1, 2).contiguous())
        self.down_proj = nn.Parameter(self.down_proj.detach().transpose(1, 2).contiguous())

    def matrices(self, expert):
        return self.gate_up_proj[expert].t(), self.down_proj[expert].t()

    def forward(self, hidden_states, routing_weights, router_indices):
        rows = hidden_states.reshape(-1, hidden_states.shape[-1])
        weights = routing_weights.gather(1, router_indices)
        return super().forward(rows, router_indices, weights).view(hidden_states.shape)


class TransposedBlock(nn.Module):
    def __init__(self, hidden=64, intermediate=48, experts=8, top_k=2):
        super().__init__()
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.top_k = top_k
        self.experts = TransposedExperts(hidden, intermediate, experts)

    def forward(self, x):
        logits = self.gate(x.view(-1, x.shape[-1]))
        weights, ids = logits.softmax(-1, dtype=torch.float).topk(self.top_k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        spread = torch.zeros_like(logits).scatter_(1, ids, weights.to(logits.dtype))
        return self.experts(x, spread, ids)


class OssRouter(nn.Module):
    """The largest logits and their softmax, with logits of all experts."""

    def __init__(self, hidden, experts, top_k):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(experts, hidden) * hidden**-0.5)
        self.bias = nn.Parameter(torch.randn(experts) / 4)
        self.top_k = top_k

    def forward(self, rows):
        logits = nn.functional.linear(rows, self.weight, self.bias)
        largest, ids = logits.topk(self.top_k, dim=-1)
        return logits, largest.softmax(-1), ids


class OssExperts(nn.Module):
    """Transposed experts with biases, and with columns of gate and up in turn."""

    def __init__(self, hidden, intermediate, experts):
        super().__init__()
        self.limit = 7.0
        self.gate_up_proj = nn.Parameter(torch.randn(experts, hidden, 2 * intermediate) * hidden**-0.5)
        self.gate_up_proj_bias = nn.Parameter(torch.randn(experts, 2 * intermediate) / 4)
        self.down_proj = nn.Parameter(torch.randn(experts, intermediate, hidden) * intermediate**-0.5)
        self.down_proj_bias = nn.Parameter(torch.randn(experts, hidden) / 4)

    def one(self, expert):
        def apply(rows):
            both = rows @ self.gate_up_proj[expert] + self.gate_up_proj_bias[expert]
            gate, up = both[:, ::2].clamp(max=self.limit), both[:, 1::2].clamp(-self.limit, self.limit)
            return gate * torch.sigmoid(1.702 * gate) * (up + 1) @ self.down_proj[expert] + self.down_proj_bias[expert]

        return apply

    def forward(self, hidden_states, router_indices=None, routing_weights=None):
        experts = [self.one(expert) for expert in range(len(self.gate_up_proj))]
        return sum_of_experts(experts, hidden_states, router_indices, routing_weights)


class OssBlock(nn.Module):
    """gpt-oss in transformers 5: also returns the weights of the chosen experts."""

    def __init__(self, hidden=64, intermediate=48, experts=8, top_k=2, kind=OssExperts):
        super().__init__()
        self.router = OssRouter(hidden, experts, top_k)
        self.experts = kind(hidden, intermediate, experts)

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        _, weights, ids = self.router(rows)
        return self.experts(rows, ids, weights).view(x.shape), weights


class OldOssExperts(OssExperts):
    """Called with names, with three dimensions, and with weights for all experts, [T, E]."""

    def forward(self, hidden_states, router_indices=None, routing_weights=None):
        rows, weights = hidden_states.reshape(-1, hidden_states.shape[-1]), routing_weights.gather(1, router_indices)
        return super().forward(rows, router_indices, weights).view(len(hidden_states), -1, rows.shape[-1])


class OldOssBlock(OssBlock):
    """gpt-oss in transformers 4: also returns weights for all experts."""

    def __init__(self, **sizes):
        super().__init__(**sizes, kind=OldOssExperts)

    def forward(self, x):
        logits, weights, ids = self.router(x.reshape(-1, x.shape[-1]))
        scores = torch.zeros_like(logits).scatter_(1, ids, weights)
        return self.experts(x, router_indices=ids, routing_weights=scores), scores


LAYOUTS = {
    "qwen3": Qwen3Block,
    "mixtral": MixtralBlock,
    "deepseek": DeepseekBlock,
    "qwen2": Qwen2Block,
    "stacked": StackedBlock,
    "transposed": TransposedBlock,
    "gpt-oss": OssBlock,
}

# By the `models` of the row of sluice_torch.replacing.families that each belongs to.
FAMILIES = {
    "Qwen2-MoE": Qwen2Block,
    "Qwen3-MoE, OLMoE": Qwen3Block,
    "Mixtral": MixtralBlock,
    "Jamba": JambaBlock,
    "DeepSeek-V2, DeepSeek-V3, GLM-4.5": DeepseekBlock,
    "Nemotron-H": NemotronBlock,
    "Qwen2-MoE, Qwen3-MoE, OLMoE, Mixtral, DeepSeek-V3 (transformers 5)": StackedBlock,
    "Qwen3-VL-MoE": TransposedBlock,
    "gpt-oss": OldOssBlock,
    "gpt-oss (transformers 5)": OssBlock,
}
