"""sluice_torch.MoE with places for its experts: values, gradients, moves and states, against layers without copies."""

import itertools
import unittest

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from grouped import grouped
from models import layouts
from moe_eager import BOUND, eager, error, route
from sluice_torch import ExpertTensorParallel, Parallel, Steps

HIDDEN, INTERMEDIATE, TOP_K, EXPERTS = 32, 48, 3, 7


def exact(*shape, seed, values=(-1, 0, 1)):
    """Numbers whose products and sums bfloat16 and float32 hold exactly."""
    made = torch.Generator().manual_seed(seed)
    return torch.tensor(values)[torch.randint(len(values), shape, generator=made)].float()


def whole_weights(is_exact):
    shapes = {"gate_up_weight": (EXPERTS, 2 * INTERMEDIATE, HIDDEN), "down_weight": (EXPERTS, HIDDEN, INTERMEDIATE)}
    made = torch.Generator().manual_seed(7)
    weights = {}
    for seed, (name, shape) in enumerate(shapes.items()):
        random = (0.1 * torch.randn(shape, generator=made)).bfloat16().float()
        weights[name] = exact(*shape, seed=seed, values=(0, 0, 0, 0, 0, 0, 0, 1, -1)) if is_exact else random
    return weights


def own_part(layer, name, whole):
    """A rank's part of a parameter, or of its gradient, of all experts."""
    return layer_take(name, whole[layer.local_experts], layer)


def layer_take(name, placed, layer):
    return sluice_torch.state.sharding.take(name, placed, layer.shard, layer.shape.tp)


def make(spare, is_exact=False, **options):
    options = {"threads": 1, "timeout": 20, "activation": "reglu" if is_exact else "swiglu", **options}
    layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, **grouped(spare=spare, **options))
    with torch.no_grad():
        for name, whole in whole_weights(is_exact).items():
            getattr(layer, name).copy_(own_part(layer, name, whole))
    return layer


def batch(number, seed, is_exact=False, hot=None):
    """Returns the batch of source `number`; with `hot` every token has that expert."""
    tokens = (37, 20, 0, 9)[(number + seed) % 4]
    made = torch.Generator().manual_seed(100 * seed + number)
    ids, weights = route(tokens, EXPERTS, TOP_K, 100 * seed + number)
    if hot is not None:
        ids = (ids + (hot - ids[:, :1])) % EXPERTS
    draw = (lambda s: exact(tokens, HIDDEN, seed=s)) if is_exact else (lambda s: torch.randn(tokens, HIDDEN, generator=made))
    x, dy = draw(10 * seed + number), draw(1000 + 10 * seed + number)
    if is_exact:
        weights = exact(tokens, TOP_K, seed=seed + 50, values=(1, 2))
    return x.bfloat16().requires_grad_(), ids, weights.requires_grad_(), dy.bfloat16()


def source(layer, rank):
    return rank // layer.shape.tp if layer.shape.tokens == "same" else rank


def expected_step(layer, rank, size, seed, is_exact, hot=None):
    """y and the gradients of x, expert_weights and all experts, of plain PyTorch over the tokens of all ranks."""
    whole = {name: weight.requires_grad_() for name, weight in whole_weights(is_exact).items()}
    batches = [batch(number, seed, is_exact, hot) for number in range(source(layer, size - 1) + 1)]
    ys = [eager(b[0].float(), b[1], b[2], *whole.values(), layer.shape.activation) for b in batches]
    own = source(layer, rank)
    total = sum((y * b[3].float()).sum() for y, b in zip(ys, batches))
    leaves = [batches[own][0], batches[own][2], *whole.values()]
    return ys[own], torch.autograd.grad(total, leaves, allow_unused=True)


def check_step(layer, rank, size, seed, is_exact=False, hot=None):
    x, ids, weights, dy = batch(source(layer, rank), seed, is_exact, hot)
    y = layer(x, ids, weights)
    named = {"x": x, "expert_weights": weights, **dict(layer.named_parameters())}
    found = torch.autograd.grad(y, list(named.values()), dy)
    expected_y, expected = expected_step(layer, rank, size, seed, is_exact, hot)
    for name, a, b in zip(["y", *named], [y, *found], [expected_y, *expected]):
        b = torch.zeros_like(a) if b is None else b
        b = own_part(layer, name, b) if name in whole_weights(False) else b
        assert a.shape == b.shape, (name, a.shape, b.shape)
        if is_exact:
            assert torch.equal(a.float(), b.float()), (name, layer, (a.float() - b.float()).abs().max())
        else:
            assert error(a, b) < BOUND, (name, layer, error(a, b))


