"""Layers are freed with the last module that uses them; those of a group at all ranks together."""

import gc
import os
import time
import unittest
import weakref

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from sluice_torch import Parallel, Steps

EXPERTS, TOP_K = 8, 2


def make(hidden, group=None, threads=1):
    return sluice_torch.MoE(hidden, 64, EXPERTS, TOP_K, parallel=Parallel(group, timeout=20), steps=Steps(threads=threads))


def run(layer, tokens=40, backward=True):
    x = torch.randn(tokens, layer.shape.hidden).bfloat16().requires_grad_(backward)
    ids = torch.stack([torch.randperm(EXPERTS)[:TOP_K] for _ in range(tokens)])
    with torch.set_grad_enabled(backward):
        y = layer(x, ids, torch.rand(tokens, TOP_K))
    if backward:
        y.sum().backward()
    return y


def layers():
    return sluice_torch.memory()["layers"]


def resident():
    """MiB of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def forget_together(rank, size):
    """Modules end earlier at one rank than at another; layers are freed when no rank uses them, and can be made
    again."""
    group = dist.group.WORLD
    kept, gone = make(64, group), make(96, group)
    for layer in (kept, gone):
        run(layer)
    assert layers() == 2
    if rank == 0:
        del gone, layer
    sluice_torch.clear_cache()
    assert layers() == 2, "a layer that another rank has went"
    again = make(96, group)  # the first rank still has this layer, so no rank makes it again
    run(again)
    del again
    if rank == 1:
        del gone, layer
    sluice_torch.clear_cache()
    assert layers() == 1, layers()
    again = make(96, group)
    y = run(again)
    run(kept)
    assert y.shape == (40, 96) and layers() == 2
    del again, kept, y
    sluice_torch.clear_cache()
    assert layers() == 0 and sluice_torch.memory()["workspace_bytes"] == 0
    for hidden in (64, 96):  # all of it anew
        run(make(hidden, group))
    rows, _, _, _, handle = sluice_torch.exchange.dispatch(
        torch.randn(5, 64).bfloat16(), torch.tensor([[rank]] * 5), torch.ones(5, 1), EXPERTS, group
    )
    del rows, handle
    sluice_torch.clear_cache()
    assert layers() == 0, layers()


def threads():
    """Counts the threads of this process; one that has ended may be listed for a moment."""
    counts = []
    for _ in range(20):
        counts.append(len(os.listdir("/proc/self/task")))
        time.sleep(0.001)
    return min(counts)


def share_workers(rank, size):
    """Three groups of two of three ranks: each rank is in two, and rank 1 at different places. The one thread beside
    the caller's serves both in turn; steps at the same time, which ranks begin in an order that is a circle, end."""
    torch.set_num_threads(1)  # it lends none
    made, counts = [], []
    x, ids, weights = torch.randn(40, 64).bfloat16(), torch.tensor([[0, 1]] * 40), torch.rand(40, 2)
    groups = [(pair, dist.new_group(pair)) for pair in ((0, 1), (1, 2), (0, 2))]
    for pair, group in groups:
        if rank in pair:
            made.append(make(64, group, threads=2))
            with torch.no_grad():
                made[-1](x, ids, weights)
            counts.append(threads())
    assert counts[1] == counts[0] + 1, counts  # a group has a thread that watches its ranks
    with torch.no_grad():
        pending = [layer.submit_forward(x, ids, weights) for layer in (made if rank == 0 else reversed(made))]
        for step in pending:
            step.wait()
    counts.append(threads())
    assert counts[2] - counts[1] in (2, 3), counts  # one that submits, per group; another worker if both ran at once
    del made, pending, step
    sluice_torch.clear_cache()
    assert threads() == counts[0] - 2, (counts, threads())


