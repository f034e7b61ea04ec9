"""MoE blocks that differ from those of layouts.py in one respect each, which replace_moe() must keep or refuse.

Block consists of methods, some of which a variant overrides. make() returns a variant by the respect in which it differs.
"""

import math
import random
import types

import numpy
import torch
from torch import nn

from models.layouts import GatedMlp, sum_of_experts

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 32, 24, 8, 2
LOSSES = []


class Block(nn.Module):
    """Softmax, top-k, normalised, over a list of experts."""

    def __init__(self, hidden=HIDDEN, intermediate=INTERMEDIATE, experts=EXPERTS, top_k=TOP_K):
        super().__init__()
        self.top_k = top_k
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(GatedMlp(hidden, intermediate) for _ in range(experts))
        self.prepare()

    def prepare(self):
        pass

    def before(self, rows):
        return rows

    def logits(self, rows):
        return self.gate(rows)

    def scores(self, logits):
        return logits.softmax(-1, dtype=torch.float)

    def choose(self, scores):
        return scores.topk(self.top_k, dim=-1)

    def weigh(self, weights):
        return weights / weights.sum(-1, keepdim=True)

    def combine(self, rows, ids, weights):
        return sum_of_experts(self.experts, rows, ids, weights)

    def after(self, y, rows, logits):
        return y

    def forward(self, x):
        rows = self.before(x.reshape(-1, x.shape[-1]))
        logits = self.logits(rows)
        weights, ids = self.choose(self.scores(logits))
        y = self.combine(rows, ids, self.weigh(weights))
        return self.finish(self.after(y, rows, logits).view(x.shape), logits)

    def finish(self, y, logits):
        return y


def variant(base=Block, **methods):
    """A block with other methods. (Those that use super() name their class.)"""
    return type("Variant", (base,), methods)


def hold(**state):
    """prepare() for parameters (of torch.nn.Parameter) and other attributes, made by functions."""

    def prepare(self):
        for name, make in state.items():
            setattr(self, name, make())

    return prepare


def hold_buffer(name, make, persistent=True):
    return lambda self: self.register_buffer(name, make(), persistent=persistent)


def parameter(make, *arguments):
    return lambda: nn.Parameter(make(*arguments))


def chosen_by(bias_of):
    """top-k of scores and a bias, with the scores as weights."""

    def choose(self, scores):
        ids = (scores.detach() + bias_of(self)).topk(self.top_k, dim=-1).indices
        return scores.gather(-1, ids), ids

    return choose


