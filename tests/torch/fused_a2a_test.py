"""sluice_torch.fused_a2a as Megatron's token dispatchers call it, against plain PyTorch."""

import inspect
import re
import unittest

import core_jobs
import page_tables
import sluice_torch
import torch
import torch.distributed as dist
from sluice_torch import fused_a2a

HIDDEN, TOP_K, EXPERTS = 32, 3, 8
BOUND = 1e-2  # of y and gradients of bfloat16, which are rounded twice


def factors():
    """The factors by which the experts of these tests multiply."""
    return torch.linspace(0.5, 2, EXPERTS)


def batch(rank, tokens, seed=1):
    """x, ids with some masked pairs, their probabilities, a gradient of y."""
    made = torch.Generator().manual_seed(1000 * seed + rank)
    x = torch.randn(tokens, HIDDEN, generator=made).bfloat16().requires_grad_()
    probs = torch.rand(tokens, TOP_K, generator=made).requires_grad_()
    ids = torch.stack([torch.randperm(EXPERTS, generator=made)[:TOP_K] for _ in range(tokens)])
    ids[::5, 1] = -1
    return x, ids, probs, torch.randn(tokens, HIDDEN, generator=made).bfloat16()


def mapped(ids, probs):
    """The same routing as a map [T, E] and its probabilities."""
    places = (ids[:, :, None] == torch.arange(EXPERTS)).float()
    return places.sum(1) > 0, (places * probs[:, :, None]).sum(1)


def expected_of(x, ids, probs, dy):
    """y, and the gradients of x and probs."""
    weights = torch.where(ids >= 0, probs * factors()[ids.clamp(min=0)], torch.zeros(()))
    y = (x.float()[:, None, :] * weights[:, :, None]).sum(1)
    return y, *torch.autograd.grad(y, [x, probs], dy.float())


def close(found, expected):
    return (found.float() - expected.float()).abs().max() <= BOUND * expected.abs().max()


