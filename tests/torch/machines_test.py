"""sluice_torch.MoE at ranks that torchrun starts on two machines, which are two network namespaces."""

import os
import pathlib
import signal
import subprocess
import sys
import unittest

import exchange_options_test as exchange
import moe_ranks_test as moe
import placement_test as placement
import rank_rows_test as rank_rows
import torch
import torch.distributed as dist


def steps(rank, size):
    assert moe.make(dist.group.WORLD, 8).spans_machines
    moe.steps(rank, size)
    moe.inference(rank, size)


def dispatched(rank, size):
    """Dispatch and combine with their options, bit by bit."""
    for job in (exchange.maps, exchange.by_rank, exchange.asynchronous, exchange.too_many_rows):
        job(rank, size)


def by_rank(rank, size):
    """Rows per rank, with neighbours that share memory."""
    for seed in range(3):
        rank_rows.check(rank_rows.make(8, "auto"), rank, [37, 20, 0, 12][:size], seed)


def placed(rank, size):
    """Experts that move between machines, and gradients of copies on several: all bits of a layer without copies."""
    placement.training(rank, size)
    placement.main_grads(rank, size)


def killed(rank, size):
    """Rank 1 is killed between two steps: the others report that, and do not wait for it."""
    layer = moe.make(dist.group.WORLD, 8)
    moe.check_step(layer, rank, [9, 20, 7, 5][:size], 8, 1)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        layer(*moe.batch(rank, 5, 8, 1)[:3])
    except RuntimeError as lost:
        print(f"SURVIVOR {rank}: {lost}")


def forked(rank, size):
    """A child that frees its copies of everything leaves the layer of its parent alone."""
    from sluice_torch.ranks import ranks

    layer = moe.make(dist.group.WORLD, 8)
    moe.check_step(layer, rank, [9, 20][:size], 8, 1)
    child = os.fork()
    if child == 0:
        for shared in list(ranks._shared.values()):
            shared._lasting.clear()
            shared.ranks = None
            for held in list(shared._held.values()):
                held.op = None
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    moe.check_step(layer, rank, [7, 12][:size], 8, 2)


def without_ucx(rank, size):
    """No rank has UCX, as on machines that lack its library."""
    from sluice_torch.ranks import ranks

    def missing():
        raise RuntimeError("sluice: there is none")

    ranks._network = missing
    try:
        moe.make(dist.group.WORLD, 8)(*moe.batch(rank, 5, 8, 1)[:3])
    except RuntimeError as refused:
        print(f"REFUSED {rank}: {refused}")


class MachinesTest(unittest.TestCase):
    def run_on_two(self, part, per_node, script="two_machines.sh", start=()):
        script = pathlib.Path(__file__).parent / script
        done = subprocess.run(
            [script, "--per-node", str(per_node), *start, __file__, part], capture_output=True, text=True, timeout=200
        )
        if done.stdout.startswith("SKIP"):
            self.skipTest(done.stdout.strip())
        return done

    def setUp(self):
        if not moe.has_ucx():
            self.skipTest("built without UCX (libucx-dev is not installed)")

    def test_ranks_of_two_machines_do_what_one_process_does(self):
        done = self.run_on_two("steps", 1)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("steps ended"), 2, done.stdout)

    def test_ranks_that_mpirun_started_do_what_one_process_does(self):
        start = (pathlib.Path(__file__).parent / "by_mpirun.sh", sys.executable)
        done = self.run_on_two("steps", 2, "../tools/mpi/two_nodes.sh", start)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("steps ended"), 4, done.stdout)

    def test_neighbours_share_memory_and_the_others_use_the_network(self):
        done = self.run_on_two("steps", 2)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("steps ended"), 4, done.stdout)

    def test_dispatch_and_combine_give_the_bits_of_one_process(self):
        done = self.run_on_two("dispatched", 2)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("dispatched ended"), 4, done.stdout)

    def test_rows_per_rank_do_what_one_process_does(self):
        done = self.run_on_two("by_rank", 2)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("by_rank ended"), 4, done.stdout)

    def test_experts_with_copies_give_the_bits_of_one_process(self):
        done = self.run_on_two("placed", 1)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("placed ended"), 2, done.stdout)

    def test_a_rank_that_is_killed_is_named_by_the_others(self):
        done = self.run_on_two("killed", 2)
        for rank in (0, 2, 3):
            self.assertRegex(done.stdout, rf"SURVIVOR {rank}: sluice: rank 1 .*died")

    def test_forked_children_leave_the_ranks_alone(self):
        done = self.run_on_two("forked", 1)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("forked ended"), 2, done.stdout)

    def test_ranks_without_ucx_are_all_refused(self):
        done = self.run_on_two("without_ucx", 1)
        for rank in (0, 1):
            self.assertRegex(done.stdout, rf"REFUSED {rank}: .*needs UCX, which these ranks lack: 0, 1 ")


def be_rank(part):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    globals()[part](dist.get_rank(), dist.get_world_size())
    print(f"rank {dist.get_rank()}: {part} ended")


if __name__ == "__main__":
    if "RANK" in os.environ:
        be_rank(sys.argv[1])
    else:
        unittest.main()