def meshes(size):
    group = {"ep_group": dist.group.WORLD} if size > 1 else {}
    for tp in (1, 2, 4)[: size.bit_length()]:
        for tokens in ("own", "same")[: 1 + (tp > 1)]:
            yield {**group, "tp": tp, "tokens": tokens}


def shuffled(spare, seed, experts=EXPERTS):
    made = torch.Generator().manual_seed(seed)
    copies = torch.randint(experts, (spare,), generator=made)
    places = torch.cat([torch.arange(experts), copies])
    return places[torch.randperm(len(places), generator=made)].tolist()


def values(rank, size):
    for mesh, spare in itertools.product(meshes(size), (0, 1, 5)):
        for dtype, is_exact in ((torch.float32, True), (torch.bfloat16, False)):
            layer = make(spare, is_exact, dtype=dtype, **mesh)
            check_step(layer, rank, size, 1, is_exact)
            layer.place(shuffled(spare, spare + 3))
            for name, whole in whole_weights(is_exact).items():  # what was copied is what moved
                assert torch.equal(getattr(layer, name).float(), own_part(layer, name, whole)), name
            for seed in (1, 2):
                check_step(layer, rank, size, seed, is_exact)


def main_grads(rank, size):
    """Gradients are added to main_grad, of two backwards, one of which is through a graph that is used twice."""
    for mesh in meshes(size):
        layer = make(4, True, **mesh)
        layer.place(shuffled(4, 9))
        for parameter in layer.parameters():
            parameter.main_grad = torch.full(parameter.shape, 3.0)
        x, ids, weights, dy = batch(source(layer, rank), 1, True)
        y = layer(x, ids, weights)
        y.backward(dy, retain_graph=True)
        y.backward(dy)
        expected = expected_step(layer, rank, size, 1, True)[1][2:]
        for (name, parameter), each in zip(layer.named_parameters(), expected):
            assert parameter.grad is None
            assert torch.equal(parameter.main_grad, 3 + 2 * own_part(layer, name, each)), name


def adapters(rank, size):
    """Adapters of copies have one gradient: that of the layer without copies."""
    config = sluice_torch.LoRAConfig(rank=4, alpha=8)
    for mesh in meshes(size):
        made = {}
        for spare in (None, 3):
            layer = make(spare, lora=config, **mesh)
            for name, parameter in layer.named_parameters():
                if "lora" in name:
                    shape = (EXPERTS, *sluice_torch.state.sharding.join(name, [parameter] * layer.shape.tp).shape[1:])
                    drawn = 0.1 * torch.randn(shape, generator=torch.Generator().manual_seed(len(name)))
                    parameter.data.copy_(own_part(layer, name, drawn))
            x, ids, weights, dy = batch(source(layer, rank), 1)
            layer(x, ids, weights).backward(dy)
            state = {name: parameter.grad for name, parameter in layer.named_parameters() if parameter.requires_grad}
            everywhere = layer._group.gather_objects((state, layer.local_experts, layer.shard), "compare")
            made[spare] = {
                (name, expert, shard): grad[row].float()
                for grads, experts, shard in everywhere
                for name, grad in grads.items()
                for row, expert in enumerate(experts)
            }
        assert made[None].keys() == made[3].keys() and len(made[3]) > 0
        for key, grad in made[3].items():
            assert error(grad, made[None][key]) < BOUND, (key, error(grad, made[None][key]))


def training(rank, size):
    """Steps of an optimizer that keeps moments, with moves in between: copies stay equal, and all experts are those of a
    layer without copies, bit by bit where sums are exact."""
    group = {"ep_group": dist.group.WORLD} if size > 1 else {}
    layers = [make(spare, True, dtype=torch.float32, **group) for spare in (None, 4)]
    optimizers = [torch.optim.Adam(layer.parameters(), lr=1.0) for layer in layers]
    for step in range(3):
        for layer, optimizer in zip(layers, optimizers):
            optimizer.zero_grad()
            # the gradients are exact in each step, because the layer computes with the first weights
            kept = {name: parameter.detach().clone() for name, parameter in layer.named_parameters()}
            start = make(layer.shape.spare, True, dtype=torch.float32, **group)
            if layer.places is not None:
                start.place(layer.places.expert_at)
            with torch.no_grad():
                for name, parameter in layer.named_parameters():
                    parameter.copy_(getattr(start, name))
            x, ids, weights, dy = batch(rank, step, True, hot=step)
            layer(x, ids, weights).backward(dy)
            with torch.no_grad():
                for name, parameter in layer.named_parameters():
                    parameter.copy_(kept[name])
            optimizer.step()
        found = sluice_torch.balance(layers[1], optimizers[1])
        assert step == 2 and size == 1 or found[""].after <= found[""].before, found  # step 2 of rank 0 has no tokens
        layers[1].place(shuffled(4, step), optimizers[1])
        full = [sluice_torch.state.full(layer) for layer in layers]
        assert full[0].keys() == full[1].keys()
        for name in full[0]:
            assert torch.equal(full[0][name], full[1][name]), (step, name)
        for name, parameter in layers[1].named_parameters():
            state = layers[1]._group.gather_objects((optimizers[1].state[parameter]["exp_avg"], parameter.detach()), "compare")
            experts = [expert for each in layers[1]._group.gather_objects(layers[1].local_experts, "compare") for expert in each]
            for which in (0, 1):
                first, placed = {}, torch.cat([each[which] for each in state])
                for place, expert in enumerate(experts):
                    assert torch.equal(placed[place], first.setdefault(expert, placed[place])), (name, expert)


