"""Experts of an ep_group with code that treats parameters as copies: right results, or refused by name.

Everything runs in two processes, each with half of the tokens and of the experts. The right results are those of one
process with all of both: the experts keep their values, and gradients are those of the mean of both losses.
"""

import copy
import re
import unittest
import weakref

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from grouped import grouped
from models import layouts
from models.eager_moe import EagerMoE
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils.checkpoint import checkpoint

HIDDEN, INTERMEDIATE, TOP_K = 32, 48, 2
BOUND = 6e-2  # of gradients, in the norm: several bfloat16 products in a row; a missing mean gives 0.5


class Block(nn.Module):
    """A router, experts, and maybe a shared expert or another layer's experts once more."""

    def __init__(self, make_experts, experts, shared=False, calls=1, again=False):
        super().__init__()
        self.inner = nn.Linear(HIDDEN, HIDDEN)
        self.router = nn.Linear(HIDDEN, experts)
        self.moe = make_experts()
        self.shared = layouts.GatedMlp(HIDDEN, 24) if shared else None
        self.unused = nn.Linear(HIDDEN, 3)
        self.calls, self.again = calls, again

    def experts_of(self, x, routed):
        weights, ids = self.router(routed).softmax(-1).topk(TOP_K, -1)
        return self.moe(x, ids, weights)

    def forward(self, x, routed):
        """Routed by tensors that are exact, so that no rounding changes the routing."""
        y = x + torch.tanh(self.inner(x))
        for _ in range(self.calls):
            y = y + (checkpoint(self.experts_of, y, routed) if self.again else self.experts_of(y, routed))
        return y if self.shared is None else y + self.shared(x)


class Model(nn.Module):
    """Blocks; their weights are the same in all processes, but each has its own experts."""

    def __init__(self, group, lora=None, dtype=torch.float32, experts=8, blocks=1, keep="all", eager=False, **block):
        super().__init__()
        torch.manual_seed(5)
        sizes = (HIDDEN, INTERMEDIATE, experts, TOP_K)
        options = dict(lora=lora, dtype=dtype)

        def make():
            whole = EagerMoE(*sizes, **options)
            with torch.no_grad():
                for name, parameter in whole.named_parameters():
                    parameter.normal_(std=parameter.shape[2] ** -0.5).copy_(parameter.bfloat16())
            if eager:
                return whole.float()
            with torch.random.fork_rng():
                layer = sluice_torch.MoE(*sizes, **grouped(ep_group=group, threads=1, timeout=20, keep=keep, **options))
            first, count = layer.first_expert, len(layer.gate_up_weight)
            with torch.no_grad():
                for name, parameter in layer.named_parameters():
                    parameter.copy_(whole.get_parameter(name)[first : first + count])
            return layer

        self.blocks = nn.ModuleList(Block(make, experts, **block) for _ in range(blocks))

    def forward(self, x):
        y = x
        for block in self.blocks:
            y = block(y, x)
        return y


class Inside(nn.Module):
    """A model in another."""

    def __init__(self, model):
        super().__init__()
        self.head, self.model = nn.Identity(), model

    def forward(self, x):
        return self.model(self.head(x))


def tokens_of(rank, part=0):
    made = torch.Generator().manual_seed(50 * rank + part)
    return torch.randn(20 + 9 * rank, HIDDEN, generator=made), torch.randn(20 + 9 * rank, HIDDEN, generator=made)


def loss_of(model, rank, part=0):
    x, target = tokens_of(rank, part)
    return ((model(x) - target) ** 2).mean()


def freeze(model, names):
    for name, parameter in model.named_parameters():
        if any(part in name for part in names):
            parameter.requires_grad_(False)


def expected_grads(size, parts, frozen, **options):
    """Gradients of the mean over ranks of the sums over parts, by name, of a process that has everything."""
    twin = Model(None, eager=True, **{**options, "keep": "all"})
    if options.get("lora"):
        freeze(twin, ["gate_up_weight", "down_weight"])
    freeze(twin, frozen)
    sum(loss_of(twin, rank, part) for rank in range(size) for part in range(parts)).div(size).backward()
    return {name: parameter.grad for name, parameter in twin.named_parameters()}


def assert_grads(model, expected, experts):
    for name, parameter in model.named_parameters():
        wanted = expected[name]
        if wanted is None or ".unused." in name:
            assert parameter.grad is None or not parameter.grad.any(), name
            continue
        if ".moe." in name:
            moe = model.get_submodule(name.rpartition(".")[0])
            wanted = wanted[moe.first_expert : moe.first_expert + len(parameter)]
        off = ((parameter.grad.float() - wanted).norm() / wanted.norm()).item()
        assert off < BOUND, (name, off, parameter.grad.norm().item(), wanted.norm().item())


