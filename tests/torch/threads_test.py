"""Steps of layers run on the threads of PyTorch where it has as many as the layer."""

import os
import pathlib
import threading
import time
import traceback
import unittest

import sluice_torch
import torch
from moe_eager import route
from sluice_torch import Steps

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, TOKENS = 64, 32, 4, 2, 50
WORKERS = 2


def worker_waits() -> dict[str, int]:
    """How often each worker of Sluice has waited so far: read when all of them wait, also those just started."""
    while True:
        waits, busy = {}, False
        for task in pathlib.Path("/proc/self/task").iterdir():
            try:
                lines = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
            except OSError:  # the thread has ended
                continue
            if lines["Name"].strip().startswith("sluice-core-"):
                waits[task.name] = int(lines["voluntary_ctxt_switches"])
                busy |= not lines["State"].strip().startswith("S")
        if not busy:
            return waits
        time.sleep(0.001)


class ThreadsTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, steps=Steps(threads=WORKERS))
        self.x = torch.randn(TOKENS, HIDDEN).bfloat16().requires_grad_()
        self.dy = torch.randn(TOKENS, HIDDEN).bfloat16()
        self.ids, self.weights = route(TOKENS, EXPERTS, TOP_K, 1)
        torch.set_num_threads(WORKERS)
        self.expected = self.step()
        self.addCleanup(torch.set_num_threads, WORKERS)

    def forward(self):
        return [self.layer(self.x, self.ids, self.weights)]

    def step(self):
        y, = self.forward()
        return [y.detach(), *torch.autograd.grad(y, [self.x, *self.layer.parameters()], self.dy)]

    def wakes(self, run=None) -> int:
        """How often workers of Sluice's own were woken by five runs (steps), all of which give the same bits."""
        before = worker_waits()
        for _ in range(5):
            for one, other in zip((run or self.step)(), self.expected):
                self.assertTrue(torch.equal(one, other))
        return sum(waits - before.get(worker, 0) for worker, waits in worker_waits().items())

    def test_as_many_threads_run_the_steps(self):
        self.assertEqual(self.wakes(), 0)

    def test_another_number_of_threads_is_left_alone(self):
        for threads in (WORKERS - 1, WORKERS + 1):
            torch.set_num_threads(threads)
            self.assertGreater(self.wakes(), 0)
            self.assertEqual(torch.get_num_threads(), threads)

    def test_any_thread_has_threads_of_its_own(self):
        found = []

        def steps():
            torch.set_num_threads(WORKERS)
            found.append(self.wakes())

        threads = [threading.Thread(target=steps) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [0, 0, 0])

    def test_a_forked_child_runs_its_own_layers_on_workers_of_its_own(self):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                torch.manual_seed(0)
                self.layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, steps=Steps(threads=WORKERS))
                # PyTorch has no backward pass in a child of a process that has run one
                status = 0 if self.wakes(self.forward) > 0 else 2
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)


if __name__ == "__main__":
    unittest.main()