def balancing(rank, size):
    """A hot expert bounds the step by its rank; with copies by little more than the mean."""
    layer = make(4, ep_group=dist.group.WORLD)
    for seed in range(3):
        layer(*batch(rank, seed, hot=5)[:3])
    rows = sum(torch.bincount(b[1].flatten(), minlength=EXPERTS) for b in (batch(r, s, hot=5) for r in range(size) for s in range(3)))
    layer.place([0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3])
    versions = {name: parameter.data_ptr() for name, parameter in layer.named_parameters()}
    skew = sluice_torch.balance(layer)[""]
    by_group = layer.places.rows_by_group(rows)
    assert abs(skew.after - (by_group.max() / by_group.mean()).item()) < 1e-9
    assert skew.after < 1.3 < skew.before, skew
    assert len(layer.places.of[5]) > 1
    assert versions == {name: parameter.data_ptr() for name, parameter in layer.named_parameters()}
    check_step(layer, rank, size, 1, hot=5)
    assert sluice_torch.balance(layer) != {}  # the rows of that step
    assert sluice_torch.balance(layer) == {}  # none since


def refusals(rank, size):
    def refused(call, *parts):
        try:
            call()
        except (ValueError, RuntimeError) as error:
            for part in parts:
                assert part in str(error), (part, str(error))
            return
        raise AssertionError(f"nothing was refused, expected {parts}")

    layer = make(2, ep_group=dist.group.WORLD)
    before = {name: parameter.detach().clone() for name, parameter in layer.named_parameters()}
    good = layer.places.expert_at
    refused(lambda: layer.place(good[:-1]), "placement has 8 places, expected 9 for 7 experts")
    refused(lambda: layer.place([7, *good[1:]] if rank == 1 else good), "place 0 has expert 7, expected 0 to 6")
    refused(lambda: layer.place([3] * 9), "expert 0 has no place, expected at least one of 9")
    other = [*good[:4], *good[:3:-1]]
    refused(
        lambda: layer.place(other if rank == 1 else good),
        f"rank 1 gives another placement than rank 0: place 4 has expert {other[4]}, but {good[4]} at rank 0",
    )
    if rank == 1:
        layer.down_weight.grad = torch.zeros_like(layer.down_weight)
    refused(lambda: layer.place(good[::-1]), "ranks 0 and 1 have other tensors to move", "down_weight.grad")
    layer.down_weight.grad = None
    refused(lambda: make(None, ep_group=dist.group.WORLD).place(good), "cannot move", "spare=0")
    refused(lambda: sluice_torch.balance(torch.nn.Linear(2, 2)), "Linear has no sluice_torch.MoE with places")
    refused(lambda: layer.order_pairs(batch(rank, 1)[1]), "this layer has places")
    assert layer.places.expert_at == good
    for name, parameter in layer.named_parameters():
        assert torch.equal(parameter, before[name]), name
    # a rank with another placement in a step: as a bug of the caller would cause it
    if rank == 1:
        layer.set_places(type(layer.places)(layer.shape, good[::-1]))
    refused(lambda: layer(*batch(rank, 1)[:3]), "rank 1", "another placement of experts than rank 0")
    layer.set_places(type(layer.places)(layer.shape, good))
    check_step(layer, rank, size, 1)