def check_right(rank, size, ddp=None, frozen=(), parts=1, wrap=None, after=None, ep=None, **options):
    """A step under a wrapper gives the gradients of one process, and leaves the experts as they were."""
    model = Model(ep() if ep else dist.group.WORLD, **options)
    freeze(model, frozen)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    ddp = {"find_unused_parameters": True} if ddp is None else ddp
    wrapped = wrap(model) if wrap else DistributedDataParallel(model, **ddp)
    model = next(part for part in wrapped.modules() if isinstance(part, Model))
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), f"{name} was changed"
    if after:
        after(wrapped)
    for part in range(parts - 1):
        with wrapped.no_sync():
            loss_of(wrapped, rank, part).backward()
    loss_of(wrapped, rank, parts - 1).backward()
    assert_grads(model, expected_grads(size, parts, frozen, **options), options.get("experts", 8))
    return wrapped


LORA = sluice_torch.LoRAConfig(4, 8.0)


def wrap_inside(model):
    return DistributedDataParallel(Inside(model), find_unused_parameters=True)


def wrap_copied(model):
    return DistributedDataParallel(copy.deepcopy(model), find_unused_parameters=True)


def wrap_user_ignores(model):
    """DistributedDataParallel was configured to ignore something else: only that parameter's gradient is off."""
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["blocks.0.unused.weight"])
    return DistributedDataParallel(model, find_unused_parameters=True)


def wrap_two_names(model):
    model.also = model.blocks[0].moe
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    del model.also
    return wrapped


def add_hook(wrapped):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    wrapped.register_comm_hook(None, default_hooks.allreduce_hook)


def new_group():
    return dist.new_group()


RIGHT = {
    "as it is": {},
    "buckets as gradients": dict(ddp=dict(find_unused_parameters=True, gradient_as_bucket_view=True)),
    "small buckets": dict(ddp=dict(find_unused_parameters=True, bucket_cap_mb=0.001), blocks=3),
    "no buffers": dict(ddp=dict(find_unused_parameters=True, broadcast_buffers=False)),
    "a static graph": dict(ddp=dict(static_graph=True), frozen=["unused"]),
    "all parameters used": dict(ddp={}, frozen=["unused"]),
    "gradients of four parts": dict(parts=4),
    # an internal error of PyTorch 2.6, with any model
    **({} if hasattr(torch, "compiler") else {"gradients of two parts, static": dict(parts=2, ddp=dict(static_graph=True), frozen=["unused"])}),
    "frozen experts": dict(frozen=["moe."]),
    "frozen down projections": dict(frozen=["down_weight"]),
    "all but experts and one layer frozen": dict(frozen=["router", "unused"]),
    "adapters": dict(lora=LORA),
    "adapters, of bfloat16": dict(lora=LORA, dtype=torch.bfloat16),
    "adapters and little kept": dict(lora=LORA, keep="minimal"),
    "bfloat16 experts": dict(dtype=torch.bfloat16),
    "three blocks": dict(blocks=3),
    "experts that ranks do not divide": dict(experts=7),
    "a shared expert": dict(shared=True),
    "a shared expert and adapters": dict(shared=True, lora=LORA, blocks=2),
    "experts called twice": dict(calls=2),
    "checkpoints": dict(again=True, ddp=dict(static_graph=True), frozen=["unused"]),
    "a model in a model": dict(wrap=wrap_inside),
    "a copied model": dict(wrap=wrap_copied),
    "an own list of what to ignore": dict(wrap=wrap_user_ignores, frozen=["unused"]),
    "a layer with two names": dict(wrap=wrap_two_names),
    "a hook for communication": dict(after=add_hook),
    "an ep_group of its own": dict(ep=new_group),
    "a group of its own to average over": dict(wrap=lambda m: DistributedDataParallel(m, process_group=new_group(), find_unused_parameters=True)),
    "no ep_group: experts are copies": dict(ep=lambda: None),
}


def right(rank, size):
    for name, options in RIGHT.items():
        print("case:", name, flush=True)
        check_right(rank, size, **options)


def train(wrapped, model, rank, steps=3):
    """Some steps, and the norm of each, with the optimizer that any model has."""
    optimizer, norms = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss_of(wrapped, rank).backward()
        norms.append(sluice_torch.clip_grad_norm_(model.parameters(), 0.5).item())
        optimizer.step()
    return norms


def others(model):
    """The parameters of which all ranks have copies, as one vector."""
    return torch.cat([each.detach().flatten() for name, each in model.named_parameters() if ".moe." not in name])


