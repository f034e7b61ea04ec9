"""A small causal language model around the MoE blocks of these tests."""

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
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x):
        batch, length, hidden = x.shape
        size = hidden // self.heads
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, size).permute(2, 0, 3, 1, 4)
        q, k = rotate(q), rotate(k)
        scores = (q @ k.transpose(-1, -2)).float() * size**-0.5
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        shares = scores.masked_fill(future, float("-inf")).softmax(-1).to(v.dtype)
        return self.out((shares @ v).transpose(1, 2).reshape(batch, length, hidden))


def rotate(x):
    """Turns pairs of columns by angles that grow with the position."""
    length, half = x.shape[-2], x.shape[-1] // 2
    angle = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(half) / half)
    left, right = x.float().chunk(2, -1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([left * cos - right * sin, left * sin + right * cos], -1).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, mlp: nn.Module):
        super().__init__()
        self.attention_norm = RMSNorm(hidden)
        self.attention = Attention(hidden, heads)
        self.mlp_norm = RMSNorm(hidden)
        self.mlp = mlp

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        y = self.mlp(self.mlp_norm(x))
        return x + (y[0] if isinstance(y, tuple) else y)


class Decoder(nn.Module):
    """`make_block` gives the MoE block of each layer."""

    def __init__(self, make_block, layers: int = 2, hidden: int = 64, heads: int = 4, vocabulary: int = 256):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads, make_block()) for _ in range(layers))
        self.norm = RMSNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def loss_of(model, tokens):
    """Cross-entropy of each next byte of tokens [B, L + 1]."""
    logits = model(tokens[:, :-1])
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