def state_variants():
    """Name of the state that a layer would not use -> a block that has it. The state has no effect yet."""
    zeros, ones = torch.zeros, torch.ones
    choose = chosen_by(lambda self: self.expert_bias)
    scaled = dict(after=lambda self, y, rows, logits: y * self.scale)
    made = {
        "expert_bias (parameter)": variant(prepare=hold(expert_bias=parameter(zeros, EXPERTS)), choose=choose),
        "expert_bias (buffer)": variant(prepare=hold_buffer("expert_bias", lambda: zeros(EXPERTS)), choose=choose),
        "expert_bias (not saved)": variant(prepare=hold_buffer("expert_bias", lambda: zeros(EXPERTS), False), choose=choose),
        "expert_bias (attribute)": variant(prepare=hold(expert_bias=lambda: zeros(EXPERTS)), choose=choose),
        "expert_bias (small)": variant(prepare=hold(expert_bias=lambda: zeros(EXPERTS) + 1e-9), choose=choose),
        "scale (parameter)": variant(prepare=hold(scale=parameter(ones, 1)), **scaled),
        "scale (scalar buffer)": variant(prepare=hold_buffer("scale", lambda: torch.tensor(1.0)), **scaled),
        "scales (in a list)": variant(
            prepare=hold(scales=lambda: [ones(HIDDEN)]), after=lambda self, y, rows, logits: y * self.scales[0]
        ),
        "scales (in a dict)": variant(
            prepare=hold(scales=lambda: {"out": ones(1)}), after=lambda self, y, rows, logits: y * self.scales["out"]
        ),
        "extra.scale (in an object)": variant(
            prepare=hold(extra=lambda: types.SimpleNamespace(scale=ones(1))),
            after=lambda self, y, rows, logits: y * self.extra.scale,
        ),
        "out_bias": variant(
            prepare=hold(out_bias=parameter(zeros, HIDDEN)), after=lambda self, y, rows, logits: y + self.out_bias
        ),
        "alpha (a residual)": variant(
            prepare=hold(alpha=parameter(zeros, 1)), after=lambda self, y, rows, logits: y + self.alpha * rows
        ),
        "temperature": variant(
            prepare=hold_buffer("temperature", lambda: ones(1)), scores=lambda self, l: (l / self.temperature).softmax(-1)
        ),
        "prior": variant(
            prepare=hold_buffer("prior", lambda: zeros(EXPERTS)), scores=lambda self, l: (l + self.prior).softmax(-1)
        ),
        "norm_weight": variant(
            prepare=hold(norm_weight=parameter(ones, HIDDEN)), before=lambda self, rows: rows * self.norm_weight
        ),
        "enabled (bool buffer)": variant(
            prepare=hold_buffer("enabled", lambda: ones(EXPERTS, dtype=torch.bool)),
            scores=lambda self, l: l.masked_fill(~self.enabled, -1e9).softmax(-1),
        ),
        "order (int buffer)": variant(
            prepare=hold_buffer("order", lambda: torch.arange(EXPERTS)),
            combine=lambda self, rows, ids, weights: sum_of_experts(self.experts, rows, self.order[ids], weights),
        ),
        "per_expert": variant(
            prepare=hold(per_expert=parameter(ones, EXPERTS)),
            combine=lambda self, rows, ids, w: sum_of_experts(self.experts, rows, ids, w * self.per_expert[ids]),
        ),
        "unused": variant(prepare=hold_buffer("unused", lambda: zeros(3))),
        "statics.bias (of a part)": variant(
            prepare=hold(statics=Statics), choose=chosen_by(lambda self: self.statics.bias)
        ),
        "gain.weight (a part)": variant(prepare=hold(gain=Gain), after=lambda self, y, rows, logits: self.gain(y)),
        "norm (a part)": variant(
            prepare=hold(norm=lambda: nn.LayerNorm(HIDDEN)), before=lambda self, rows: self.norm(rows)
        ),
        "e_score_correction_bias (of the router)": variant(
            prepare=lambda self: self.gate.register_buffer("e_score_correction_bias", zeros(EXPERTS)),
            choose=chosen_by(lambda self: self.gate.e_score_correction_bias),
        ),
        "out_scale (attribute of the router)": variant(
            prepare=lambda self: setattr(self.gate, "out_scale", ones(1)),
            after=lambda self, y, rows, logits: y * self.gate.out_scale,
        ),
        "spare (a module in a list)": variant(
            prepare=hold(spare=lambda: [nn.Linear(HIDDEN, HIDDEN)]),
            after=lambda self, y, rows, logits: y + 0 * self.spare[0](rows),
        ),
        "scale (buffer of experts)": variant(prepare=scale_experts),
        "down_proj.bias (of experts)": variant(
            prepare=hold(experts=lambda: nn.ModuleList(BiasedMlp(HIDDEN, INTERMEDIATE) for _ in range(EXPERTS)))
        ),
    }
    return made