def clipping(rank, size):
    """Norms and the model afterwards are those of one process; copies at other ranks stay equal."""
    for kind in (2.0, 1.0, float("inf")):
        model, twin = Model(dist.group.WORLD), Model(None, eager=True)
        wrapped = DistributedDataParallel(model, find_unused_parameters=True)
        loss_of(wrapped, rank).backward()
        sum(loss_of(twin, each) for each in range(size)).div(size).backward()
        found = sluice_torch.clip_grad_norm_(model.parameters(), 0.01, kind).item()
        wanted = torch.nn.utils.clip_grad_norm_(list(twin.parameters()), 0.01, kind).item()
        assert abs(found - wanted) < 0.03 * wanted, (kind, found, wanted)
        assert_grads(model, {name: each.grad for name, each in twin.named_parameters()}, 8)
    wrapped = DistributedDataParallel(model := Model(dist.group.WORLD), find_unused_parameters=True)
    train(wrapped, model, rank)
    said = [None] * size
    dist.all_gather_object(said, others(model))
    assert all(torch.equal(said[0], each) for each in said), "copies differ"


def averaged_afterwards(model):
    """A copy for averages over time, and a model that no wrapper touches, are each rank's own."""
    return torch.optim.swa_utils.AveragedModel(model)


def alone(rank, size):
    """Code that affects only one process is not disturbed by experts; without a wrapper their gradients are sums."""
    for wrap in (DataParallel, averaged_afterwards, lambda model: model):
        model = Model(dist.group.WORLD)
        wrapped = wrap(model)
        model = next(part for part in wrapped.modules() if isinstance(part, Model))
        loss_of(wrapped, rank).backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                if ".moe." not in name:
                    dist.all_reduce(parameter.grad)
                parameter.grad /= size
        assert_grads(model, expected_grads(size, 1, ()), 8)
    ended = DistributedDataParallel(model, find_unused_parameters=True)
    del ended, wrapped
    model.zero_grad()
    loss_of(model, rank).backward()
    undivided = model.blocks[0].moe.down_weight.grad / size
    wanted = expected_grads(size, 1, ())["blocks.0.moe.down_weight"]
    first = model.blocks[0].moe.first_expert
    assert ((undivided - wanted[first : first + len(undivided)]).norm() / undivided.norm()).item() < BOUND


def kept(rank, size):
    """Runs in one pair of processes, because importing PyTorch takes the longest."""
    for part in (right, clipping, alone):
        part(rank, size)


# Refused code: a function that applies it to a model and its rank, and the expected error.
def only_experts(model, rank):
    freeze(model, [name for name, _ in model.named_parameters() if ".moe." not in name])
    DistributedDataParallel(model)


def main_grad(model, rank):
    for each in (model.blocks[0].moe.down_weight,):
        each.main_grad = torch.zeros_like(each, dtype=torch.float32)
    loss_of(DistributedDataParallel(model, find_unused_parameters=True), rank)


def main_grad_of_adapter(model, rank):
    model = Model(dist.group.WORLD, lora=LORA)
    each = model.blocks[0].moe.up_lora_b
    each.main_grad = torch.zeros_like(each, dtype=torch.float32)
    loss_of(DistributedDataParallel(model, find_unused_parameters=True), rank)


def fewer_ranks(model, rank):
    groups = [dist.new_group([each]) for each in range(2)]
    DistributedDataParallel(model, process_group=groups[rank])


def more_ranks(model, rank):
    """Experts that two ep_groups would hold copies of."""
    groups = [dist.new_group([each]) for each in range(2)]
    model.blocks[0].moe._group.key = (weakref.ref(groups[rank]),)
    DistributedDataParallel(model)


def added_afterwards(model, rank):
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    model.blocks.append(Model(dist.group.WORLD).blocks[0])
    loss_of(wrapped, rank)


def parameters_alone(model, rank):
    """As replicate() of PyTorch 2 does."""
    DistributedDataParallel(nn.ParameterList(model.parameters()))


def zero_redundancy(model, rank):
    ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam)


def zero_redundancy_groups(model, rank):
    block = model.blocks[0]
    groups = [{"params": list(block.inner.parameters())}, {"params": list(block.moe.parameters()), "lr": 0.1}]
    ZeroRedundancyOptimizer(groups, torch.optim.Adam)


def averaging(model, rank):
    from torch.distributed.algorithms.model_averaging import averagers

    loss_of(model, rank).backward()
    averagers.PeriodicModelAverager(period=1, warmup_steps=0).average_parameters(model.parameters())


