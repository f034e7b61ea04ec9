"""Gradients of experts in a model under Megatron's DistributedDataParallel and its norm, written here after both: they are those
of plain PyTorch with the tokens of all ranks, because parameters say how many ranks have the same numbers."""

import copy
import types
import unittest

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
import torch.utils.checkpoint
from grouped import grouped
from moe_eager import BOUND, eager, error, route
from sluice_torch import LoRAConfig

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, TOKENS, RANK = 64, 32, 4, 2, 60, 8
TARGETS = ("gate", "up", "down")

SIZE = 4
# ep, tp and tokens of the layer, of which ranks have replicas if ep tp is less than their number.
LAYOUTS = {
    "experts": (4, 1, "own"),
    "replicas of experts": (2, 1, "own"),
    "replicas of shards with own tokens": (1, 2, "own"),
    "replicas of shards with the same tokens": (1, 2, "same"),
    "shards of experts with own tokens": (2, 2, "own"),
    "shards of experts with the same tokens": (2, 2, "same"),
}
OPTIONS = {
    "trained": {},
    "places": {"spare": 2},
    "adapters": {"lora": LoRAConfig(RANK)},
    "adapters of down in places": {"lora": LoRAConfig(RANK, targets=("down",)), "spare": 2},
}


def whole_tensors():
    """The weights, and the adapters by name, of all experts in float32."""
    made = torch.Generator().manual_seed(3)
    outs, ins = {"gate": INTERMEDIATE, "up": INTERMEDIATE, "down": HIDDEN}, {"gate": HIDDEN, "up": HIDDEN, "down": INTERMEDIATE}
    found = {}
    for target in TARGETS:
        found[target] = torch.randn(EXPERTS, outs[target], ins[target], generator=made) / 6
        found[f"{target}_lora_a"] = torch.randn(EXPERTS, RANK, ins[target], generator=made) / 6
        found[f"{target}_lora_b"] = torch.randn(EXPERTS, outs[target], RANK, generator=made) / 6
    return {name: each.bfloat16().float() for name, each in found.items()}


def own_part(name, whole, layer):
    """What the layer's parameter `name` has of whole tensors."""
    tp, shard = layer.shape.tp, layer.shard
    if name == "gate_up_weight":
        made = torch.cat([whole[each].chunk(tp, 1)[shard] for each in ("gate", "up")], 1)
    elif name in ("gate_lora_b", "up_lora_b"):
        made = whole[name].chunk(tp, 1)[shard]
    elif name in ("down_weight", "down_lora_a"):
        made = whole[name.removesuffix("_weight")].chunk(tp, 2)[shard]
    else:
        made = whole[name]
    return made[layer.local_experts]


def batch(source):
    made = torch.Generator().manual_seed(10 + source)
    ids, weights = route(TOKENS, EXPERTS, TOP_K, source)
    return torch.randn(TOKENS, HIDDEN, generator=made).bfloat16(), ids, weights, torch.randn(TOKENS, HIDDEN, generator=made).bfloat16()


def expected_grads(layer, sources):
    """The gradients of whole tensors for the mean of the losses of all sources of tokens."""
    leaves = {name: each.clone().requires_grad_() for name, each in whole_tensors().items()}
    matrices = dict(leaves)
    for target in layer.lora.targets if layer.lora is not None else ():
        matrices[target] = leaves[target].detach() + leaves[f"{target}_lora_b"] @ leaves[f"{target}_lora_a"]
    loss = 0
    for source in range(sources):
        x, ids, weights, dy = batch(source)
        y = eager(x.float(), ids, weights, torch.cat([matrices["gate"], matrices["up"]], 1), matrices["down"])
        loss = loss + (y * dy.float()).sum() / sources
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)))


def groups_of(size, step):
    """This rank's group among those of ranks that differ by multiples of `step`."""
    made = [dist.new_group(list(range(first, size, step))) for first in range(step)]
    return made[dist.get_rank() % step]