class Statics(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("bias", torch.zeros(EXPERTS))


class Gain(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, y):
        return y * self.weight


class ScaledMlp(GatedMlp):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        return super().forward(x) * self.scale


class BiasedMlp(GatedMlp):
    def __init__(self, hidden, intermediate):
        super().__init__(hidden, intermediate)
        self.down_proj = nn.Linear(intermediate, hidden)
        nn.init.zeros_(self.down_proj.bias)


def scale_experts(self):
    self.experts = nn.ModuleList(ScaledMlp(HIDDEN, INTERMEDIATE) for _ in range(EXPERTS))


class DroppingMlp(GatedMlp):
    def forward(self, x):
        act = nn.functional.silu(self.gate_proj(x)) * self.up_proj(x)
        return self.down_proj(nn.functional.dropout(act, 0.3, self.training))


class ModuleDroppingMlp(GatedMlp):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        return self.dropout(super().forward(x))


class CountingMlp(GatedMlp):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


def experts_of(kind):
    return hold(experts=lambda: nn.ModuleList(kind(HIDDEN, INTERMEDIATE) for _ in range(EXPERTS)))


class AddLoss(torch.autograd.Function):
    """Returns y, and in the backward pass adds a gradient of one to the loss."""

    @staticmethod
    def forward(context, y, loss):
        return y.view_as(y)

    @staticmethod
    def backward(context, dy):
        return dy, torch.ones(())


def balance(logits):
    """An auxiliary loss."""
    shares = logits.float().softmax(-1).mean(0)
    return len(shares) * shares.pow(2).sum()


def keep_first(ids, weights, most):
    """Sets the weights after the first `most` rows of each expert to zero."""
    flat = nn.functional.one_hot(ids.flatten(), EXPERTS)
    place = (flat.cumsum(0) * flat).sum(-1).view(ids.shape)
    return weights * (place <= most)


def capped(self, rows, ids, weights, factor=1.5):
    most = math.ceil(factor * len(rows) * TOP_K / EXPERTS)
    return sum_of_experts(self.experts, rows, ids, keep_first(ids, weights, most))


def plainly(self, rows, ids, weights):
    return sum_of_experts(self.experts, rows, ids, weights)


def in_training(method, otherwise):
    return lambda self, *arguments: (method if self.training else otherwise)(self, *arguments)


def training_variants():
    """Expected message -> a block that does something besides the experts' sum in training."""
    dropout = nn.functional.dropout
    made = {
        "another result each time in training mode: functional dropout of the sum": variant(
            after=lambda self, y, rows, logits: dropout(y, 0.1, self.training)
        ),
        "another result each time in training mode: of the input": variant(
            before=lambda self, rows: dropout(rows, 0.1, self.training)
        ),
        "another result each time in training mode: of the logits": variant(
            scores=lambda self, l: dropout(l, 0.1, self.training).softmax(-1)
        ),
        "another result each time in training mode: of the weights": variant(
            weigh=lambda self, w: dropout(w, 0.1, self.training)
            / w.sum(-1, keepdim=True)
        ),
        "another result each time in training mode: noise of logits": variant(
            logits=lambda self, rows: self.gate(rows) + 0.1 * self.training * torch.randn(len(rows), EXPERTS)
        ),
        "another result each time in training mode: noise of the input": variant(
            before=lambda self, rows: rows * torch.empty_like(rows).uniform_(0.99, 1.01) if self.training else rows
        ),
        "another result each time in training mode: gumbel": variant(
            scores=lambda self, l: nn.functional.gumbel_softmax(l, dim=-1) if self.training else l.softmax(-1)
        ),
        "another result each time in training mode: dropped rows": variant(
            combine=in_training(
                lambda self, rows, ids, w: plainly(self, rows, ids, w * (torch.rand(len(rows), 1) > 0.2)), plainly
            )
        ),
        "another result each time in training mode: random of Python": variant(
            after=lambda self, y, rows, logits: y * 0 if self.training and random.random() < 0.4 else y
        ),
        "another result each time in training mode: random of NumPy": variant(
            after=lambda self, y, rows, logits: y * float(numpy.random.uniform(0.9, 1.1)) if self.training else y
        ),
        "another result each time in evaluation mode: noise": variant(
            logits=lambda self, rows: self.gate(rows) + torch.randn(len(rows), EXPERTS)
        ),
        "in training mode (dropout": variant(prepare=experts_of(DroppingMlp)),
        "in training mode (dropout or noise?)": variant(prepare=experts_of(ModuleDroppingMlp)),
        "in training mode than in evaluation mode: a capacity": variant(combine=in_training(capped, plainly)),
        "in training mode than in evaluation mode: one expert more": variant(
            choose=lambda self, scores: scores.topk(TOP_K + self.training, dim=-1)
        ),
        "in training mode than in evaluation mode: all experts": variant(
            choose=lambda self, scores: scores.topk(EXPERTS if self.training else TOP_K, dim=-1)
        ),
        "in training mode than in evaluation mode: not normalised": variant(
            weigh=lambda self, w: w if self.training else w / w.sum(-1, keepdim=True)
        ),
        "many go to the same experts": variant(combine=capped),
        "expert_capacity 4096": variant(
            prepare=hold(expert_capacity=lambda: 4096),
            combine=lambda self, r, ids, w: plainly(self, r, ids, keep_first(ids, w, self.expert_capacity)),
        ),
        "aux_loss": variant(
            after=lambda self, y, rows, logits: setattr(self, "aux_loss", balance(logits) if self.training else None) or y
        ),
        "losses": variant(
            prepare=hold(losses=list), after=lambda self, y, rows, logits: self.losses.append(balance(logits)) or y
        ),
        "shared_losses": variant(
            shared_losses=[], after=lambda self, y, rows, logits: self.shared_losses.append(balance(logits)) or y
        ),
        "last_loss": variant(
            after=lambda self, y, rows, logits: setattr(type(self), "last_loss", balance(logits)) or y
        ),
        "LOSSES": variant(after=lambda self, y, rows, logits: LOSSES.append(balance(logits)) or y),
        "gate.last_logits": variant(
            after=lambda self, y, rows, logits: setattr(self.gate, "last_logits", logits.detach()) or y
        ),
        "steps": variant(prepare=hold(steps=int), after=lambda self, y, rows, l: setattr(self, "steps", self.steps + 1) or y),
        "tokens": variant(
            prepare=hold_buffer("tokens", lambda: torch.zeros(EXPERTS)),
            after=lambda self, y, rows, logits: self.tokens.add_(logits.detach().sum(0)) is None or y,
        ),
        "calls": variant(prepare=experts_of(CountingMlp)),
        "gives a tuple of": variant(finish=lambda self, y, logits: (y, None)),
        "computes something else: gives a loss": variant(finish=lambda self, y, logits: (y, balance(logits))),
        "expected a tensor of its shape: a loss too": variant(finish=lambda self, y, logits: (y, logits, balance(logits))),
        "another gradient: of an added loss": variant(
            after=lambda self, y, rows, logits: AddLoss.apply(y, balance(logits)) if self.training else y
        ),
        "another gradient: of a small loss": variant(
            after=lambda self, y, rows, logits: AddLoss.apply(y, 1e-5 * balance(logits)) if self.training else y
        ),
        "another gradient: weights detached": variant(weigh=lambda self, w: (w / w.sum(-1, keepdim=True)).detach()),
        "another gradient: input of the router detached": variant(logits=lambda self, rows: self.gate(rows.detach())),
        "another gradient: straight through": variant(
            weigh=lambda self, w: (w / w.sum(-1, keepdim=True)).detach() + w - w.detach()
        ),
        "another gradient: scaled": variant(after=scale_gradient),
        "another gradient: router detached in training": variant(
            logits=lambda self, rows: self.gate(rows).detach() if self.training else self.gate(rows)
        ),
    }
    return made


def scale_gradient(self, y, rows, logits):
    y = y * 1.0
    if y.requires_grad:
        y.register_hook(lambda dy: dy * 0.5)
    return y