def local_sgd(model, rank):
    from torch.distributed.algorithms.model_averaging import averagers
    from torch.distributed.optim import PostLocalSGDOptimizer

    averager = averagers.PeriodicModelAverager(period=1, warmup_steps=0)
    optimizer = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), averager)
    loss_of(model, rank).backward()
    optimizer.step()


def fully_sharded(model, rank):
    """What FullyShardedDataParallel and fully_shard do to each module of which they take the parameters."""
    for module in model.modules():
        module._is_fsdp_managed_module = True


class DTensor(torch.Tensor):
    """Stands for that of PyTorch 2."""


def distributed_tensor(model, rank):
    weight = model.blocks[0].moe.down_weight
    model.blocks[0].moe.down_weight = nn.Parameter(weight.detach().as_subclass(DTensor))


def distributed_parameter(model, rank):
    weight = model.blocks[0].moe.down_weight
    model.blocks[0].moe.register_parameter("down_weight", nn.Parameter(weight.detach().as_subclass(DTensor)))
    loss_of(model, rank)


def state_of_rank_0(model, rank):
    """Rank 0 saves its state, and all load it: rank 1 would get the experts of rank 0."""
    said = [model.state_dict()]
    dist.broadcast_object_list(said, src=0)
    before = model.blocks[0].moe.gate_up_weight.detach().clone()
    try:
        model.load_state_dict(said[0])
    except RuntimeError:
        assert torch.equal(before, model.blocks[0].moe.gate_up_weight)
        raise
    if rank == 0:
        raise RuntimeError("experts 0 to 3 of 8 are those of rank 0")


def other_state(model, rank):
    """A file of a rank of three, of as many experts as this rank has."""
    state = model.state_dict()
    state["blocks.0.moe.expert_range"] = torch.tensor([4, 8, 12])
    model.load_state_dict(state)


def state_in_one_process(model, rank):
    Model(None, experts=4).blocks[0].moe.load_state_dict(model.blocks[0].moe.state_dict())


def clip(model, rank):
    loss_of(model, rank).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def clip_one(model, rank):
    torch.nn.utils.clip_grad.clip_grad_norm_(model.blocks[0].moe.down_weight, 1.0)


REFUSED = {
    only_experts: "nothing to do: all parameters of the model that are trained are experts",
    main_grad: "down_weight has a main_grad",
    main_grad_of_adapter: "up_lora_b has a main_grad",
    fewer_ranks: r"averages over ranks \[\d\], but the experts are shared by the ep_group of ranks \[0, 1\]",
    more_ranks: r"averages over ranks \[0, 1\], but the experts are shared by the ep_group of ranks \[\d\]",
    added_afterwards: "came into a model that DistributedDataParallel had wrapped already",
    parameters_alone: "wrapped by DistributedDataParallel without their layer",
    zero_redundancy: "ZeroRedundancyOptimizer would send experts",
    zero_redundancy_groups: "ZeroRedundancyOptimizer would send experts",
    averaging: "averaging over ranks would mix different experts",
    local_sgd: "averaging over ranks would mix different experts",
    fully_sharded: "FullyShardedDataParallel and fully_shard would mix those of several ranks",
    distributed_tensor: "down_weight of a layer with an ep_group is to become a DTensor",
    distributed_parameter: "down_weight is a DTensor, expected a tensor that this process has whole",
    state_of_rank_0: "experts 0 to 3 of 8",
    other_state: r"blocks.0.moe has experts 4 to 7 of 12, but this layer owns \d to \d of 8",
    state_in_one_process: r"the state has experts \d to \d of 8, but this layer owns 0 to 3 of 4",
    clip: "the norm differs from rank to rank",
    clip_one: "the norm differs from rank to rank",
}


def refused(rank, size):
    for act, message in REFUSED.items():
        print("case:", act.__name__, flush=True)
        model = Model(dist.group.WORLD)
        before = {name: value.clone() for name, value in model.state_dict().items() if ".moe." in name}
        try:
            act(model, rank)
        except RuntimeError as error:
            assert re.search(message, str(error)), (act.__name__, str(error))
        else:
            raise AssertionError(f"{act.__name__} was not refused")
        for name, value in model.state_dict().items():
            assert name not in before or torch.equal(value, before[name]), f"{act.__name__} changed {name}"


class ReplicasTest(unittest.TestCase):
    def test_steps_under_wrappers_and_clipping_are_those_of_one_process(self):
        self.assertGreaterEqual(len(RIGHT), 20)
        core_jobs.run_ranks(self, "kept", 2)

    def test_what_would_mix_experts_is_refused_by_name_and_before_it_does(self):
        core_jobs.run_ranks(self, "refused", 2)


if __name__ == "__main__" and not core_jobs.main(globals()):
    unittest.main()
