"""Layers that send a token once to each rank (Parallel(rows_per="rank")), against plain PyTorch in float64 and against layers that send
it once for each expert."""

import collections
import functools
import itertools
import json
import os
import signal
import tempfile
import unittest

import core_jobs
import moe_ranks_test as moe
import refusal_test as refusal
import sluice_torch
import torch
import torch.distributed as dist
import torch.utils.checkpoint
from grouped import grouped
from moe_eager import BOUND, error, route
from sluice_torch.graphs import LayerShape
from sluice_torch.layers import rank_rows
from sluice_torch.layers.moe import MoE
from sluice_torch.recipe import DelayedScaling

HIDDEN, INTERMEDIATE, TOP_K = 64, 64, 5
COUNTS = ([37, 20, 9], [0, 64, 1], [50, 3, 0], [0, 0, 0])


def make(experts=8, form="rank", top_k=TOP_K, **options):
    """A layer whose experts are the same in both forms."""
    options = {"ep_group": dist.group.WORLD, "timeout": 20, "threads": 1, "rows_per": form, **options}
    torch.manual_seed(5 + dist.get_rank())
    return sluice_torch.MoE(HIDDEN, INTERMEDIATE, experts, top_k, **grouped(**options))


class Batch:
    def __init__(self, rank, tokens, experts, seed, dtype=torch.bfloat16, top_k=TOP_K):
        made = torch.Generator().manual_seed(100 * seed + rank)
        self.x = torch.randn(tokens, HIDDEN, generator=made).to(dtype).requires_grad_()
        self.dy = torch.randn(tokens, HIDDEN, generator=made).to(dtype)
        self.ids, weights = route(tokens, experts, top_k, 100 * seed + rank)
        self.ids[::3, 1] = -1
        self.ids[::7] = -1
        self.weights = weights.requires_grad_()

    def run(self, layer, trained):
        """y, and the gradients of x, expert_weights and the trained parameters."""
        y = layer(self.x, self.ids, self.weights)
        return [y.detach(), *torch.autograd.grad(y, [self.x, self.weights, *trained], self.dy)]


def plain(batches, gate_up, down):
    """The same of all ranks, in float64, where one process has all experts."""
    leaves = [[batch.x.detach().double().requires_grad_(), batch.weights.detach().double().requires_grad_()] for batch in batches]
    whole = [weight.double().requires_grad_() for weight in (gate_up, down)]
    ys = []
    for batch, (x, weights) in zip(batches, leaves):
        gate, up = torch.einsum("th,eih->tei", x, whole[0]).chunk(2, dim=-1)
        rows = torch.einsum("tei,ehi->teh", torch.nn.functional.silu(gate) * up, whole[1])
        chosen = rows.gather(1, batch.ids.clamp(min=0)[:, :, None].expand(-1, -1, HIDDEN)) if len(x) else rows[:, :TOP_K]
        ys.append((chosen * (weights * (batch.ids >= 0))[:, :, None]).sum(1))
    grads = torch.autograd.grad(ys, [each for leaf in leaves for each in leaf] + whole, [batch.dy.double() for batch in batches])
    return ys, grads


def check(layer, rank, counts, seed, dtype=torch.bfloat16):
    """A step of this rank; returns its results and their relative errors, by name."""
    batches = [Batch(source, tokens, layer.shape.experts, seed, dtype) for source, tokens in enumerate(counts)]
    found = batches[rank].run(layer, [layer.gate_up_weight, layer.down_weight])
    whole = [torch.cat(layer._group.gather_objects(each.detach(), "test")) for each in (layer.gate_up_weight, layer.down_weight)]
    ys, grads = plain(batches, *(each.bfloat16() for each in whole))
    own = slice(layer.first_expert, layer.first_expert + len(layer.gate_up_weight))
    expected = [ys[rank], *grads[2 * rank : 2 * rank + 2], grads[-2][own], grads[-1][own]]
    errors, results = {}, dict(zip(("y", "x", "expert_weights", "gate_up_weight", "down_weight"), found))
    for (name, a), b in zip(results.items(), expected):
        assert a.shape == b.shape, (name, a.shape, b.shape)
        assert a.dtype == (torch.float32 if name == "expert_weights" else dtype), (name, a.dtype)
        errors[name] = error(a, b)
        assert errors[name] < BOUND, (layer, seed, name, errors[name])
    assert not found[2][batches[rank].ids < 0].any()
    return results, errors