def states(rank, size):
    for mesh in meshes(size):
        layer = make(4, **mesh)
        layer.place([3, 3, 0, 1, 2, 4, 5, 6, 3, 3, 3])
        own = layer.state_dict()
        whole = sluice_torch.state.full(layer)
        for name, expected in whole_weights(False).items():
            assert torch.equal(whole[name].float(), expected), name
        assert set(whole) == set(whole_weights(False))
        parts = layer._group.gather_objects(own, "compare")
        joined = sluice_torch.state.reshard(parts, 1)[0]
        assert joined.keys() == whole.keys() and all(torch.equal(joined[name], whole[name]) for name in whole)
        again = make(4, **mesh)
        again.load_state_dict(own)
        assert again.places.expert_at == layer.places.expert_at
        check_step(again, rank, size, 2)
        other = make(2, **mesh)
        other.load_state_dict(sluice_torch.state.reshard(parts, size, rank, tp=mesh["tp"], spare=2))
        check_step(other, rank, size, 2)
        if size > 1:
            parts[0]["down_weight"] = torch.cat([parts[0]["down_weight"][:1] + 1, parts[0]["down_weight"][1:]])
            try:
                sluice_torch.state.reshard(parts, 1)
            except ValueError as failure:
                assert "down_weight: expert 3 at place 1 differs from that at place 0" in str(failure), failure
            else:
                raise AssertionError("copies that differ were accepted")


def replaced(rank, size):
    """replace_moe(spare=), styles, and a norm of gradients that counts each expert once."""
    for layout in layouts.LAYOUTS:
        torch.manual_seed(3)
        model = torch.nn.ModuleList([layouts.LAYOUTS[layout](experts=8)])
        original = {name: each.clone() for name, each in model.state_dict().items()}
        x = torch.randn(5, 1 + rank, 64, generator=torch.Generator().manual_seed(rank))

        def run(model=model, x=x):
            y = model[0](x)
            return y[0] if isinstance(y, tuple) else y

        expected = run().detach()
        sluice_torch.replace_moe(model, parallel=Parallel(dist.group.WORLD, spare=3, timeout=20), steps=Steps(threads=1))
        layer = next(each for each in model.modules() if isinstance(each, sluice_torch.MoE))
        for seed in (1, 2):
            assert error(run(), expected) < BOUND, layout
            layer.place(shuffled(3, seed, 8))
            for name, each in sluice_torch.state.to_original(model).items():
                assert torch.equal(each, original[name]), (layout, name)
        model.load_state_dict(sluice_torch.state.from_original(model, original))
        y = run()
        assert error(y, expected) < BOUND, layout
        y.sum().backward()
        check_norm(layer)


def check_norm(layer):
    experts = [each for each in layer.parameters()]
    grads = layer._group.gather_objects([(each.grad, layer.local_experts) for each in experts], "compare")
    once = {(number, expert): grad[row] for rank_ in grads for number, (grad, own) in enumerate(rank_) for row, expert in enumerate(own)}
    norm = torch.stack([each.float().norm() for each in once.values()]).norm()
    assert error(sluice_torch.clip_grad_norm_(experts, 1e9), norm) < 1e-5


def sharded(rank, size):
    """A whole layer with places becomes a part."""
    layer = make(5)
    layer.place(shuffled(5, 2))
    tp = size // 2
    shards = [dist.new_group(list(range(shard, size, tp))) for shard in range(tp)]
    groups = [dist.new_group(list(range(first, first + tp))) for first in range(0, size, tp)]
    ExpertTensorParallel(tokens="own").apply(layer, (shards[rank % tp], groups[rank // tp]))
    check_step(layer, rank, size, 1)
    layer.place(shuffled(5, 4))
    check_step(layer, rank, size, 1)


class PlacementTest(unittest.TestCase):
    def run_all(self, name, *sizes):
        for size in sizes:
            with self.subTest(ranks=size):
                core_jobs.run_ranks(self, name, size)

    def test_any_placement_gives_the_layer_without_copies(self):
        self.run_all("values", 1, 2, 4)

    def test_gradients_of_copies_are_added_to_main_grad(self):
        self.run_all("main_grads", 1, 2, 4)

    def test_gradients_of_adapters_are_summed(self):
        self.run_all("adapters", 2, 4)

    def test_experts_move_with_what_the_optimizer_keeps(self):
        self.run_all("training", 1, 3)

    def test_balance_evens_out_the_rows(self):
        self.run_all("balancing", 3)

    def test_what_ranks_do_not_agree_on_is_refused_and_nothing_moves(self):
        self.run_all("refusals", 2)

    def test_states_have_each_expert_once(self):
        self.run_all("states", 1, 2, 4)

    def test_replaced_models_have_places(self):
        self.run_all("replaced", 2)

    def test_a_whole_layer_is_split_with_its_places(self):
        self.run_all("sharded", 2, 4)

    def test_spare_is_a_number(self):
        for spare in (-1, 1.5, True, "8"):
            with self.assertRaisesRegex(ValueError, "spare is"):
                make(spare)


FUNCTIONS = (values, main_grads, adapters, training, balancing, refusals, states, replaced, sharded)

if __name__ == "__main__":
    if not core_jobs.main({each.__name__: each for each in FUNCTIONS}):
        unittest.main()
