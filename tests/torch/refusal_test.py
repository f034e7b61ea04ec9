"""A step that one rank refuses fails at all ranks with its message, and the next step is right."""

import contextlib
import dataclasses
import unittest

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from grouped import grouped
from moe_eager import route
from sluice_torch import Parallel, Steps, cache, exchange
from sluice_torch.layers import moe

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, TOKENS, MOST = 64, 48, 8, 2, 20, 64


def make(**options):
    torch.manual_seed(3 + dist.get_rank())
    options = {"max_tokens": MOST, "timeout": 20, "threads": 1, **options}
    return sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, **grouped(ep_group=dist.group.WORLD, **options))


class Batch:
    """A rank's tensors of a step."""

    def __init__(self, rank, seed, tokens=TOKENS):
        made = torch.Generator().manual_seed(100 * seed + rank)
        self.x = torch.randn(tokens, HIDDEN, generator=made).bfloat16().requires_grad_()
        self.dy = torch.randn(tokens, HIDDEN, generator=made).bfloat16()
        self.ids, weights = route(tokens, EXPERTS, TOP_K, 100 * seed + rank)
        self.weights = weights.requires_grad_()

    def run(self, layer):
        return layer(self.x, self.ids, self.weights)

    def submit(self, layer):
        with torch.no_grad():
            return layer.submit_forward(self.x, self.ids, self.weights).wait()

    def step(self, layer):
        """y and all gradients."""
        y = self.run(layer)
        leaves = [self.x, self.weights, layer.gate_up_weight, layer.down_weight]
        return [y.detach(), *torch.autograd.grad(y, leaves, self.dy)]


def spoiled(name, change):
    """A kind of refusal: one of a batch's tensors is replaced by another."""
    return lambda batch, layer: setattr(batch, name, change(getattr(batch, name)))


def id_at(token, k, value, dtype=torch.int64):
    def change(ids):
        ids = ids.to(dtype).clone()
        ids[token, k] = value
        return ids

    return change


def wider(x):
    return torch.cat([x, x], dim=-1)


# Refusals of any forward step.
FORWARD = {
    "x is None": spoiled("x", lambda x: None),
    "x is a list": spoiled("x", lambda x: x.tolist()),
    "x is of integers": spoiled("x", lambda x: x.detach().long()),
    "x is float16": spoiled("x", lambda x: x.detach().half()),
    "x is complex": spoiled("x", lambda x: x.detach().float().to(torch.complex64)),
    "x is too wide": spoiled("x", wider),
    "x is a number": spoiled("x", lambda x: torch.tensor(1.0)),
    "x is nowhere": spoiled("x", lambda x: x.detach().to("meta")),
    "x is sparse": spoiled("x", lambda x: x.detach().float().to_sparse()),
    "x has fewer tokens": spoiled("x", lambda x: x[:3]),
    "ids are None": spoiled("ids", lambda ids: None),
    "ids are numbers with a point": spoiled("ids", lambda ids: ids.double()),
    "ids are of 16 bits": spoiled("ids", lambda ids: ids.short()),
    "ids are too many": spoiled("ids", lambda ids: torch.cat([ids, ids], dim=1)),
    "an id of no expert": spoiled("ids", id_at(4, 1, EXPERTS)),
    "an id of no expert in 32 bits": spoiled("ids", id_at(4, 1, EXPERTS, torch.int32)),
    "an id far away": spoiled("ids", id_at(0, 0, 2**40)),
    "a negative id": spoiled("ids", id_at(7, 0, -2)),
    "a negative id in 32 bits": spoiled("ids", id_at(7, 0, -2, torch.int32)),
    "an id twice": spoiled("ids", lambda ids: ids[:, :1].expand(-1, TOP_K).contiguous()),
    "weights are None": spoiled("weights", lambda weights: None),
    "weights are of integers": spoiled("weights", lambda weights: weights.detach().long()),
    "weights are of other tokens": spoiled("weights", lambda weights: weights[:-1]),
    "too many tokens": lambda batch, layer: batch.__init__(dist.get_rank(), 9, MOST + 1),
    "too few tokens in ids": spoiled("ids", lambda ids: ids[:-1]),
}


@contextlib.contextmanager
def changed(holder, name, value):
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)


def fails(*_, **__):
    raise RuntimeError("no compiler today")


def with_main_grad(value):
    @contextlib.contextmanager
    def refused(layer):
        layer.down_weight.main_grad = value
        try:
            yield
        finally:
            del layer.down_weight.main_grad

    return refused


