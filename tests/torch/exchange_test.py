"""exchange.dispatch and exchange.combine against plain PyTorch, at one rank and at several."""

import gc
import unittest

import core_jobs
import torch
import torch.distributed as dist
from sluice_torch import exchange
from sluice_torch.ranks import ranks

HIDDEN, TOP_K = 32, 3
BOUNDS = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 1e-5}  # for values that are rounded twice


def batch(rank, tokens, experts, seed=1, dtype=torch.bfloat16):
    """x, ids with some masked pairs, probabilities, and a gradient of y."""
    made = torch.Generator().manual_seed(1000 * seed + rank)
    x = torch.randn(tokens, HIDDEN, generator=made).to(dtype).requires_grad_()
    probs = torch.rand(tokens, TOP_K, generator=made).requires_grad_()
    ids = torch.zeros(tokens, TOP_K, dtype=torch.long)
    for token in range(tokens):
        ids[token] = torch.randperm(experts, generator=made)[:TOP_K]
    ids[::5, 1] = -1
    return x, ids, probs, torch.randn(tokens, HIDDEN, generator=made).to(dtype)


def factors(experts):
    """The factors by which the experts of these tests multiply."""
    return torch.linspace(0.5, 2, experts)


def through_experts(rows, row_experts, row_probs, experts):
    return (rows.float() * (factors(experts)[row_experts] * row_probs)[:, None]).to(rows.dtype)


def plain(x, ids, probs, experts):
    weights = torch.where(ids >= 0, probs * factors(experts)[ids.clamp(min=0)], torch.zeros(()))
    return (x.float()[:, None, :] * weights[:, :, None]).sum(1)


def difference(found, expected):
    if not expected.numel():
        return 0.0
    return (found.float() - expected.float()).abs().max().item() / max(expected.abs().max().item(), 1e-30)


def check_step(rank, counts, experts, group, seed=1, dtype=torch.bfloat16):
    bound = BOUNDS[dtype]
    x, ids, probs, dy = batch(rank, counts[rank], experts, seed, dtype)
    rows, row_experts, row_probs, counted, handle = exchange.dispatch(x, ids, probs, experts, group, timeout=20)
    check_rows(rank, counts, experts, seed, rows, row_experts, row_probs, counted)
    assert rows.dtype == dtype
    y = exchange.combine(through_experts(rows, row_experts, row_probs, experts), group, handle)
    expected = plain(x, ids, probs, experts)
    assert y.dtype == dtype and difference(y, expected) < bound, difference(y, expected)
    found = torch.autograd.grad(y, [x, probs], dy)
    wanted = torch.autograd.grad(expected, [x, probs], dy.float())
    for name, a, b in zip(("x", "probs"), found, wanted):
        assert a.dtype == b.dtype and a.shape == b.shape, (name, a, b)
        assert difference(a, b) < bound, (name, difference(a, b))
    assert found[1][ids < 0].abs().sum() == 0


