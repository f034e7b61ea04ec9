"""sluice_torch.MoE with ranks that share experts: values, gradients, styles and errors, against whole eager layers."""

import itertools
import unittest

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from grouped import grouped
from models import layouts
from models.eager_moe import EagerMoE
from moe_eager import BOUND, eager, error, route
from sluice_torch import ExpertParallel, ExpertTensorParallel, Parallel, Steps, TensorParallel
from sluice_torch.ranks import replicas

HIDDEN, INTERMEDIATE, TOP_K = 64, 48, 2


class Mesh:
    """What the layer needs of a DeviceMesh, which old versions of PyTorch do not have."""

    def __init__(self, **groups):
        self.groups, self.mesh_dim_names, self.ndim = groups, tuple(groups), len(groups)

    def get_group(self, name=None):
        return self.groups[name or self.mesh_dim_names[0]]


def pair(rank, size, tp):
    """ep_group and tp_group of this rank. Collective."""
    shards = [dist.new_group(list(range(shard, size, tp))) for shard in range(tp)]
    groups = [dist.new_group(list(range(first, first + tp))) for first in range(0, size, tp)]
    return {"ep_group": shards[rank % tp], "tp_group": groups[rank // tp]}


def device_mesh(rank, size, tp):
    try:
        from torch.distributed.device_mesh import init_device_mesh
    except ImportError:
        groups = pair(rank, size, tp)
        return Mesh(ep=groups["ep_group"], tp=groups["tp_group"])
    return init_device_mesh("cpu", (size // tp, tp), mesh_dim_names=("ep", "tp"))


def ways(rank, size, tp):
    """The ways to say which ranks share experts."""
    yield {"ep_group": dist.group.WORLD, "tp": tp}
    yield pair(rank, size, tp)
    yield {"mesh": device_mesh(rank, size, tp)}
    if tp == size:
        yield {"tp_group": dist.group.WORLD}


def all_weights(experts):
    made = torch.Generator().manual_seed(7)
    gate_up = 0.1 * torch.randn(experts, 2 * INTERMEDIATE, HIDDEN, generator=made)
    down = 0.1 * torch.randn(experts, HIDDEN, INTERMEDIATE, generator=made)
    return {"gate_up_weight": gate_up.bfloat16().float(), "down_weight": down.bfloat16().float()}


def part_of(layer, name, whole):
    """This rank's part of a parameter, or of its gradient."""
    first, shape = layer.first_expert, layer.shape
    whole = whole[first : first + len(shape.places_of(layer._group.rank))]
    columns = range(layer.shard * shape.part, (layer.shard + 1) * shape.part)
    if name == "gate_up_weight":
        return whole[:, [*columns, *(INTERMEDIATE + column for column in columns)]]
    if name in ("gate_lora_b", "up_lora_b"):
        return whole[:, list(columns)]
    return whole[:, :, list(columns)] if name in ("down_weight", "down_lora_a") else whole


def make(experts=8, **options):
    layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, experts, TOP_K, **grouped(threads=1, timeout=20, **options))
    with torch.no_grad():
        for name, whole in all_weights(experts).items():
            getattr(layer, name).copy_(part_of(layer, name, whole))
    return layer


def source(layer, rank):
    """The number of a rank's tokens: ranks with the same tokens have the same number."""
    return rank // layer.shape.tp if layer.shape.tokens == "same" else rank


def batch(number, experts, seed):
    made = torch.Generator().manual_seed(100 * seed + number)
    tokens = (37, 20, 0, 9)[(number + seed) % 4]
    x = torch.randn(tokens, HIDDEN, generator=made).bfloat16().requires_grad_()
    dy = torch.randn(tokens, HIDDEN, generator=made).bfloat16()
    ids, weights = route(tokens, experts, TOP_K, 100 * seed + number)
    return x, ids, weights.requires_grad_(), dy


def check_close(found, expected, name):
    assert found.shape == expected.shape, (name, found.shape, expected.shape)
    assert error(found, expected) < BOUND, (name, error(found, expected))


def check_step(layer, rank, size, seed, expected_of):
    """A step of this rank, against `expected_of`, a whole layer with the tokens of all ranks."""
    experts = layer.shape.experts
    x, ids, weights, dy = batch(source(layer, rank), experts, seed)
    trained = {name: each for name, each in layer.named_parameters() if each.requires_grad}
    y = layer(x, ids, weights)
    found = torch.autograd.grad(y, [x, weights, *trained.values()], dy)
    batches = [batch(number, experts, seed) for number in range(source(layer, size - 1) + 1)]
    own = batches[source(layer, rank)]
    whole, forward = expected_of
    ys = [forward(each[0].float(), each[1], each[2]) for each in batches]
    leaves = [own[0], own[2], *(whole[name] for name in trained)]
    total = sum((y * each[3].float()).sum() for y, each in zip(ys, batches)) + 0 * sum(each.sum() for each in whole.values())
    expected = torch.autograd.grad(total, leaves, allow_unused=True)
    check_close(y, ys[source(layer, rank)], "y")
    for name, leaf, a, b in zip(["x", "expert_weights", *trained], leaves, found, expected):
        b = torch.zeros_like(leaf) if b is None else b  # of a rank without tokens
        check_close(a, part_of(layer, name, b) if name in trained else b, name)


def whole_of(experts):
    whole = {name: weight.requires_grad_() for name, weight in all_weights(experts).items()}
    return whole, lambda x, ids, weights: eager(x, ids, weights, *whole.values())


def steps(rank, size):
    for tp in (2, 4)[: size // 2]:
        for way, tokens in itertools.product(ways(rank, size, tp), ("own", "same")):
            layer = make(tokens=tokens, **way)
            assert layer.shard == rank % tp and layer.gate_up_weight.shape == (8 * tp // size, 96 // tp, HIDDEN)
            check_step(layer, rank, size, 1, whole_of(8))
    for tokens in ("own", "same"):
        way = {"ep_group": dist.group.WORLD, "tp": 2, "tokens": tokens}
        for seed in range(4):
            check_step(make(7, **way), rank, size, seed, whole_of(7))
        check_step(make(7, dtype=torch.float32, keep="minimal", **way), rank, size, 1, whole_of(7))


def shards_of(layer, tensor):
    """The tensors of the ranks that share experts with this one."""
    first = layer._group.rank - layer.shard
    return layer._group.gather_objects(tensor, "compare")[first : first + layer.shape.tp]


def inference(rank, size):
    """A step in flight; and ranks with the same tokens get the same bits."""
    layer = make(ep_group=dist.group.WORLD, tp=2, tokens="same")
    x, ids, weights, _ = batch(rank // 2, 8, 0)
    with torch.no_grad():
        pending = layer.submit_forward(x, ids, weights)
        y = layer(x, ids, weights)
        assert torch.equal(pending.wait(), y)
    assert torch.equal(y, shards_of(layer, y)[0])


def pairs(rank, size):
    """Indices and counts are those of the definition: a stable sort by expert, and counts by source and expert."""
    for tokens in ("own", "same"):
        layer = make(ep_group=dist.group.WORLD, tp=2, tokens=tokens)
        all_ids = [batch(number, 8, 1)[1] for number in range(source(layer, size - 1) + 1)]
        for each in all_ids:
            each[::5, 1] = -1
        ids = all_ids[source(layer, rank)]
        indices, counts = layer.order_pairs(ids)
        flat = ids.flatten().tolist()
        assert indices.tolist() == sorted((p for p in range(len(flat)) if flat[p] >= 0), key=lambda p: flat[p])
        assert counts.tolist() == [[(each == expert).sum().item() for expert in range(8)] for each in all_ids]
        wrong = torch.full((3, 2), 8) if rank == 1 else ids
        refused((ValueError, RuntimeError), "expert_ids[0, 0] is 8, expected 0 to 7", lambda: layer.order_pairs(wrong))


def adapters(rank, size):
    """Gradients of adapters, also of those that each shard has whole, which stay the same at all shards."""
    torch.manual_seed(rank)  # adapters that are whole begin as those of the first shard
    for targets, tokens, dtype, experts in (
        (("gate", "up", "down"), "own", torch.bfloat16, 7),
        (("gate", "up", "down"), "same", torch.float32, 8),
        (("up",), "same", torch.bfloat16, 8),
        (("down",), "own", torch.float32, 8),
    ):
        config = sluice_torch.LoRAConfig(4, 6.0, targets)
        layer = make(experts, ep_group=dist.group.WORLD, tp=2, tokens=tokens, lora=config, dtype=dtype)
        check_same_adapters(layer)
        whole = {name: each.requires_grad_() for name, each in fill_adapters(layer, config).items()}
        twin = EagerMoE(HIDDEN, INTERMEDIATE, experts, TOP_K, lora=config)
        for name, each in {**all_weights(experts), **whole}.items():
            del twin._parameters[name]
            setattr(twin, name, each)
        check_step(layer, rank, size, 1, (whole, twin))
        check_training(layer, rank)


def fill_adapters(layer, config):
    """Random adapters, the same at all ranks; returns them whole."""
    made = torch.Generator().manual_seed(3)
    sizes = {"gate": (HIDDEN, INTERMEDIATE), "up": (HIDDEN, INTERMEDIATE), "down": (INTERMEDIATE, HIDDEN)}
    whole = {}
    for target in config.targets:
        ins, outs = sizes[target]
        whole[f"{target}_lora_a"] = 0.1 * torch.randn(layer.shape.experts, config.rank, ins, generator=made)
        whole[f"{target}_lora_b"] = 0.3 * torch.randn(layer.shape.experts, outs, config.rank, generator=made)
    with torch.no_grad():
        for name, each in whole.items():
            each.copy_(each.bfloat16())
            getattr(layer, name).copy_(part_of(layer, name, each))
    return whole


def check_same_adapters(layer):
    for name, each in layer.named_parameters():
        if name in ("gate_lora_a", "up_lora_a", "down_lora_b"):
            assert torch.equal(each, shards_of(layer, each.detach())[0]), name


def check_training(layer, rank):
    trained = [each for each in layer.parameters() if each.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1)
    before = [each.detach().clone() for each in trained]
    for seed in range(2):
        x, ids, weights, dy = batch(source(layer, rank), layer.shape.experts, seed)
        layer(x, ids, weights).backward(dy)
    check_main_grads(layer, rank, trained)
    optimizer.step()
    assert all(not torch.equal(a, b) for a, b in zip(before, trained))
    check_same_adapters(layer)


def check_main_grads(layer, rank, trained):
    """Sums over shards also go to a main_grad."""
    grads = [each.grad for each in trained]
    for each in trained:
        each.grad, each.main_grad = None, torch.zeros(each.shape)
    for seed in range(2):
        x, ids, weights, dy = batch(source(layer, rank), layer.shape.experts, seed)
        layer(x, ids, weights).backward(dy)
    for each, grad in zip(trained, grads):
        assert each.grad is None and error(each.main_grad, grad) < BOUND
        each.grad = grad
        del each.main_grad


def frozen_adapters(rank, size):
    """Shards do not meet for gradients that are not required."""
    layer = make(ep_group=dist.group.WORLD, tp=2, lora=sluice_torch.LoRAConfig(2, 2.0))
    for each in layer.parameters():
        each.requires_grad_(False)
    layer.down_lora_a.requires_grad_()
    x, ids, weights, dy = batch(rank, 8, 0)
    layer(x, ids, weights).backward(dy)
    assert layer.down_lora_a.grad is not None and layer.down_lora_b.grad is None


def clipping(rank, size):
    """The norm is that of the whole model: tensors that several shards have whole count once."""
    layer = make(ep_group=dist.group.WORLD, tp=2, lora=sluice_torch.LoRAConfig(4, 4.0))
    shapes = {name: torch.Size(shape) for name, shape in whole_shapes(4).items()}
    made = torch.Generator().manual_seed(5)
    whole = {name: torch.randn(shape, generator=made) for name, shape in shapes.items()}
    for kind in (2.0, 3.0, float("inf")):
        for name, each in layer.named_parameters():
            each.grad = part_of(layer, name, whole[name]).to(each.dtype).clone()
        found = sluice_torch.clip_grad_norm_(layer.parameters(), 1.0, kind)
        expected = torch.cat([each.bfloat16().float().reshape(-1) for each in whole.values()]).norm(kind)
        assert abs(found - expected) < 1e-4 * expected, (kind, found, expected)


def whole_shapes(rank):
    shapes = {"gate_up_weight": (8, 2 * INTERMEDIATE, HIDDEN), "down_weight": (8, HIDDEN, INTERMEDIATE)}
    for target, ins, outs in (("gate", HIDDEN, INTERMEDIATE), ("up", HIDDEN, INTERMEDIATE), ("down", INTERMEDIATE, HIDDEN)):
        shapes[f"{target}_lora_a"], shapes[f"{target}_lora_b"] = (8, rank, ins), (8, outs, rank)
    return shapes


def wrapped(rank, size):
    """Under DistributedDataParallel gradients of experts are means over the ranks with other tokens."""
    for tokens, groups in (("own", size), ("same", size // 2)):
        model = torch.nn.Sequential(torch.nn.Linear(HIDDEN, HIDDEN))
        model.layer = make(ep_group=dist.group.WORLD, tp=2, tokens=tokens)
        model.forward = lambda x, ids, weights, model=model: model.layer(model[0](x), ids, weights)
        x, ids, weights, dy = batch(source(model.layer, rank), 8, 1)
        x = x.float()
        torch.nn.init.eye_(model[0].weight)
        torch.nn.init.zeros_(model[0].bias)
        model(x, ids, weights).backward(dy.float())
        sums = model.layer.down_weight.grad.clone()
        model.zero_grad(set_to_none=True)
        torch.nn.parallel.DistributedDataParallel(model)(x, ids, weights).backward(dy.float())
        assert error(model.layer.down_weight.grad, sums / groups) < 1e-2, tokens


def styles(rank, size):
    """Whole layers become the part of this rank, in place, and compute the same."""
    world, tp = dist.group.WORLD, 2
    mesh = device_mesh(rank, size, tp)
    config = sluice_torch.LoRAConfig(2, 2.0)
    for style, given, options in (
        (ExpertParallel(), world, {"ep_group": world}),
        (TensorParallel(), world, {"ep_group": world, "tp": size, "tokens": "same"}),
        (TensorParallel(tokens="own"), Mesh(only=world), {"ep_group": world, "tp": size}),
        (ExpertTensorParallel(), mesh, {"mesh": mesh, "tokens": "same"}),
        (ExpertTensorParallel(tokens="own"), (mesh.get_group("ep"), mesh.get_group("tp")), {"mesh": mesh}),
    ):
        whole = torch.nn.Sequential(make(lora=config), torch.nn.Linear(2, 2))
        fill_adapters(whole[0], config)
        whole[0].up_lora_a.requires_grad_(False)
        assert style.apply(whole, given) is whole
        expected = make(lora=config, **options)
        fill_adapters(expected, config)
        expected.up_lora_a.requires_grad_(False)
        assert whole[0].shape == expected.shape
        for (name, a), (_, b) in zip(whole[0].named_parameters(), expected.named_parameters()):
            assert torch.equal(a, b) and a.requires_grad == b.requires_grad and a.is_contiguous(), name
        x, ids, weights, _ = batch(source(expected, rank), 8, 1)
        assert torch.equal(whole[0](x, ids, weights), expected(x, ids, weights))
        assert replicas.among([whole[0].down_weight])
        refused(ValueError, f"has the part of rank {rank} of {size} already", lambda: style.apply(whole, given))
    refused(ValueError, "weight has shape [2, 2], expected w1 or w3", lambda: TensorParallel().apply(torch.nn.Linear(2, 2), world))
    refused(ValueError, "expected 'ep' and 'tp', or a pair", lambda: ExpertTensorParallel().apply(make(), world))
    two = torch.nn.Sequential(make(), sluice_torch.MoE(8, 3, 2, 1))
    refused(ValueError, "divisor of the intermediate size 3", lambda: TensorParallel().apply(two, world))
    assert two[0].shape.ranks == 1 and two[0].down_weight.shape[2] == INTERMEDIATE


def parallelized(rank, size):
    """parallelize_module() of newer versions of PyTorch accepts the styles."""
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import parallelize_module
    except ImportError:
        return
    model = torch.nn.Sequential(make(), torch.nn.Linear(2, 2))
    parallelize_module(model, init_device_mesh("cpu", (size,), mesh_dim_names=("tp",)), {"0": TensorParallel()})
    assert model[0].shape.tp == size
    x, ids, weights, _ = batch(0, 8, 1)
    assert torch.equal(model[0](x, ids, weights), make(ep_group=dist.group.WORLD, tp=size, tokens="same")(x, ids, weights))


def replaced(rank, size):
    """A model whose blocks are replaced computes what it did."""
    for layout, tp in itertools.product(layouts.LAYOUTS, (2, size)):
        torch.manual_seed(1)
        model = layouts.LAYOUTS[layout](experts=8)
        x = torch.randn(5, 1, 64)
        with torch.no_grad():
            before = model(x)
            holder = torch.nn.ModuleList([model])
            names = sluice_torch.replace_moe(holder, parallel=Parallel(dist.group.WORLD, tp=tp, tokens="same", timeout=20), steps=Steps(threads=1))
            assert len(names) == 1
            after = holder[0](x)
        before, after = (each[0] if isinstance(each, tuple) else each for each in (before, after))
        check_close(after, before, layout)


def refused(kind, message, call):
    try:
        call()
    except kind as error:
        assert message in str(error), (message, str(error))
        return
    raise AssertionError(f"not refused: {message}")


def errors(rank, size):
    world = dist.group.WORLD
    groups = pair(rank, size, 2)
    for message, options in (
        (f"tp is 3, expected a divisor of the {size} ranks", {"ep_group": world, "tp": 3}),
        ("tp is 0, expected a whole number from 1 on", {"ep_group": world, "tp": 0}),
        ("tp is 2, expected a divisor of the 1 ranks", {"tp": 2}),
        ("tp is 4, but tp_group has 2 ranks", {**groups, "tp": 4}),
        ("mesh is given together with ep_group", {"ep_group": world, "mesh": Mesh(ep=world)}),
        ("mesh has dimensions ('dp',), expected 'ep', 'tp' or both", {"mesh": Mesh(dp=world)}),
        ("tokens is 'some', expected 'own' or 'same'", {"ep_group": world, "tp": 2, "tokens": "some"}),
    ):
        refused(ValueError, message, lambda: make(**options))
    odd = lambda: sluice_torch.MoE(HIDDEN, 47, 8, TOP_K, parallel=Parallel(world, tp=2))
    refused(ValueError, "tp is 2, expected a divisor of the intermediate size 47", odd)
    layer = make(ep_group=world, tp=2)
    other_shapes(layer, rank)
    other_shards(layer, rank, size)
    other_tokens(rank)
    other_meshes(rank, size)


def other_shapes(layer, rank):
    """Weights of another shape fail the step at all ranks, and the next one takes place."""
    x, ids, weights, _ = batch(rank, 8, 0)
    y = layer(x, ids, weights)
    own = layer.down_weight
    if rank == 1:
        layer.down_weight = torch.nn.Parameter(all_weights(8)["down_weight"].bfloat16())
    refused((ValueError, RuntimeError), "down_weight has shape [8, 64, 48], expected [", lambda: layer(x, ids, weights))
    layer.down_weight = own
    assert torch.equal(layer(x, ids, weights), y)


def other_shards(layer, rank, size):
    states = layer._group.gather_objects(dict(layer.state_dict()), "compare")
    layer.load_state_dict(states[rank])
    first, end = layer.first_expert, layer.first_expert + len(layer.down_weight)
    message = f"has experts {first} to {end - 1} of 8 (shard {1 - rank % 2} of 2), but this layer owns {first} to"
    refused(RuntimeError, message, lambda: layer.load_state_dict(states[rank ^ 1]))
    whole = sluice_torch.state.reshard(states, 1)[0]
    refused(RuntimeError, "size mismatch for gate_up_weight", lambda: layer.load_state_dict(whole))


def other_tokens(rank):
    """Ranks that should have the same tokens have others: refused at all ranks."""
    layer = make(ep_group=dist.group.WORLD, tp=2, tokens="same")
    x, ids, weights, _ = batch(0, 8, 0)
    last = ids.clone()
    last[3] = (last[3] + 1 + rank) % 8
    for given in ((x[rank:], ids[rank:], weights[rank:]), (x, last, weights)):
        refused(RuntimeError, "rank", lambda: layer(*given))
    assert layer(x, ids, weights).shape == x.shape


def other_meshes(rank, size):
    x, ids, weights, _ = batch(0, 8, 0)
    layer = make(ep_group=dist.group.WORLD, tp=2, tokens="own" if rank else "same", activation="geglu")
    refused(RuntimeError, "moe_layer_tp2_own", lambda: layer(x, ids, weights))
    layer = make(ep_group=dist.new_group(), tp=2 if rank else 1)
    refused(
        RuntimeError,
        f"the first is rank 0 of {size} x 1 ranks (ep x tp) with own tokens, number 1 is rank 1 of {size // 2} x 2 ranks",
        lambda: layer(x, ids, weights),
    )
    turned = pair(rank, size, 2)
    turned = {"ep_group": turned["tp_group"], "tp_group": turned["ep_group"]} if rank == 0 and size == 2 else turned
    if size == 2:  # one rank has both groups in the other order
        refused(RuntimeError, "ranks of a layer have other meshes", lambda: make(**turned)(x, ids, weights))


class TensorParallelTest(unittest.TestCase):
    def test_two_ranks_do_what_one_process_does(self):
        core_jobs.run_ranks(self, "two_ranks", 2, limit=300)

    def test_four_ranks_do_what_one_process_does(self):
        core_jobs.run_ranks(self, "four_ranks", 4, limit=300)


def two_ranks(rank, size):
    for part in (steps, inference, pairs, adapters, frozen_adapters, clipping, wrapped, styles, parallelized, replaced, errors):
        print(f"{part.__name__}:", flush=True)
        part(rank, size)


def four_ranks(rank, size):
    for part in (steps, inference, pairs, adapters, clipping, wrapped, styles, replaced, errors):
        print(f"{part.__name__}:", flush=True)
        part(rank, size)


if __name__ == "__main__" and not core_jobs.main(globals()):
    unittest.main()