def parameter(*shape, dtype=torch.bfloat16):
    return torch.nn.Parameter(torch.zeros(*shape, dtype=dtype))


# Refusals of a forward step that depend on the state of the layer.
SURROUNDINGS = {
    "main_grad is no tensor": with_main_grad("no tensor"),
    "main_grad is bfloat16": with_main_grad(torch.zeros(4, HIDDEN, INTERMEDIATE).bfloat16()),
    "main_grad is of another shape": with_main_grad(torch.zeros(4)),
    "weights of another shape": lambda layer: changed(layer, "down_weight", parameter(4, HIDDEN, 1)),
    "weights of another type": lambda layer: changed(
        layer, "gate_up_weight", parameter(4, 2 * INTERMEDIATE, HIDDEN, dtype=torch.float64)
    ),
    "no compiler": lambda layer: _without_programs(layer),
    "more threads": lambda layer: changed(layer, "steps", dataclasses.replace(layer.steps, threads=7)),
}


@contextlib.contextmanager
def _without_programs(layer):
    with changed(layer, "_layers", {}), changed(cache, "compile_graph", fails):
        yield


def refusal_of(call):
    """The message of the error of a call."""
    try:
        call()
    except (RuntimeError, ValueError, TypeError) as error:
        return str(error)
    raise AssertionError("nothing was refused")


def check_refused(rank, refusing, kind, call, good):
    """One step, which the rank `refusing` refuses by `call` and the others request by `good`."""
    said = [None] * dist.get_world_size()
    dist.all_gather_object(said, refusal_of(call if rank == refusing else good))
    own = said[refusing].removeprefix("sluice: ").removeprefix(f"rank {refusing}: ")
    for other, heard in enumerate(said):
        if other != refusing:
            assert heard.startswith(f"sluice: rank {refusing}: {own[:200]}"), (kind, said)


def check_step(rank, kind, layer, expected):
    found = Batch(rank, 1).step(layer)
    for name, a, b in zip(("y", "x", "expert_weights", "gate_up_weight", "down_weight"), found, expected):
        assert torch.equal(a, b), (kind, name)


def forwards(rank, refusing, ways=(Batch.run, Batch.submit)):
    layer = make()
    # the first step of all is refused, too
    check_refused(rank, refusing, "first", lambda: layer(None, None, None), lambda: Batch(rank, 2).run(layer))
    expected = Batch(rank, 1).step(layer)
    for way in ways:
        for kind, spoil in FORWARD.items():
            batch = Batch(rank, 2)

            def call():
                spoil(batch, layer)
                return way(batch, layer)

            check_refused(rank, refusing, kind, call, lambda: way(batch, layer))
            check_step(rank, kind, layer, expected)
    for kind, around in SURROUNDINGS.items():
        batch = Batch(rank, 2)

        def call():
            with around(layer):
                batch.run(layer)

        check_refused(rank, refusing, kind, call, lambda: batch.run(layer))
        check_step(rank, kind, layer, expected)

    def accumulating(grad):
        with with_main_grad(grad)(layer):
            batch.run(layer)

    grad = torch.zeros(4, INTERMEDIATE, HIDDEN)
    strided, good = (lambda: accumulating(grad.transpose(1, 2))), (lambda: accumulating(grad.view(4, HIDDEN, -1)))
    check_refused(rank, refusing, "main_grad is strided", strided, good)
    check_step(rank, "main_grad is strided", layer, expected)

    def own_reason():
        with layer.refusing():
            raise ValueError("the file has ended")

    check_refused(rank, refusing, "a caller's own reason", own_reason, lambda: batch.run(layer))
    check_step(rank, "a caller's own reason", layer, expected)