class Parallel:
    """Megatron's groups for a layout: of dense parameters, of experts, and the number of this rank's shard."""

    def __init__(self, rank, size, ep, tp, tokens):
        layer_ranks = ep * tp
        self.groups = [dist.new_group(list(range(first, first + layer_ranks))) for first in range(0, size, layer_ranks)]
        self.layer_group = self.groups[rank // layer_ranks]
        # ranks with the same tokens share dense parameters as shards
        self.dense_size = size // tp if tokens == "same" else size
        self.dense = groups_of(size, size // self.dense_size)
        self.experts = groups_of(size, layer_ranks)
        self.tp_rank = rank % tp
        self.source, self.sources = (rank // tp, size // tp) if tokens == "same" else (rank, size)

    def reduce(self, parameters):
        """What DistributedDataParallel does with gradients (param_and_grad_buffer.py)."""
        found = {}
        for name, each in parameters.items():
            grad = each.grad.float() / self.dense_size
            dist.all_reduce(grad, group=self.dense if getattr(each, "allreduce", True) else self.experts)
            found[name] = grad
        return found

    def norm(self, parameters, grads):
        """What get_grad_norm_fp32() gives for the gradients of one optimizer (clip_grads.py, tensor_parallel/layers.py)."""
        total = torch.zeros(1)
        for name, each in parameters.items():
            if getattr(each, "tensor_model_parallel", False) or self.tp_rank == 0:
                total += grads[name].square().sum()
        dist.all_reduce(total, group=self.layer_group)
        return total.sqrt().item()


def check_layout(rank, size, name):
    ep, tp, tokens = LAYOUTS[name]
    parallel = Parallel(rank, size, ep, tp, tokens)
    for kind, options in OPTIONS.items():
        if "spare" in options and (ep == 1 or size > ep * tp):
            continue  # experts cannot move; or replicas may move theirs elsewhere
        layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, **grouped(ep_group=parallel.layer_group, tp=tp, tokens=tokens, threads=1, **options))
        with torch.no_grad():
            for each, parameter in layer.named_parameters():
                parameter.copy_(own_part(each, whole_tensors(), layer))
        x, ids, weights, dy = batch(parallel.source)
        layer(x, ids, weights).backward(dy)
        trained = {each: parameter for each, parameter in layer.named_parameters() if parameter.requires_grad}
        expected = expected_grads(layer, parallel.sources)
        grads = parallel.reduce(trained)
        for each, grad in grads.items():
            worst = error(grad, own_part(each, expected, layer))
            assert worst < BOUND, (name, kind, each, worst)
        if "spare" not in options:  # copies are counted by nobody
            of = [each for each in (expected if layer.lora is None else layer.lora.names()) if expected[each] is not None]
            norm = sum(expected[each].square().sum() for each in of).sqrt().item()
            found = parallel.norm(trained, grads)
            assert abs(found / norm - 1) < BOUND, (name, kind, found, norm)


def marks(layer):
    return {
        name: (getattr(each, "allreduce", True), getattr(each, "tensor_model_parallel", False))
        for name, each in layer.named_parameters()
    }


def check_ways(group):
    """Parameters have their marks however they came into the layer."""
    sizes = (HIDDEN, INTERMEDIATE, EXPERTS, TOP_K)
    options = {"lora": LoRAConfig(RANK), "threads": 1}
    for tp, tokens in ((1, "own"), (2, "own"), (2, "same")):
        layer = sluice_torch.MoE(*sizes, **grouped(ep_group=group, tp=tp, tokens=tokens, **options))
        expected = marks(layer)
        assert {allreduce for allreduce, _ in expected.values()} == {tokens == "same"}, (tp, tokens, expected)
        own = {name for name, (_, is_shard) in expected.items() if is_shard}
        shards = {"gate_up_weight", "down_weight", "gate_lora_b", "up_lora_b", "down_lora_a"}
        assert own == (shards if tp > 1 else set()), own
        other = copy.deepcopy(layer)
        assert marks(other) == expected
        other.float().bfloat16()
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        other.float()
        torch.__future__.set_overwrite_module_params_on_conversion(False)
        assert marks(other) == expected
        other.load_state_dict(layer.state_dict())
        other.down_weight = torch.nn.Parameter(other.down_weight.detach().clone())
        other.register_parameter("gate_up_weight", torch.nn.Parameter(other.gate_up_weight.detach().clone()))
        assert marks(other) == expected
        whole = sluice_torch.MoE(*sizes, **grouped(**options))
        assert {(True, False)} == set(marks(whole).values())
        if tokens == "own":
            style = sluice_torch.ExpertParallel() if tp == 1 else sluice_torch.TensorParallel(tokens="own")
            assert marks(style.apply(whole, group)) == expected
    places = sluice_torch.MoE(*sizes, **grouped(ep_group=group, spare=2, threads=1))
    places.place([3, 2, 1, 0, 1, 2])
    assert set(marks(places).values()) == {(False, False)}


def run(layer, tokens, source, checkpointed):
    x, _, _, dy = batch(source)
    ids, weights = route(TOKENS, EXPERTS - 1, TOP_K, source)  # the last expert has no rows
    x = x[:tokens].requires_grad_()
    call = lambda each: layer(each, ids[:tokens], weights[:tokens])
    y = torch.utils.checkpoint.checkpoint(call, x, use_reentrant=False) if checkpointed else call(x)
    y.backward(dy[:tokens])


def check_watched(layer, tokens, source, checkpointed, zeros):
    """A parameter that Megatron watches (distributed_data_parallel.py) has the main_grad of one that nobody does, and a placeholder."""
    with torch.no_grad():
        for name in ("gate_lora_b", "up_lora_b", "down_lora_b") if layer.lora is not None else ():
            getattr(layer, name).normal_(std=0.1)  # of zeros a has no gradient
    plain = copy.deepcopy(layer)
    for each in (layer, plain):
        for parameter in each.parameters():
            if parameter.requires_grad:
                parameter.main_grad = torch.ones(parameter.shape)
    for parameter in layer.parameters():
        parameter.grad_added_to_main_grad, parameter.zero_out_wgrad = False, zeros
    for each in (layer, plain):
        run(each, tokens, source, checkpointed)
    for (name, found), expected in zip(layer.named_parameters(), plain.parameters()):
        assert expected.grad is None, name
        if not found.requires_grad:
            assert found.grad is None and not found.grad_added_to_main_grad, name
            continue
        assert torch.equal(found.main_grad, expected.main_grad), name
        assert tokens == 0 or (found.main_grad != 1).any(), name
        assert found.grad_added_to_main_grad is True, name
        assert found.grad.shape == found.shape and found.grad.dtype == found.dtype, name
        assert not zeros or (found.grad == 0).all(), name
    x, ids, weights, _ = batch(source)
    with torch.no_grad():
        layer(x, ids, weights)
    watched = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    for parameter in watched:
        parameter.grad_added_to_main_grad = False
    x.requires_grad_()
    torch.autograd.grad(layer(x, ids, weights).sum(), [x])
    assert not any(parameter.grad_added_to_main_grad for parameter in watched)


WATCHED = {
    "trained": {},
    "float32": {"dtype": torch.float32},
    "adapters": {"lora": LoRAConfig(RANK)},
    "codes": {"lora": LoRAConfig(RANK), "encode": "int8"},
}


def watched_places(rank, size):
    """Copies of experts, and a rank without tokens."""
    for options in ({"spare": 2}, {"spare": 2, "lora": LoRAConfig(RANK)}, {"tp": 2}):
        layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, **grouped(ep_group=dist.group.WORLD, threads=1, **options))
        if "spare" in options:
            layer.place([3, 2, 1, 0, 1, 2])
        check_watched(layer, TOKENS, rank, False, False)
        x, ids, weights, dy = batch(rank)
        some = TOKENS if rank == 0 else 0
        for parameter in layer.parameters():
            parameter.grad, parameter.grad_added_to_main_grad = None, False
        layer(x[:some].requires_grad_(), ids[:some], weights[:some]).backward(dy[:some])
        assert all(p.grad_added_to_main_grad and p.grad is not None for p in layer.parameters() if p.requires_grad)


class MegatronGradsTest(unittest.TestCase):
    def test_main_grads_that_megatron_watches(self):
        for kind, options in WATCHED.items():
            for tokens, checkpointed, zeros in ((TOKENS, False, True), (TOKENS, True, False), (0, False, False)):
                with self.subTest(kind, tokens=tokens, checkpointed=checkpointed):
                    layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, **grouped(threads=1, **options))
                    check_watched(layer, tokens, 0, checkpointed, zeros)

    def test_main_grads_that_megatron_watches_at_two_ranks(self):
        core_jobs.run_ranks(self, "watched_places", 2)

    def test_gradients_and_norms_are_those_of_all_tokens(self):
        core_jobs.run_ranks(self, "layouts", SIZE)


def layouts(rank, size):
    for name in LAYOUTS:
        check_layout(rank, size, name)
    check_ways(groups_of(size, 2))


if __name__ == "__main__":
    if not core_jobs.main({"layouts": layouts, "watched_places": watched_places}):
        unittest.main()