def steps(rank, size):
    """Ranks with many tokens, few or none; experts that they do not share evenly, fewer than top_k at a rank; float32."""
    for experts in (8, 7):
        layer = make(experts)
        for seed, counts in enumerate(COUNTS):
            check(layer, rank, counts[:size], seed)
    layer = make(dtype=torch.float32)
    check(layer, rank, COUNTS[0][:size], 1, torch.float32)


def errors_of_both(rank, size):
    """What is summed over ranks, y and the gradient of x, is nearly as exact as with rows per expert; all else has the same bits."""
    (found, errors), (usual, usual_errors) = (check(make(16, form), rank, [60, 50, 40][:size], 3) for form in ("rank", "expert"))
    for name in found:
        if name in ("y", "x"):
            assert not torch.equal(found[name], usual[name]), name
            assert errors[name] < 1.2 * usual_errors[name], (name, errors, usual_errors)
        else:
            assert torch.equal(found[name], usual[name]), name


def same_bits(rank, size):
    """A token whose experts are all at one rank has no sum over ranks: then the forms give the same bits, whatever the layer rounds and
    trains. So they do for gradients of weights, in steps with and without gradients, through a checkpoint, and where experts are frozen."""
    lora = sluice_torch.LoRAConfig(4, 8.0)
    for options in (
        {},
        {"keep": "minimal"},
        {"encode": "mxfp8"},
        {"encode": "int8,rows=int8"},
        {"encode": "int4:g32"},
        {"encode": DelayedScaling()},
        {"lora": lora},
        {"lora": lora, "encode": "int8", "pack_frozen": True},
        {"activation": "relu2"},
        {"bias": True},
    ):
        layers = [make(4 * size, form, 3, **options) for form in ("expert", "rank")]
        layers[1].load_state_dict(layers[0].state_dict())
        for seed in range(3):
            batch = Batch(rank, (20, 0, 31)[(rank + seed) % 3], 4, seed, top_k=3)
            batch.ids = torch.where(batch.ids < 0, batch.ids, batch.ids + 4 * (seed % size))
            found = [results(layer, batch) for layer in layers]
            assert len(found[0]) == len(found[1]) > 6
            for place, (a, b) in enumerate(zip(*found)):
                assert torch.equal(a, b), (options, seed, place, error(a, b))


def results(layer, batch):
    """What a step gives with gradients, without, and with a forward that is repeated in the backward."""
    trained = [each for each in layer.parameters() if each.requires_grad]
    found = batch.run(layer, trained)
    with torch.no_grad():
        found.append(layer(batch.x, batch.ids, batch.weights))
    y = torch.utils.checkpoint.checkpoint(layer, batch.x, batch.ids, batch.weights, use_reentrant=False)
    return [*found, y, *torch.autograd.grad(y, [batch.x, batch.weights, *trained], batch.dy)]


def main_grads(rank, size):
    """They get what a parameter's gradient would be, from each backward that needs it, and from no other."""
    layer = make(dtype=torch.float32)
    batch = Batch(rank, 30, 8, 1)
    expected = batch.run(layer, list(layer.parameters()))
    for parameter in layer.parameters():
        parameter.main_grad = torch.ones(parameter.shape)
    y = layer(batch.x, batch.ids, batch.weights)
    dx, dw = torch.autograd.grad(y, [batch.x, batch.weights], batch.dy, retain_graph=True)
    assert torch.equal(dx, expected[1]) and torch.equal(dw, expected[2])
    assert all((each.main_grad == 1).all() for each in layer.parameters())
    for times in (1, 2):
        y.backward(batch.dy, retain_graph=times == 1)
        for parameter, grad in zip(layer.parameters(), expected[3:]):
            assert parameter.grad is None and error(parameter.main_grad - 1, times * grad) < 1e-6


