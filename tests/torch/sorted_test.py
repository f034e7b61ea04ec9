"""MoE.forward_sorted: rows that are sorted by expert, against plain PyTorch over all ranks."""

import unittest

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from grouped import grouped
from moe_eager import BOUND, eager, error

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 64, 48, 7, 3
ROWS = ([5, 0, 33, 1, 0, 17, 40], [0, 0, 0, 0, 0, 0, 0], [0, 90, 0, 0, 2, 0, 0], [1, 1, 1, 1, 1, 1, 1])


def batch(source, seed):
    """Rows, counts and the gradient of y, of one source."""
    counts = torch.tensor(ROWS[(source + seed) % len(ROWS)])
    made = torch.Generator().manual_seed(10 * seed + source)
    rows, dy = (torch.randn(int(counts.sum()), HIDDEN, generator=made).bfloat16() for _ in range(2))
    return rows.requires_grad_(), counts, dy


def all_weights():
    made = torch.Generator().manual_seed(7)
    shapes = {"gate_up_weight": (EXPERTS, 2 * INTERMEDIATE, HIDDEN), "down_weight": (EXPERTS, HIDDEN, INTERMEDIATE)}
    return {name: (0.1 * torch.randn(shape, generator=made)).bfloat16() for name, shape in shapes.items()}


def own_part(layer, name, whole):
    return sluice_torch.state.sharding.take(name, whole[layer.local_experts], layer.shard, layer.shape.tp)


def make(**options):
    layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, **grouped(threads=1, timeout=20, **options))
    with torch.no_grad():
        for name, whole in all_weights().items():
            getattr(layer, name).copy_(own_part(layer, name, whole))
    return layer


def expected_step(batches, own):
    weights = {name: weight.float().requires_grad_() for name, weight in all_weights().items()}
    leaves = [rows.detach().float().requires_grad_() for rows, _, _ in batches]
    ys = []
    for (_, counts, _), rows in zip(batches, leaves):
        ids = torch.arange(EXPERTS).repeat_interleave(counts).unsqueeze(1)
        ys.append(eager(rows, ids, torch.ones(ids.shape), *weights.values()))
    grads = torch.autograd.grad(ys, [leaves[own], *weights.values()], [dy.float() for _, _, dy in batches])
    return ys[own], grads


def check_step(layer, rank, size, seed):
    tp, same = layer.shape.tp, layer.shape.tokens == "same"
    batches = [batch(source, seed) for source in range(size // tp if same else size)]
    own = rank // tp if same else rank
    rows, counts, dy = batches[own]
    y = layer.forward_sorted(rows, counts.int() if seed else counts)
    names = ["gate_up_weight", "down_weight"]
    found = torch.autograd.grad(y, [rows, *(getattr(layer, name) for name in names)], dy)
    expected_y, expected = expected_step(batches, own)
    for name, a, b in zip(["y", "rows", *names], [y, *found], [expected_y, *expected]):
        b = own_part(layer, name, b) if name in names else b
        assert a.shape == b.shape and a.dtype == torch.bfloat16 and error(a, b) < BOUND, (name, error(a, b))
    with torch.no_grad():
        assert torch.equal(layer.forward_sorted(rows, counts), y)


def values(rank, size):
    group = {"ep_group": dist.group.WORLD} if size > 1 else {}
    for tp, tokens in ((1, "own"), (2, "own"), (2, "same"))[: 1 if size == 1 else 3]:
        layer = make(tp=tp, tokens=tokens, **group)
        for seed in range(3):
            check_step(layer, rank, size, seed)


def with_places(rank, size):
    layer = make(spare=3, ep_group=dist.group.WORLD)
    for seed in range(2):
        check_step(layer, rank, size, seed)
    skew = sluice_torch.balance(layer)[""]  # from the rows of sorted steps, too
    assert skew.after <= skew.before
    check_step(layer, rank, size, 2)


def refused_elsewhere(rank, size):
    """A step that one rank refuses fails at all, and the next ones run."""
    layer = make(ep_group=dist.group.WORLD)
    rows, counts, _ = batch(rank, 0)
    try:
        layer.forward_sorted(rows, counts + (rank == 1))
    except (ValueError, RuntimeError) as failure:
        assert f"counts sum to {EXPERTS}, expected the 0 rows" in str(failure), failure
        assert (rank == 1) == isinstance(failure, ValueError), failure
    else:
        raise AssertionError("counts that do not fit were accepted")
    check_step(layer, rank, size, 1)


class SortedTest(unittest.TestCase):
    def test_rows_of_all_ranks(self):
        for size in (1, 2, 4):
            with self.subTest(ranks=size):
                core_jobs.run_ranks(self, "values", size)

    def test_experts_with_copies(self):
        core_jobs.run_ranks(self, "with_places", 2)

    def test_the_step_of_pairs_in_order_gives_the_same_bits(self):
        """forward() is forward_sorted() of its pairs, weighted and summed."""
        layer = make()
        x = torch.randn(20, HIDDEN).bfloat16()
        ids = torch.stack([torch.randperm(EXPERTS)[:TOP_K] for _ in range(20)])
        with torch.no_grad():
            order = layer.order_pairs(ids)
            rows = layer.forward_sorted(x[order.indices // TOP_K], order.counts[0])
            weights = torch.zeros(20, TOP_K)
            weights[:, 1] = 1  # a sum of one row is that row
            y = layer(x, ids, weights)
        placed = torch.empty(20 * TOP_K, HIDDEN, dtype=torch.bfloat16)
        placed[order.indices] = rows
        self.assertTrue(torch.equal(placed.view(20, TOP_K, HIDDEN)[:, 1], y))

    def test_what_does_not_fit_is_refused(self):
        layer = make()
        rows, counts, _ = batch(0, 0)
        for given, said in (
            ((rows, counts.tolist()), "counts is list, expected torch.int32 or torch.int64"),
            ((rows, counts.float()), "counts is torch.float32, expected torch.int32 or torch.int64"),
            ((rows, counts[:-1]), r"counts has shape \[6\], expected \[7\]"),
            ((rows, counts - 2), r"counts\[1\] is -2, expected 0 or more"),
            ((rows[:-1], counts), "counts sum to 96, expected the 95 rows"),
            ((rows[:, :-1], counts), r"x has shape \[96, 63\], expected \[..., 64\]"),
            ((rows[None], counts), r"rows is \[1, 96, 64\], expected \[R, H\]"),
        ):
            with self.assertRaisesRegex(ValueError, said):
                layer.forward_sorted(*given)
        check_step(layer, 0, 1, 0)

    def test_a_refusal_reaches_all_ranks(self):
        core_jobs.run_ranks(self, "refused_elsewhere", 2)


if __name__ == "__main__" and not core_jobs.main(globals()):
    unittest.main()