def backwards(rank, refusing):
    layer = make()
    expected = Batch(rank, 1).step(layer)

    def create_graph(batch, y):
        torch.autograd.grad(y, [batch.x], batch.dy, create_graph=True)

    def changed_weights(batch, y):
        with torch.no_grad():
            layer.down_weight.mul_(1)
        torch.autograd.grad(y, [batch.x], batch.dy)

    def changed_scales(batch, y):
        with torch.no_grad():
            batch.weights.mul_(1)
        torch.autograd.grad(y, [batch.x], batch.dy)

    def twice(batch, y):
        torch.autograd.grad(y, [batch.x], batch.dy)

    def own_reason(batch, y):
        layer.refuse("the gradient is not finite")
        raise ValueError("the gradient is not finite")

    kept = () if layer.shape.is_per_rank else (changed_scales,)  # that sends the scales, so nothing refers to the caller's
    for kind in (create_graph, changed_weights, *kept, own_reason):
        batch = Batch(rank, 2)
        y = batch.run(layer)
        good = lambda: torch.autograd.grad(y, [batch.x], batch.dy)
        check_refused(rank, refusing, kind.__name__, lambda: kind(batch, y), good)
        check_step(rank, kind.__name__, layer, expected)
    batch = Batch(rank, 2)
    y = batch.run(layer)
    torch.autograd.grad(y, [batch.x], batch.dy, retain_graph=rank != refusing)
    check_refused(rank, refusing, "twice", lambda: twice(batch, y), lambda: twice(batch, y))
    del y  # as long as its graph exists, its set is in use
    check_step(rank, "twice", layer, expected)


def different_gradients(rank, refusing):
    """Ranks that request different gradients run different programs: that is detected, and nothing is mixed."""
    layer = make()
    expected = Batch(rank, 1).step(layer)
    for known in (False, True):  # whether the layer of the other program already exists
        if known:
            with torch.no_grad():
                Batch(rank, 3).run(layer)
        batch = Batch(rank, 2)

        def call():
            with torch.no_grad():
                batch.run(layer)

        said = refusal_of(call if rank == refusing else lambda: batch.run(layer))
        assert "but rank 0" in said, said
        check_step(rank, known, layer, expected)


# Refusals of exchange.dispatch().
DISPATCH = {
    "x is None": lambda b: setattr(b, "x", None),
    "x has three dimensions": lambda b: setattr(b, "x", b.x[None]),
    "ids are None": lambda b: setattr(b, "ids", None),
    "ids are flat": lambda b: setattr(b, "ids", b.ids.flatten()),
    "ids have a point": lambda b: setattr(b, "ids", b.ids.double()),
    "an id of no expert": lambda b: setattr(b, "ids", id_at(4, 1, EXPERTS)(b.ids)),
    "an id twice": lambda b: setattr(b, "ids", b.ids[:, :1].expand(-1, TOP_K).contiguous()),
    "probs are None": lambda b: setattr(b, "weights", None),
    "probs are of other tokens": lambda b: setattr(b, "weights", b.weights[:3]),
    "probs are float64": lambda b: setattr(b, "weights", b.weights.double()),
    "too many tokens": lambda b: b.__init__(dist.get_rank(), 9, MOST + 1),
    "too few tokens in ids": lambda b: setattr(b, "ids", b.ids[:-1]),
}


def exchanges(rank, refusing):
    group = dist.group.WORLD

    def dispatch(batch):
        return exchange.dispatch(batch.x, batch.ids, batch.weights, EXPERTS, group, timeout=20, max_tokens=MOST)

    def step():
        batch = Batch(rank, 1)
        rows, _, probs, _, handle = dispatch(batch)
        y = exchange.combine((rows.float() * probs[:, None]).bfloat16(), group, handle)
        return [y.detach(), *torch.autograd.grad(y, [batch.x, batch.weights], batch.dy)]

    def check(kind):
        for a, b in zip(step(), expected):
            assert torch.equal(a, b), kind

    check_refused(rank, refusing, "first", lambda: exchange.dispatch(None, None, None, 8, group), step)
    expected = step()
    for kind, spoil in DISPATCH.items():
        batch = Batch(rank, 2)
        check_refused(rank, refusing, kind, lambda: (spoil(batch), dispatch(batch)), lambda: dispatch(batch))
        check(kind)
    for kind, spoil in {
        "rows are None": lambda rows, handle: (None, handle),
        "rows are too few": lambda rows, handle: (rows[:-1], handle),
        "rows are too wide": lambda rows, handle: (wider(rows), handle),
        "rows are float64": lambda rows, handle: (rows.double(), handle),
        "the handle is a tensor": lambda rows, handle: (rows, rows),
        "the handle is None": lambda rows, handle: (rows, None),
    }.items():
        rows, _, _, _, handle = dispatch(Batch(rank, 2))

        def call():
            spoiled_rows, other = spoil(rows, handle)
            exchange.combine(spoiled_rows, group, other)

        check_refused(rank, refusing, kind, call, lambda: exchange.combine(rows, group, handle))
        check(kind)
    batch = Batch(rank, 2)
    rows = dispatch(batch)[0]

    def grad(**options):
        torch.autograd.grad(rows, [batch.x], rows.detach(), retain_graph=True, **options)

    check_refused(rank, refusing, "twice derived", lambda: grad(create_graph=True), grad)
    check("twice derived")