def check_deep_ep(rank, size, group, dispatch, combine):
    """A token is sent once to each rank, where its experts are summed: DeepEP's way."""
    x, ids, probs, dy = batch(rank, 20 + 9 * rank)
    rows, indices, row_probs, counts, handle = dispatch(x, ids, probs, EXPERTS, group, True, True)
    own = EXPERTS // size
    assert indices.dtype == torch.int64 and row_probs.dtype == torch.float32
    assert indices.shape == row_probs.shape == (len(rows), min(TOP_K, own))
    assert ((-1 <= indices) & (indices < own)).all() and (row_probs[indices < 0] == 0).all()
    assert counts.tolist() == [(indices == expert).sum().item() for expert in range(own)]
    # each token that has an expert here, in the order of ranks, with the experts that are those of this rank
    wanted = []
    for source in range(size):
        its_x, its_ids, its_probs, _ = batch(source, 20 + 9 * source)
        for token in range(len(its_x)):
            here = {int(i) - rank * own: p.item() for i, p in zip(its_ids[token], its_probs[token]) if i >= 0 and i // own == rank}
            if here:
                wanted.append((its_x[token], here))
    assert len(rows) == len(wanted)
    for row, index, prob, (token, here) in zip(rows, indices, row_probs, wanted):
        assert torch.equal(row, token)
        assert {int(i): p.item() for i, p in zip(index, prob) if i >= 0} == here
    of_here = factors()[rank * own :][indices.clamp(min=0)]
    y, none = combine((rows.float() * (of_here * row_probs).sum(1)[:, None]).bfloat16(), group, handle, True, True)
    assert none is None
    for found, expected in zip((y, *torch.autograd.grad(y, [x, probs], dy)), expected_of(x, ids, probs, dy)):
        assert close(found, expected)


def check_hybrid(rank, size, group, dispatch, combine, pad, spare_rows):
    """A token is sent to each of its experts. `spare_rows`: those above what is needed, fewer than 0 to drop some; None: no limit."""
    x, ids, probs, dy = batch(rank, 20 + 9 * rank, 2)
    own = EXPERTS // size
    every = [batch(source, 20 + 9 * source, 2) for source in range(size)]
    found = [sum((its[1] == rank * own + expert).sum().item() for its in every) for expert in range(own)]
    padded = [-(-count // (pad or 1)) * (pad or 1) for count in found]
    limit = None if spare_rows is None else sum(padded) + spare_rows
    routing_map, dense = mapped(ids, probs)
    rows, row_probs, none, counts, handle = dispatch(x, routing_map, dense, group, own, limit, pad)
    total = sum(padded) if limit is None else limit
    assert none is None and rows.shape == (total, HIDDEN) and row_probs.shape == (total,) and row_probs.dtype == torch.float32
    assert int(handle[-1]) == (spare_rows is not None and spare_rows < 0)
    kept, left = [], total
    for count in padded:
        kept.append(min(count, left))
        left -= kept[-1]
    assert counts.tolist() == kept, (counts, kept)
    by_expert = torch.repeat_interleave(factors()[rank * own : (rank + 1) * own], counts)
    scale = torch.cat([by_expert, torch.zeros(total - len(by_expert))]) * row_probs
    y = combine((rows.float() * scale[:, None]).bfloat16(), handle, torch.tensor(total), pad)
    grads = torch.autograd.grad(y, [x, probs], dy)
    if spare_rows is not None and spare_rows < 0:
        return rows, y, grads
    for value, expected in zip((y, *grads), expected_of(x, ids, probs, dy)):
        assert close(value, expected)
    return rows, y, grads


def by_name(x, routing_map, dense, group, own, limit, pad):
    return fused_a2a.hybrid_ep_dispatch(
        x=x, routing_map=routing_map, probs=dense, group=group, num_local_experts=own, num_sms_dispatch_api=16,
        num_sms_combine_api=16, num_blocks_permute=4, num_blocks_unpermute=4, fused=True, num_permuted_tokens=limit, pad_multiple=pad,
    )  # fmt: skip


def by_place(x, routing_map, dense, group, own, limit, pad):
    return fused_a2a.HybridEPDispatch.apply(x, routing_map, dense, group, own, 16, 16, 4, 4, False, limit, pad, 108)


def by_older_place(x, routing_map, dense, group, own, limit, pad):
    return fused_a2a.HybridEPDispatch.apply(x, routing_map, dense, group, own, 24, 24, limit, pad)


def all_ways(rank, size):
    group = dist.group.WORLD if size > 1 else None
    fused_a2a.set_deepep_num_sms(20)
    buffer = fused_a2a.get_buffer(group, 64)
    check_deep_ep(rank, size, group, fused_a2a.fused_dispatch, fused_a2a.fused_combine)
    check_deep_ep(rank, size, group, fused_a2a.FusedDispatch.apply, fused_a2a.FusedCombine.apply)
    assert fused_a2a.get_buffer(group, 32) is buffer
    fused_a2a.init_hybrid_ep_buffer(group, HIDDEN, 16, EXPERTS // size, num_sms_dispatch_api=16)  # smaller than the steps
    for dispatch in (by_name, by_place, by_older_place):
        check_hybrid(rank, size, group, dispatch, fused_a2a.hybrid_ep_combine, None, None)
        check_hybrid(rank, size, group, dispatch, fused_a2a.HybridEPCombine.apply, 16, 7)
    fused_a2a.reset_hybrid_ep_buffer()
    check_hybrid(rank, size, group, by_name, fused_a2a.hybrid_ep_combine, 16, 0)
    check_refused(rank, size, group)
    check_dropped(rank, size, group)


def check_refused(rank, size, group):
    """Rows that the last rank lacks fail the combine at all ranks, and the next one is right."""
    x, ids, probs, _ = batch(rank, 20)
    routing_map, dense = mapped(ids, probs)
    rows, *_, handle = fused_a2a.hybrid_ep_dispatch(x, routing_map, dense, group, EXPERTS // size, num_permuted_tokens=500)
    try:
        fused_a2a.hybrid_ep_combine(rows[:-1] if rank == size - 1 else rows, handle)
        raise AssertionError("not refused")
    except (ValueError, RuntimeError) as refused:
        assert f"x is [499, {HIDDEN}], expected a tensor of 500 rows" in str(refused), refused
    assert fused_a2a.hybrid_ep_combine(rows, handle).shape == x.shape


def check_dropped(rank, size, group):
    """Without pads and in a budget that lacks 5 rows at each rank, the last 5 are dropped: they add nothing."""
    whole, _, _ = check_hybrid(rank, size, group, by_name, fused_a2a.hybrid_ep_combine, None, 0)
    few, y, (dx, d_probs) = check_hybrid(rank, size, group, by_name, fused_a2a.hybrid_ep_combine, None, -5)
    assert torch.equal(few, whole[:-5])
    x, ids, probs, dy = batch(rank, 20 + 9 * rank, 2)
    ids = ids.clone()
    own = EXPERTS // size
    for owner in range(size):  # the last rows of a rank are those of its last experts, from the last source and token back
        pairs = [
            (expert, source, token)
            for expert in range(owner * own, (owner + 1) * own)
            for source in range(size)
            for token in (batch(source, 20 + 9 * source, 2)[1] == expert).any(1).nonzero().flatten().tolist()
        ]
        for expert, source, token in pairs[-5:]:
            if source == rank:
                ids[token][ids[token] == expert] = -1
    for found, expected in zip((y, dx, d_probs), expected_of(x, ids, probs, dy)):
        assert close(found, expected)


class FusedA2ATest(unittest.TestCase):
    def test_one_rank(self):
        all_ways(0, 1)

    def test_two_ranks(self):
        core_jobs.run_ranks(self, "all_ways", 2)

    def test_what_does_not_fit_is_refused(self):
        x, ids, probs, _ = batch(0, 10)
        routing_map, dense = mapped(ids, probs)
        with self.assertRaisesRegex(ValueError, "routing_map has 8 experts, expected 6: 6 of each of 1 ranks"):
            fused_a2a.hybrid_ep_dispatch(x, routing_map, dense, None, 6)
        with self.assertRaisesRegex(ValueError, r"routing_map is NoneType, expected a tensor \[T, E\]"):
            fused_a2a.hybrid_ep_dispatch(x, None, dense, None, EXPERTS)
        with self.assertRaisesRegex(ValueError, "num_permuted_tokens is -1, expected a whole number from 0 on"):
            fused_a2a.hybrid_ep_dispatch(x, routing_map, dense, None, EXPERTS, num_permuted_tokens=-1)
        with self.assertRaisesRegex(ValueError, "handle is of type int, expected what hybrid_ep_dispatch gave"):
            fused_a2a.hybrid_ep_combine(x, 3)
        with self.assertRaisesRegex(ValueError, "handle is of type Tensor, expected what exchange.dispatch gave"):
            fused_a2a.fused_combine(x, None, ids)
        for older in (False, True):
            with self.assertRaisesRegex(ValueError, "fp8_dispatch is True, expected False"):
                if older:
                    fused_a2a.init_hybrid_ep_buffer(None, HIDDEN, 64, EXPERTS, 16, 16, True)
                else:
                    fused_a2a.init_hybrid_ep_buffer(None, HIDDEN, seq_len=64, num_local_experts=EXPERTS, fp8_dispatch=True)
        with self.assertRaisesRegex(ValueError, "num_tokens is None, expected a whole number"):
            fused_a2a.init_hybrid_ep_buffer(None, HIDDEN)
        with self.assertRaisesRegex(RuntimeError, "no exchange over NCCL"):
            fused_a2a.ensure_nccl_ep_bootstrapped(None, 1, a=2)

    def test_names_before_say_what_to_call(self):
        with self.assertRaisesRegex(AttributeError, "sluice_torch.fused_dispatch is now sluice_torch.exchange.dispatch"):
            sluice_torch.fused_dispatch

    def test_all_that_a_token_dispatcher_imports_is_there(self):
        self.assertEqual(fused_a2a.HYBRIDEP_TOKEN_ALIGNMENT, 64)
        self.assertEqual(fused_a2a.get_hidden_bytes(torch.zeros(3, 10, dtype=torch.uint8)), 20)
        for name in ("alloc_ep_symm_buffer", "new_nccl_ep_buffer", "nccl_ep_dispatch", "nccl_ep_combine"):
            self.assertIsNone(getattr(fused_a2a, name))
        self.assertFalse(fused_a2a.is_nccl_ep_bootstrapped())
        fused_a2a.nccl_ep_finalize()

    def test_the_table_of_the_docs_has_every_function_and_argument(self):
        told = page_tables.told("fused_a2a")
        functions = {
            name: value
            for name, value in vars(fused_a2a).items()
            if inspect.isfunction(value) and not name.startswith("_") and value.__module__.endswith(("fused_a2a", "buffers"))
        }
        signatures = {name: list(inspect.signature(value).parameters) for name, value in functions.items()}
        self.assertEqual({name: arguments for name, (arguments, _) in told.items()}, signatures)
        for name, (arguments, effects) in told.items():
            for argument in re.findall(r"`(num_\w+)`", effects):
                self.assertIn(argument, arguments, name)


if __name__ == "__main__" and not core_jobs.main(globals()):
    unittest.main()