def memory(rank, size):
    """A step's memory is free again when its backward has ended, although its loss remains."""
    layer = make()
    kept = []
    for seed in range(4):
        batch = Batch(rank, 20, 8, seed)
        kept.append(layer(batch.x, batch.ids, batch.weights))
        kept[-1].backward(batch.dy)
        sets = sluice_torch.memory()
        assert (sets["saved_sets"], sets["saved_sets_in_use"]) == (2, 0), sets  # the exchange's and the experts'


def unneeded_gradients(rank, size):
    """Only the requested gradients are computed: without those of x and expert_weights a backward sends no rows of gradients back."""
    layer = make()
    batch = Batch(rank, 20, 8, 1)
    expected = batch.run(layer, [layer.down_weight])
    layer.gate_up_weight.requires_grad_(False)
    y = layer(batch.x.detach(), batch.ids, batch.weights.detach())
    entries = traced(layer, lambda: torch.autograd.grad(y, [layer.down_weight], batch.dy))
    assert {entry for entry, *_ in entries} == {"combine_backward", "backward"}, entries
    y = layer(batch.x, batch.ids, batch.weights.detach())
    (found,) = torch.autograd.grad(y, [batch.x], batch.dy)
    assert torch.equal(found, expected[1])


def traced(layer, call):
    """(entry, family, slot, rows, bytes) of each task of call()."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        with sluice_torch.trace(path):
            call()
        with open(path) as file:
            events = json.load(file)["traceEvents"]
    lanes = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    tasks = [event for event in events if event["ph"] == "X" and event["cat"] == "task"]
    families = [(lanes[each["pid"], each["tid"]].split()[-1].split("/")[0], each["name"], each["args"]) for each in tasks]
    return [(entry, name, args["slot"], args["rows"], args["bytes"]) for entry, name, args in families]


def bytes_sent(tasks, own, size):
    """The bytes that tasks sent to other ranks: a task reads and writes what it sends. Slots of a dispatch begin with this rank's `own`
    experts; those of a return end, for each expert, with this rank. Every rank must send rows to every expert."""
    sends = [each for each in tasks if each[1].startswith("dispatch") and each[1] != "dispatch.keep" and each[2] >= own]
    returns = [each for each in tasks if each[1].endswith(".return") and each[2] % size != size - 1]
    return sum(each[-1] for each in sends + returns) // 2


def expected_bytes(form, ids, rank, experts, hidden):
    """From the ids [T, K] of each rank: of rows, forward and backward, from and to this rank, and what goes beside them."""
    per_rank, size, top_k = experts // len(ids), len(ids), ids[0].shape[1]
    counts = torch.zeros(size, size, dtype=torch.long)  # rows from one to another
    for source, each in enumerate(ids):
        owners = torch.where(each < 0, size, torch.div(each, per_rank, rounding_mode="floor"))
        chosen = torch.nn.functional.one_hot(owners, size + 1).sum(1)[:, :size]
        counts[source] = (chosen if form == "expert" else chosen.clamp(max=1)).sum(0)
    counts.fill_diagonal_(0)
    there, back = counts[rank].sum().item(), counts[:, rank].sum().item()
    beside = (4, 4) if form == "expert" else (8 * top_k, 4 * top_k)  # weights and their gradients; with rows per rank, ids too
    return there * (2 * 2 * hidden + beside[0]) + back * (2 * 2 * hidden + beside[1])


def bytes_of_steps(rank, size):
    """What tasks send is what follows from the routing."""
    experts, sent = 4 * size, {}
    batches = [Batch(source, (60, 31, 50)[source], experts, 1) for source in range(size)]
    for form in ("expert", "rank"):
        layer = make(experts, form)
        run = functools.partial(batches[rank].run, layer, list(layer.parameters()))
        run()
        tasks = traced(layer, run)
        if form == "rank":
            tasks = [each for each in tasks if each[0] not in ("forward", "backward")]  # of this rank alone
        sent[form] = bytes_sent(tasks, 1 if form == "rank" else 4, size)
        assert sent[form] == expected_bytes(form, [each.ids for each in batches], rank, experts, HIDDEN), (form, sent)
    assert sent["rank"] < 0.7 * sent["expert"], sent


def stopped(rank, size):
    """A rank is stopped between the parts of a step."""
    layer = make(timeout=1.5)
    batch = Batch(rank, 20, 8, 1)
    batch.run(layer, [])
    if rank == 1:
        MoE._run = lambda *_: os.kill(os.getpid(), signal.SIGSTOP)
    try:
        batch.run(layer, [])
    except RuntimeError as error:
        print(error, flush=True)
        raise SystemExit(3)


def refused(rank, size):
    """Errors before a step, between its parts and in its backward reach all ranks, and the next step has the same bits."""
    refusal.make = functools.partial(refusal.make, rows_per="rank")
    for refusing in range(size):
        refusal.forwards(rank, refusing, ways=(refusal.Batch.run,))
        refusal.backwards(rank, refusing)
        refusal.different_gradients(rank, refusing)
        refusal.two_layers(rank, refusing)
        between_parts(rank, refusing)


def between_parts(rank, refusing):
    layer = refusal.make()
    expected = refusal.Batch(rank, 1).step(layer)
    batch = refusal.Batch(rank, 2)

    def without_memory(*_):
        raise RuntimeError("no memory for rows")

    def call():
        with refusal.changed(layer, "_run", without_memory):
            batch.run(layer)

    refusal.check_refused(rank, refusing, "between parts", call, lambda: batch.run(layer))
    refusal.check_step(rank, "between parts", layer, expected)


def differing(rank, size):
    """Ranks with different layers are told so, also where what they exchange is the same."""
    batch = refusal.Batch(rank, 1)
    for options, expected in (
        ({"activation": ("swiglu", "geglu")[rank]}, "rank 1 passed activation as geglu to MoE, but rank 0 passed swiglu"),
        ({"keep": ("all", "minimal")[rank]}, "rank 1 passed keep as minimal to MoE, but rank 0 passed all"),
        ({"rows_per": ("rank", "expert")[rank]}, "rank 1 passed rows_per as expert to MoE, but rank 0 passed rank"),
    ):
        layer = refusal.make(**{"rows_per": "rank", **options})
        said = refusal.refusal_of(lambda: batch.run(layer))
        assert expected in said, said


def chosen(rank, size):
    """"auto" sends rows per rank only between machines, and where that sends much less."""
    layer = make(8, "auto")
    check(layer, rank, COUNTS[0][:size], 1)
    assert layer.shape.rows_per == "expert", layer
    if not moe.has_ucx():
        return
    with moe.on_machine(rank % 2):
        group = dist.new_group()
        for form in ("auto", "rank"):
            layer = make(8, form, ep_group=group)
            for seed, counts in enumerate(COUNTS):
                check(layer, rank, counts[:size], seed)
            assert layer.shape.rows_per == "rank", layer
        layer = make(8, "auto", tokens="same", ep_group=group)  # which rows per rank do not allow
        layer(*(getattr(Batch(0, 9, 8, 1), name) for name in ("x", "ids", "weights")))
        assert layer.shape.rows_per == "expert", layer
        del layer


def impossible(rank, size):
    """What does not go together with it is refused when a layer is made, or called, with the reason."""
    test = unittest.TestCase()
    for options, expected in (
        ({"tp": 2}, "tp of 2"),
        ({"tp": 2, "tokens": "same"}, "tp of 2"),
        ({"tokens": "same"}, "tokens='same'"),
        ({"spare": 0}, "spare of 0"),
        ({"encode": "mxfp8,sent=mxfp8"}, "encode='mxfp8,sent=mxfp8': rows are sent as bfloat16"),
        ({"experts": 1, "top_k": 1}, "1 experts for 2 ranks"),
        ({"delay_wgrad_compute": True}, "delay_wgrad_compute"),
    ):
        with test.assertRaisesRegex(ValueError, f"rows_per='rank' does not go together with {expected}"):
            make(**options)
    with test.assertRaisesRegex(ValueError, "rows_per is 'ranks', expected"):
        make(form="ranks")
    layer, batch = make(), Batch(rank, 9, 8, 1)
    for call in (
        lambda: layer.submit_forward(batch.x, batch.ids, batch.weights),
        layer.prepare,
        layer.prepare_backward,
        lambda: layer.order_pairs(batch.ids),
    ):
        with test.assertRaisesRegex(RuntimeError, "is not possible with rows_per='rank'"):
            call()
    check(layer, rank, [9, 9], 1)


FUNCTIONS = (
    steps, errors_of_both, same_bits, main_grads, memory, unneeded_gradients, bytes_of_steps, stopped, refused, differing, chosen,
    impossible,
)  # fmt: skip


class RankRowsTest(unittest.TestCase):
    def test_steps_give_what_plain_pytorch_gives(self):
        for size in (2, 3):
            core_jobs.run_ranks(self, "steps", size)

    def test_errors_are_those_of_rows_per_expert(self):
        core_jobs.run_ranks(self, "errors_of_both", 3)

    def test_without_sums_over_ranks_the_bits_are_those_of_rows_per_expert(self):
        core_jobs.run_ranks(self, "same_bits", 2)

    def test_main_grads_get_each_gradient_once(self):
        core_jobs.run_ranks(self, "main_grads", 2)

    def test_what_a_step_keeps_is_freed_by_its_backward(self):
        core_jobs.run_ranks(self, "memory", 2)

    def test_only_requested_gradients_are_sent(self):
        core_jobs.run_ranks(self, "unneeded_gradients", 2)

    def test_bytes_that_tasks_send_follow_from_the_routing(self):
        for size in (2, 3):
            core_jobs.run_ranks(self, "bytes_of_steps", size)

    def test_bytes_of_8_ranks(self):
        """From the routing alone, by the same function as for 2 and 3 ranks."""
        ids = [torch.rand(512, 256, generator=torch.Generator().manual_seed(rank)).topk(8).indices for rank in range(8)]
        sent = collections.Counter()
        for form in ("expert", "rank"):
            for rank in range(8):
                sent[form] += expected_bytes(form, ids, rank, 256, 7168)
        self.assertLess(sent["rank"] / sent["expert"], 0.68)
        self.assertGreater(sent["rank"] / sent["expert"], 0.65)

    def test_the_number_of_rows_is_that_of_all_routings(self):
        for experts, top_k, size in ((7, 3, 3), (6, 1, 2), (5, 5, 4)):
            shape = LayerShape(8, 8, experts, top_k, ranks=size)
            owners = [rank for rank in range(size) for _ in shape.places_of(rank)]
            routings = list(itertools.combinations(owners, top_k))
            pairs = sum(len([owner for owner in each if owner != source]) for each in routings for source in range(size))
            reached = sum(len({*each} - {source}) for each in routings for source in range(size))
            for found, total in zip(rank_rows.rows_sent(shape), (pairs, reached)):
                self.assertAlmostEqual(found, total / size / len(routings))

    def test_auto_sends_rows_per_rank_where_these_are_much_fewer_and_machines_several(self):
        for experts, top_k, size, machines, expected in (
            (256, 8, 8, True, "rank"),
            (256, 8, 8, False, "expert"),
            (256, 8, 64, True, "expert"),  # 0.9 of the rows
            (256, 1, 8, True, "expert"),
        ):
            shape = LayerShape(64, 64, experts, top_k, ranks=size, rows_per="auto")
            self.assertEqual(rank_rows.choose(shape, machines).rows_per, expected, shape)

    def test_ranks_choose_by_machines(self):
        core_jobs.run_ranks(self, "chosen", 3)

    def test_a_rank_that_is_stopped_between_parts_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks = [core_jobs.start("stopped", rank, 2, os.path.join(folder, "store"), role="rank") for rank in range(2)]
            said, ended = core_jobs.finish(ranks[0], 60)
            ranks[1].kill()
            ranks[1].communicate()
        self.assertEqual(ended, 3, said)
        self.assertRegex(said, "rank 1")

    def test_refusals_reach_all_ranks(self):
        core_jobs.run_ranks(self, "refused", 2, limit=300)

    def test_ranks_with_different_layers_are_told_so(self):
        core_jobs.run_ranks(self, "differing", 2)

    def test_what_does_not_go_together_is_refused(self):
        core_jobs.run_ranks(self, "impossible", 2)


if __name__ == "__main__":
    if not core_jobs.main({each.__name__: each for each in FUNCTIONS}):
        unittest.main()