def fine_tunings(rank, refusing):
    options = {"parallel": Parallel(dist.group.WORLD, timeout=20), "steps": Steps(max_tokens=MOST)}
    tuning = sluice_torch.FineTuning(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, sluice_torch.LoRAConfig(4), **options)
    made = torch.Generator().manual_seed(rank)

    def weights():
        half = [0.1 * torch.randn(4, INTERMEDIATE, HIDDEN, generator=made).bfloat16() for _ in range(2)]
        return *half, 0.1 * torch.randn(4, HIDDEN, INTERMEDIATE, generator=made).bfloat16()

    def forward(batch, **options):
        return tuning.forward(batch.x, batch.ids, batch.weights, **options)

    def step():
        batch = Batch(rank, 1)
        return [forward(batch), *tuning.backward(batch.dy).values()]

    def check(kind):
        for a, b in zip(step(), expected):
            assert torch.equal(a, b), kind

    if rank != refusing:
        tuning.load_weights(*weights())
    unloaded = lambda: forward(Batch(rank, 2), save=False)
    check_refused(rank, refusing, "not loaded", unloaded, unloaded)
    if rank == refusing:
        tuning.load_weights(*weights())
    expected = step()
    for kind in ("x is None", "x is of integers", "x is too wide", "an id of no expert", "weights are None", "too many tokens"):
        batch = Batch(rank, 2)
        check_refused(
            rank, refusing, kind, lambda: (FORWARD[kind](batch, None), forward(batch)), lambda: forward(batch)
        )
        check(kind)
    for kind, dy in {"dy is None": None, "dy has other tokens": torch.zeros(3, HIDDEN)}.items():
        batch = Batch(rank, 1)
        y = forward(batch)
        check_refused(rank, refusing, kind, lambda: tuning.backward(dy), lambda: tuning.backward(batch.dy))
        for a, b in zip([y, *tuning.backward(batch.dy).values()], expected):  # it can come again
            assert torch.equal(a, b), kind
        check(kind)


def two_layers(rank, refusing):
    """Programs that do not exist yet at the refusing rank are made by all ranks or by none."""
    first = make()
    expected = Batch(rank, 1).step(first)
    for seed in range(3):
        second = make(activation=("reglu", "geglu", "swiglu")[seed], keep="minimal")
        batch = Batch(rank, 2)
        kept = [batch.run(first) for _ in range(seed + 1)]  # sets are in use
        for _ in range(2):
            check_refused(rank, refusing, seed, lambda: second(None, batch.ids, None), lambda: batch.run(second))
            check_step(rank, seed, first, expected)
        with torch.no_grad():
            batch.run(second)
        check_step(rank, seed, first, expected)
        batch.step(second)
        del kept


def all_kinds(refusing):
    def run(rank, size):
        for part in (forwards, backwards, different_gradients, exchanges, fine_tunings, two_layers):
            print(f"{part.__name__}:", flush=True)
            part(rank, refusing)
            dist.barrier()

    return run


refused_by_0, refused_by_1 = all_kinds(0), all_kinds(1)


class RefusalTest(unittest.TestCase):
    def test_what_the_first_rank_refuses_all_ranks_do(self):
        core_jobs.run_ranks(self, "refused_by_0", 2, limit=300)

    def test_what_the_second_rank_refuses_all_ranks_do(self):
        core_jobs.run_ranks(self, "refused_by_1", 2, limit=300)

    def test_a_refusal_at_a_rank_that_is_alone_leaves_the_layer_usable(self):
        layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, steps=Steps(max_tokens=MOST))
        layer.refuse("nobody hears it")
        self.assertIsInstance(layer, moe.MoE)
        made = torch.Generator().manual_seed(1)
        x = torch.randn(TOKENS, HIDDEN, generator=made).bfloat16()
        ids, weights = route(TOKENS, EXPERTS, TOP_K, 1)
        y = layer(x, ids, weights)
        with self.assertRaisesRegex(ValueError, "x is of type NoneType"):
            layer(None, ids, weights)
        self.assertTrue(torch.equal(layer(x, ids, weights), y))


if __name__ == "__main__" and not core_jobs.main(globals()):
    unittest.main()