def destroy_group(rank, size):
    """A layer does not keep a process group, and runs without it; what needs the group says so."""
    group = weakref.ref(dist.group.WORLD)
    layer = make(64, dist.group.WORLD)
    run(layer)
    dist.barrier()
    dist.destroy_process_group()
    assert group() is None, "a process group outlives destroy_process_group()"
    run(layer)
    try:
        sluice_torch.clip_grad_norm_(layer.parameters(), 1.0)
    except RuntimeError as error:
        assert "the ep_group of a layer was destroyed" in str(error), error
    else:
        raise AssertionError("a norm over the ranks of a destroyed group")
    sluice_torch.clear_cache()
    assert layers() == 1
    del layer
    sluice_torch.clear_cache()
    assert layers() == 0


class ReleaseTest(unittest.TestCase):
    def setUp(self):
        sluice_torch.clear_cache()
        self.assertEqual(layers(), 0)

    def test_memory_of_dropped_layers_is_given_back(self):
        def one(hidden):
            run(make(hidden), tokens=512)
            gc.collect()

        one(256)
        before = resident()
        for number in range(12):
            one(272 + 16 * number)
        self.assertEqual(sluice_torch.memory(), dict.fromkeys(sluice_torch.memory(), 0))
        self.assertLess(resident() - before, 40)

    def test_a_layer_goes_with_the_last_module_that_has_it(self):
        first, second, other = make(64), make(64), make(96)
        for layer in (first, second, other):
            run(layer)
        self.assertEqual(layers(), 2)
        del first, layer
        self.assertEqual(layers(), 2)
        del second
        gc.collect()
        self.assertEqual(layers(), 1)
        self.assertEqual(run(other).shape, (40, 96))
        del other
        gc.collect()
        self.assertEqual(layers(), 0)

    def test_a_graph_outlives_its_module(self):
        layer = make(64)
        x = torch.randn(5, 64).bfloat16().requires_grad_()
        y = layer(x, torch.tensor([[0, 1]] * 5), torch.rand(5, 2))
        del layer
        sluice_torch.clear_cache()
        y.sum().backward()
        self.assertGreater(x.grad.abs().sum(), 0)

    def test_modules_in_a_cycle_go_too(self):
        layer = make(64)
        layer.own = [layer]
        run(layer)
        del layer
        sluice_torch.clear_cache()
        self.assertEqual(layers(), 0)

    def test_another_number_of_threads_after_all_layers_are_gone(self):
        run(make(64))
        gc.collect()
        run(sluice_torch.MoE(64, 64, EXPERTS, TOP_K, steps=Steps(threads=2)))

    def test_gradients_that_are_gone_leave_no_memory(self):
        layer = sluice_torch.MoE(512, 1024, 8, 2, steps=Steps(threads=1))
        run(layer)
        layer.zero_grad(set_to_none=True)
        self.assertGreater(sluice_torch.memory()["grad_bytes"], 0)
        sluice_torch.clear_cache()
        self.assertEqual(sluice_torch.memory()["grad_bytes"], 0)
        run(layer)

    def test_exchanges_last_until_the_cache_is_cleared(self):
        x, ids = torch.randn(5, 64).bfloat16(), torch.tensor([[0, 1]] * 5)
        for _ in range(3):
            sluice_torch.exchange.dispatch(x, ids, torch.rand(5, 2), EXPERTS, threads=1)
            self.assertEqual(layers(), 1)
        *_, handle = sluice_torch.exchange.dispatch(x, ids, torch.rand(5, 2), EXPERTS)
        sluice_torch.clear_cache()
        self.assertEqual(layers(), 1)
        del handle, _
        sluice_torch.clear_cache()
        self.assertEqual(layers(), 0)

    def test_groups_of_a_process_share_workers_in_turn(self):
        core_jobs.run_ranks(self, "share_workers", 3)

    def test_layers_do_not_keep_a_process_group(self):
        core_jobs.run_ranks(self, "destroy_group", 2)

    def test_ranks_forget_together(self):
        core_jobs.run_ranks(self, "forget_together", 2)


if __name__ == "__main__" and not core_jobs.main(globals()):
    unittest.main()
