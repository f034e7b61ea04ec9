"""MoE blocks that replace_moe() replaces: those of layouts.py with other sizes, weights and surroundings, and variants
whose state is zero, small or to be loaded later."""

import torch
from torch import nn
from torch.utils import checkpoint

from models import layouts
from models.layouts import GatedMlp
from models.variants import EXPERTS, HIDDEN, INTERMEDIATE, Block, experts_of, hold, in_training, plainly, variant


class ClampedMlp(GatedMlp):
    limit = 1.5

    def forward(self, x):
        up = self.up_proj(x).clamp(-self.limit, self.limit)
        return self.down_proj(nn.functional.silu(self.gate_proj(x).clamp(max=self.limit)) * up)


class RowsOnly(nn.Module):
    """A router of [T, H] alone."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(EXPERTS, HIDDEN))

    def forward(self, rows):
        tokens, _ = rows.shape
        return nn.functional.linear(rows, self.weight).view(tokens, -1)


class NoisyRouter(nn.Linear):
    """It makes its own noise, and still does after replacement."""

    def forward(self, rows):
        logits = super().forward(rows)
        return logits + 0.5 * torch.randn_like(logits) if self.training else logits


class CountingRouter(nn.Linear):
    """Counts the rows that it saw, and still does after replacement."""

    def __init__(self, *sizes):
        super().__init__(*sizes, bias=False)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, rows):
        if self.training:
            self.seen += rows.shape[0]
        return super().forward(rows)


class ShapedBlock(Block):
    """Gives its logits in the shape of its input."""

    def forward(self, x):
        y = super().forward(x)
        return y, self.gate(x)


class Checkpointed(Block):
    def forward(self, x):
        if not torch.is_grad_enabled():
            return super().forward(x)
        return checkpoint.checkpoint(super().forward, x, use_reentrant=False)


class SharedBlock(Block):
    def prepare(self):
        self.shared = GatedMlp(HIDDEN, 40)

    def after(self, y, rows, logits):
        return y + self.shared(rows)


class DroppingSharedMlp(GatedMlp):
    """The dropout of a part that is kept is still applied."""

    def forward(self, x):
        return nn.functional.dropout(super().forward(x), 0.2, self.training)


class StackedVariant(layouts.StackedBlock):
    def __init__(self):
        super().__init__(HIDDEN, INTERMEDIATE, EXPERTS)


class DroppingStacked(StackedVariant):
    """The block around stacked experts stays, and what it does in training."""

    def forward(self, x):
        return nn.functional.dropout(super().forward(x), 0.2, self.training)


class LossKeepingStacked(StackedVariant):
    def forward(self, x):
        logits, _, _ = self.gate(x.view(-1, x.shape[-1]))
        self.aux_loss = logits.logsumexp(-1).square().mean()
        return super().forward(x)


class ScaledStacked(StackedVariant):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return super().forward(x) * self.scale


class CheckedStacked(StackedVariant):
    """Names the intermediate size in its code."""

    def __init__(self):
        super().__init__()
        self.experts = NamingExperts(HIDDEN, INTERMEDIATE, EXPERTS)


class UngatedStacked(StackedVariant):
    def __init__(self):
        super().__init__()
        self.experts = UngatedExperts(HIDDEN, INTERMEDIATE, EXPERTS)


class UngatedExperts(layouts.StackedExperts):
    """up_proj [E, I, H] in place of gate and up."""

    def __init__(self, hidden, intermediate, experts):
        super().__init__(hidden, intermediate, experts)
        self.gate_up_proj = nn.Parameter(self.gate_up_proj.detach()[:, :intermediate].clone())

    def one(self, expert):
        up, down = self.matrices(expert)
        return lambda rows: nn.functional.relu(rows @ up.t()).square() @ down.t()


class InTurnExperts(layouts.StackedExperts):
    """Rows of gate and up in turn."""

    def one(self, expert):
        gate_up, down = self.matrices(expert)
        return lambda rows: (self.act_fn(rows @ gate_up[::2].t()) * (rows @ gate_up[1::2].t())) @ down.t()


class InTurnStacked(StackedVariant):
    def __init__(self):
        super().__init__()
        self.experts = InTurnExperts(HIDDEN, INTERMEDIATE, EXPERTS)


class BiasedExperts(layouts.StackedExperts):
    """Biases, one of them zeros, and other names."""

    def __init__(self, hidden, intermediate, experts):
        super().__init__(hidden, intermediate, experts)
        self.b2, self.b1 = nn.Parameter(torch.zeros(experts, hidden)), nn.Parameter(torch.randn(experts, 2 * intermediate))

    def one(self, expert):
        gate_up, down = self.matrices(expert)

        def apply(rows):
            gate, up = (rows @ gate_up.t() + self.b1[expert]).chunk(2, -1)
            return (self.act_fn(gate) * up) @ down.t() + self.b2[expert]

        return apply


class BiasedStacked(StackedVariant):
    def __init__(self):
        super().__init__()
        self.experts = BiasedExperts(HIDDEN, INTERMEDIATE, EXPERTS)


class NamingExperts(layouts.StackedExperts):
    def one(self, expert):
        gate_up, down = self.matrices(expert)

        def apply(rows):
            both = rows @ gate_up.t()
            gate, up = both[:, :INTERMEDIATE], both[:, INTERMEDIATE : 2 * INTERMEDIATE]
            return (self.act_fn(gate) * up).view(-1, INTERMEDIATE) @ down.t()

        return apply


class NamingMlp(GatedMlp):
    def forward(self, x):
        act = self.act_fn(self.gate_proj(x)) * self.up_proj(x)
        return self.down_proj(act.view(-1, INTERMEDIATE))


def with_weights(block, fill):
    """Its parameters as fill(name, parameter) leaves them."""
    with torch.no_grad():
        for name, tensor in block.named_parameters():
            fill(name, tensor)
    return block


def zeros_at(*words):
    return lambda name, tensor: tensor.zero_() if any(word in name for word in words) else None


def normed():
    block = Block()
    nn.utils.weight_norm(block.gate)
    return block


def zero_bias():
    block = layouts.DeepseekBlock(HIDDEN, INTERMEDIATE, EXPERTS)
    block.gate.e_score_correction_bias.zero_()
    return block


def sized(block, **sizes):
    return lambda: block(**{"hidden": HIDDEN, "intermediate": INTERMEDIATE, "experts": EXPERTS, **sizes})


def raw(self, weights):
    return weights


SIGMOID = dict(scores=lambda self, logits: logits.float().sigmoid())
SUPPORTED = {
    **{name: sized(block) for name, block in layouts.LAYOUTS.items()},
    "jamba": sized(layouts.JambaBlock),
    "gpt-oss of transformers 4": sized(layouts.OldOssBlock),
    "nemotron": sized(layouts.NemotronBlock),
    "top 1": lambda: Block(top_k=1),
    "top 1, not normalised": lambda: variant(weigh=raw)(top_k=1),
    "all experts": lambda: Block(top_k=EXPERTS),
    "two experts": lambda: Block(experts=2, top_k=1),
    "hidden as intermediate": lambda: Block(hidden=24),
    "one column more than is tried": lambda: Block(intermediate=9),
    "sigmoid": variant(**SIGMOID),
    "sigmoid, not normalised": variant(**SIGMOID, weigh=raw),
    "sigmoid with a router of zeros": lambda: with_weights(variant(**SIGMOID, weigh=raw)(), zeros_at("gate.weight")),
    "sigmoid with tiny logits": lambda: with_weights(
        variant(**SIGMOID)(), lambda name, tensor: tensor.mul_(1e-9) if name == "gate.weight" else None
    ),
    "softmax with all of zeros": lambda: with_weights(Block(), zeros_at("")),
    "experts of zeros": lambda: with_weights(variant(weigh=raw)(), zeros_at("down_proj")),
    "softmax of the chosen": variant(
        scores=lambda self, logits: logits.float(), weigh=lambda self, weights: weights.softmax(-1)
    ),
    "a bias of the router": variant(prepare=hold(gate=lambda: nn.Linear(HIDDEN, EXPERTS))),
    "a router of rows alone": variant(prepare=hold(gate=RowsOnly)),
    "a router with weight norm": normed,
    "a router with noise": variant(prepare=hold(gate=lambda: NoisyRouter(HIDDEN, EXPERTS))),
    "a router that counts": variant(prepare=hold(gate=lambda: CountingRouter(HIDDEN, EXPERTS))),
    "a correction bias of zeros": zero_bias,
    "logits in the shape of the input": ShapedBlock,
    "a factor": variant(
        prepare=hold(routed_scaling_factor=lambda: 2.5),
        after=lambda self, y, rows, logits: y * self.routed_scaling_factor,
    ),
    "a shared expert": SharedBlock,
    "a shared expert with dropout": variant(SharedBlock, prepare=hold(shared=lambda: DroppingSharedMlp(HIDDEN, 40))),
    "activation geglu": variant(
        prepare=experts_of(lambda *sizes: GatedMlp(*sizes, act=nn.GELU(approximate="tanh")))
    ),
    "activation reglu": variant(prepare=experts_of(lambda *sizes: GatedMlp(*sizes, act=nn.ReLU()))),
    "two matrices": variant(prepare=experts_of(layouts.UngatedMlp)),
    "two matrices and silu": variant(prepare=experts_of(lambda *sizes: layouts.UngatedMlp(*sizes, nn.functional.silu))),
    "stacked without a gate": UngatedStacked,
    "stacked with gate and up in turn": InTurnStacked,
    "stacked with biases of other names": BiasedStacked,
    "activation with a limit": variant(prepare=experts_of(ClampedMlp)),
    "experts that name their size": variant(prepare=experts_of(NamingMlp)),
    "another path in training": variant(
        combine=in_training(lambda self, rows, ids, w: plainly(self, rows, ids.flip(-1), w.flip(-1)), plainly)
    ),
    "checkpointed": Checkpointed,
    "stacked with dropout": DroppingStacked,
    "stacked with a loss in an attribute": LossKeepingStacked,
    "stacked with a scale of zero": ScaledStacked,
    "stacked that names its size": CheckedStacked,
}