def check_rows(rank, counts, experts, seed, rows, row_experts, row_probs, counted):
    """Rows are ordered by expert, then by source rank, then by token, and have the tokens' bits."""
    size = len(counts)
    own = experts // size + (rank < experts % size)
    first = rank * (experts // size) + min(rank, experts % size)
    wanted = []
    for expert in range(first, first + own):
        for source, tokens in enumerate(counts):
            x, ids, probs, _ = batch(source, tokens, experts, seed, rows.dtype)
            wanted += [(expert, x[t], probs[t, k]) for t, k in (ids == expert).nonzero().tolist()]
    assert row_experts.tolist() == [expert for expert, _, _ in wanted]
    assert counted.tolist() == [row_experts.tolist().count(first + e) for e in range(own)]
    assert rows.shape == (len(wanted), HIDDEN) and row_probs.shape == (len(wanted),)
    if wanted:
        assert torch.equal(rows, torch.stack([row for _, row, _ in wanted]))
        assert torch.equal(row_probs, torch.stack([prob for _, _, prob in wanted]))


def steps(rank, size):
    for seed, counts in enumerate(([37, 20, 9], [0, 64, 1], [100, 3, 50])):
        check_step(rank, counts[:size], 8, dist.group.WORLD, seed)
    check_step(rank, [10, 20, 30][:size], 7, dist.group.WORLD)  # experts that ranks do not divide
    check_step(rank, [0] * size, 8, dist.group.WORLD)
    for dtype in (torch.float32, torch.float16):
        for seed, counts in enumerate(([37, 20, 9], [0, 64, 1])):
            check_step(rank, counts[:size], 8, dist.group.WORLD, seed, dtype)
        check_step(rank, [10, 20, 30][:size], 7, dist.group.WORLD, 1, dtype)


def two_in_flight(rank, size):
    """Two dispatches before their combines, and these before their backwards, in another order."""
    experts, group = 8, dist.group.WORLD if size > 1 else None
    batches = [batch(rank, tokens, experts, seed) for seed, tokens in ((1, 30), (2, 50))]
    made = [exchange.dispatch(x, ids, probs, experts, group) for x, ids, probs, _ in batches]
    ys = [exchange.combine(through_experts(*m[:3], experts), group, m[4]) for m in reversed(made)][::-1]
    expected = [plain(x, ids, probs, experts) for x, ids, probs, _ in batches]
    for i in (1, 0):
        x, _, probs, dy = batches[i]
        assert difference(ys[i], expected[i]) < BOUNDS[torch.bfloat16]
        found = torch.autograd.grad(ys[i], [x, probs], dy)
        wanted = torch.autograd.grad(expected[i], [x, probs], dy.float())
        for a, b in zip(found, wanted):
            assert difference(a, b) < BOUNDS[torch.bfloat16], (i, difference(a, b))


class OneRankTest(unittest.TestCase):
    def test_dispatch_and_combine_are_those_of_plain_pytorch(self):
        for dtype in BOUNDS:
            for tokens in (1, 23, 0, 64):
                check_step(0, [tokens], 6, None, 1, dtype)

    def test_all_bits_of_any_type_arrive_and_return(self):
        """Also the bits of NaN of float32, subnormal numbers and signed zeros; NaN of float16 stays NaN."""
        made = torch.Generator().manual_seed(2)
        for dtype, whole in ((torch.float16, torch.int16), (torch.float32, torch.int32)):
            limit = torch.iinfo(whole).max + 1
            drawn = torch.randint(-limit, limit, (4000, HIDDEN), generator=made).to(whole)
            drawn[0] = torch.arange(HIDDEN) - limit  # zeros with a sign, and the least subnormal ones
            x = drawn.view(dtype)
            ids = torch.stack([torch.randperm(6, generator=made)[:TOP_K] for _ in range(len(x))])
            ids[:, 1:] = -1
            rows, experts, _, _, handle = exchange.dispatch(x, ids, torch.ones(ids.shape), 6)
            order = ids[:, 0].argsort(stable=True)
            both_nan = rows.isnan() & x[order].isnan() & (dtype == torch.float16)
            self.assertTrue(((rows.view(whole) == drawn[order]) | both_nan).all())
            y = exchange.combine(rows, None, handle)
            same = (y.view(whole) == drawn) | (x.isnan() & y.isnan()) | ((x == 0) & (y == 0))
            self.assertTrue(same.all())
            leaf = x.clone().requires_grad_()
            rows, *_ = exchange.dispatch(leaf, ids, torch.ones(ids.shape), 6)
            (dx,) = torch.autograd.grad(rows, [leaf], rows.detach())
            self.assertTrue(((dx.view(whole) == drawn) | (x.isnan() & dx.isnan()) | ((x == 0) & (dx == 0))).all())

    def test_float32_and_float16_that_do_not_fit_are_refused_as_bfloat16(self):
        for dtype in (torch.float32, torch.float16):
            x, ids, probs, _ = batch(0, 20, 6, dtype=dtype)
            twice = ids.clone()
            twice[4, 0] = twice[4, 2]
            for message, arguments in (
                (r"probs has shape \[3, 3\], expected \[20, 3\]", (x, ids, probs[:3])),
                (r"token_indices has shape \[3, 3\], expected \[20, 3\]", (x, ids[:3], probs)),
                (r"token_indices\[0, 0\] is \d+, expected 0 to 5", (x, ids + 6, probs)),
                (r"token_indices\[4,2\] is \d, as is token_indices\[4,0\]", (x, twice, probs)),
                ("token_indices has type Float", (x, probs, probs)),
                (r"probs has type Double", (x, ids, probs.double())),
                (r"x is on device meta", (x.to("meta"), ids, probs)),
            ):
                with self.subTest(message, dtype=dtype), self.assertRaisesRegex((ValueError, RuntimeError), message):
                    exchange.dispatch(*arguments, 6)
            with self.assertRaisesRegex(ValueError, "x has 20 tokens, but the exchange is for at most 19"):
                exchange.dispatch(x, ids, probs, 6, max_tokens=19)
            rows, _, _, counted, handle = exchange.dispatch(x, ids, probs, 6)
            with self.assertRaisesRegex(ValueError, rf"rows has shape \[1, 32\], expected \[{len(rows)}, 32\]"):
                exchange.combine(rows[:1], None, handle)
            with self.assertRaisesRegex(ValueError, "rows has type (torch.bfloat16|BFloat16), expected"):
                exchange.combine(rows.bfloat16(), None, handle)
            with self.assertRaisesRegex(RuntimeError, "no second derivative"):
                torch.autograd.grad(rows.sum(), [x], create_graph=True)

    def test_two_dispatches_go_before_their_combines(self):
        two_in_flight(0, 1)

    def test_each_is_the_backward_of_the_other(self):
        x, ids, probs, dy = batch(0, 20, 6)
        rows, _, _, _, handle = exchange.dispatch(x, ids, probs, 6)
        (dx,) = torch.autograd.grad(rows, [x], rows.detach(), retain_graph=True)
        self.assertTrue(torch.equal(dx, exchange.combine(rows.detach(), None, handle)))
        leaf = rows.detach().requires_grad_()
        (d_rows,) = torch.autograd.grad(exchange.combine(leaf, None, handle), [leaf], dy)
        sent, _, _, _, _ = exchange.dispatch(dy, ids, probs, 6)
        self.assertTrue(torch.equal(d_rows, sent))

    def test_a_routing_lives_as_long_as_its_handle_or_graph(self):
        x, ids, probs, dy = batch(0, 20, 6)
        before = ranks.memory()["saved_sets_in_use"]
        rows, _, _, _, handle = exchange.dispatch(x, ids, probs, 6)
        y = exchange.combine(rows, None, handle)
        in_use = lambda: ranks.memory()["saved_sets_in_use"] - before
        self.assertEqual(in_use(), 1)
        del handle, rows
        gc.collect()
        self.assertEqual(in_use(), 1)
        torch.autograd.grad(y, [x], dy)
        self.assertEqual(in_use(), 0)
        with torch.no_grad():
            *_, handle = exchange.dispatch(x, ids, probs, 6)
        self.assertEqual(in_use(), 1)
        del handle, _
        gc.collect()
        self.assertEqual(in_use(), 0)

    def test_what_does_not_fit_is_refused(self):
        x, ids, probs, _ = batch(0, 20, 6)
        with self.assertRaisesRegex(ValueError, "x has type Double"):
            exchange.dispatch(x.double(), ids, probs, 6)
        with self.assertRaisesRegex(ValueError, r"probs has shape \[3, 3\], expected \[20, 3\]"):
            exchange.dispatch(x, ids, probs[:3], 6)
        with self.assertRaisesRegex(ValueError, r"token_indices\[0, 0\] is \d+, expected 0 to 5"):
            exchange.dispatch(x, ids + 6, probs, 6)
        rows, _, _, counted, handle = exchange.dispatch(x, ids, probs, 6)
        with self.assertRaisesRegex(ValueError, rf"rows has shape \[1, 32\], expected \[{len(rows)}, 32\]"):
            exchange.combine(rows[:1], None, handle)
        with self.assertRaisesRegex(ValueError, "handle is of type Tensor"):
            exchange.combine(rows, None, counted)
        with self.assertRaisesRegex(RuntimeError, "no second derivative"):
            torch.autograd.grad(rows.sum(), [x], create_graph=True)


class RanksTest(unittest.TestCase):
    def test_two_ranks_give_each_other_their_rows_in_order(self):
        core_jobs.run_ranks(self, "steps", 2)

    def test_three_ranks_give_each_other_their_rows_in_order(self):
        core_jobs.run_ranks(self, "steps", 3)

    def test_two_dispatches_go_before_their_combines_at_two_ranks(self):
        core_jobs.run_ranks(self, "two_in_flight", 2)


if __name__ == "__main__" and not core_jobs.main(globals()):
    unittest.main()
