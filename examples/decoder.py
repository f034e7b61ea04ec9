"""A small decoder with mixture-of-experts blocks in plain PyTorch, with the formulas and names of Qwen3-MoE."""

import torch
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        return (x.float() * scale).to(x.dtype) * self.weight


class Attention(nn.Module):
    """Causal self-attention with rotary positions."""

    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self.q_norm, self.k_norm = RMSNorm(hidden // heads), RMSNorm(hidden // heads)

    def forward(self, x, positions, past=None):
        """`past` has the keys and values of earlier tokens, [B, heads, length, size] each; those of x are written there."""
        batch, length, hidden = x.shape
        q, k, v = (part(x).view(batch, length, self.heads, -1).transpose(1, 2) for part in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(self.q_norm(q), positions), rotate(self.k_norm(k), positions)
        if past is not None:
            for kept, new in zip(past, (k, v)):
                kept[torch.arange(batch)[:, None], :, positions] = new.transpose(1, 2)
            k, v = (kept[:, :, : int(positions.max()) + 1] for kept in past)
        scores = (q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
        future = torch.arange(k.shape[2]) > positions[:, None, :, None]
        shares = scores.masked_fill(future, float("-inf")).softmax(-1).to(v.dtype)
        return self.o_proj((shares @ v).transpose(1, 2).reshape(batch, length, hidden))


def rotate(x, positions):
    """Turns pairs of columns of x [B, heads, L, size] by angles that grow with the positions [B or 1, L]."""
    half = x.shape[-1] // 2
    angle = positions[:, None, :, None] * 10000.0 ** (-torch.arange(half) / half)
    left, right = x.float().chunk(2, -1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([left * cos - right * sin, left * sin + right * cos], -1).to(x.dtype)


class GatedMlp(nn.Module):
    """down(act(gate(x)) * up(x)): an expert, or a shared one, of Qwen3-MoE and DeepSeek-V3."""

    def __init__(self, hidden, intermediate, act=nn.functional.silu, bias=False):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, intermediate, bias=bias)
        self.up_proj = nn.Linear(hidden, intermediate, bias=bias)
        self.down_proj = nn.Linear(intermediate, hidden, bias=bias)
        self.act_fn = act

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


def sum_of_experts(experts, rows, ids, weights):
    """The loop of eager models: each expert computes its rows and adds the results to their tokens."""
    y = torch.zeros_like(rows)
    for number, expert in enumerate(experts):
        token, place = torch.where(ids == number)
        share = expert(rows.index_select(0, token)) * weights[token, place, None].to(rows.dtype)
        y = y.index_add_(0, token, share)
    return y


class Qwen3Block(nn.Module):
    """Softmax over all experts, top-k, normalised or not; returns the router's logits too."""

    def __init__(self, hidden=64, intermediate=48, experts=8, top_k=2, norm_topk_prob=True, **expert):
        super().__init__()
        self.top_k = top_k
        self.norm_topk_prob = norm_topk_prob
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(GatedMlp(hidden, intermediate, **expert) for _ in range(experts))

    def forward(self, x):
        rows = x.view(-1, x.shape[-1])
        logits = self.gate(rows)
        weights, ids = logits.softmax(-1, dtype=torch.float).topk(self.top_k, dim=-1)
        if self.norm_topk_prob:
            weights = weights / weights.sum(-1, keepdim=True)
        return sum_of_experts(self.experts, rows, ids, weights).view(x.shape), logits


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, mlp: nn.Module):
        super().__init__()
        self.input_layernorm = RMSNorm(hidden)
        self.self_attn = Attention(hidden, heads)
        self.post_attention_layernorm = RMSNorm(hidden)
        self.mlp = mlp

    def forward(self, x, positions, past=None):
        """Returns x and the router's logits, None if the block does not give them."""
        x = x + self.self_attn(self.input_layernorm(x), positions, past)
        y = self.mlp(self.post_attention_layernorm(x))
        return (x + y[0], y[1]) if isinstance(y, tuple) else (x + y, None)


class Decoder(nn.Module):
    """`make_block` gives the MoE block of each layer. Without `head` the result is hidden states instead of logits."""

    def __init__(self, make_block, layers: int = 2, hidden: int = 64, heads: int = 4, vocabulary: int = 256, head: bool = True):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads, make_block()) for _ in range(layers))
        self.norm = RMSNorm(hidden)
        self.lm_head = nn.Linear(hidden, vocabulary, bias=False) if head else nn.Identity()

    def forward(self, tokens, positions=None, cache=None, router_logits=None):
        """tokens [B, L]; positions [B, L] or [1, L], by default from 0 on; `cache` has a `past` for each layer; the router's
        logits of each layer are appended to the list `router_logits`."""
        positions = torch.arange(tokens.shape[1])[None] if positions is None else positions
        x = self.embed_tokens(tokens)
        for number, layer in enumerate(self.layers):
            x, logits = layer(x, positions, None if cache is None else cache[number])
            if router_logits is not None:
                router_logits.append(logits)
        return self.lm_head(self.norm(x))


class LanguageModel(nn.Module):
    """The decoder in the structure of Qwen3MoeForCausalLM: parameters have the names of its checkpoints."""

    def __init__(self, make_block, layers: int, hidden: int, heads: int, vocabulary: int = 256):
        super().__init__()
        self.model = Decoder(make_block, layers, hidden, heads, vocabulary, head=False)
        self.lm_head = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, *arguments, **options):
        return self.lm_head(self.model(*arguments, **options))


def loss_of(model, tokens, **options):
    """Cross-entropy of each next byte of tokens [B, L + 1]."""
    logits = model(tokens[:, :-1], **options)
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
