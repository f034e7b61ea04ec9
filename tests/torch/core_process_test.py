"""Processes with layers that fork, end and fail: no hang, no crash, and the other ranks are notified."""

import os
import signal
import sys
import tempfile
import threading
import time
import unittest

import core_jobs
import torch
from core_layers import WEIGHTS, Tensors, alone, difference, job_name, layer, program

submit = torch.ops.sluice.submit_moe


@torch.no_grad()
def submitted(layer, tensors):
    return submit(layer, tensors.x, tensors.ids, tensors.expert_weights, [tensors.gate_up, tensors.down], [])[1]


# --- Functions of children -----------------------------------------------------------------------------


def forks():
    """Like a DataLoader: children of a process whose layer runs, and has steps in flight."""
    made, tensors = layer(), Tensors()
    y = tensors.run(made)
    pending = submitted(made, tensors)
    for use in (False, True):
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            status = 0
            if use:
                # as DataLoader's workers do: with more threads PyTorch itself hangs here once its parent has used some
                torch.set_num_threads(1)
                status = 3
                try:
                    tensors.run(made)
                except RuntimeError as error:
                    status = 0 if f"the layer was made by process {os.getppid()}, of which" in str(error) else 4
                own = layer()  # one of its own works
                if difference(tensors.run(own), tensors.plain()) > 1e-2:
                    status = 5
            del made, tensors, y, pending
            sys.stdout.flush()
            sys.exit(status)
        assert os.waitpid(child, 0)[1] == 0, use
    assert torch.equal(pending.wait(), y)
    torch.autograd.grad(y, tensors.leaves, tensors.dy)


def loads_data():
    """A DataLoader with workers by fork, between steps of a layer."""
    from torch.utils.data import DataLoader, TensorDataset

    made, tensors = layer(), Tensors()
    loader = DataLoader(TensorDataset(torch.arange(64)), batch_size=8, num_workers=2)
    for epoch in range(2):
        assert sum(len(batch[0]) for batch in loader) == 64
        tensors.run(made).sum().backward()


def exits_with_steps_in_flight(how):
    made, tensors = layer(), Tensors(128)
    kept = [submitted(made, tensors) for _ in range(50)]
    torch.kept = kept if how == "kept" else None  # what outlives the interpreter's modules
    y = tensors.run(made)
    if how == "error":
        raise ValueError("on purpose")
    sys.exit(7)


def cancels(rank, job, go):
    """Two ranks. The first step of rank 0 waits for rank 1, which starts when rank 0 has cancelled its second."""
    made, tensors = rank_of(rank, job)
    if int(rank) == 1:
        while not os.path.exists(go):
            time.sleep(0.01)
    first, second = submitted(made, tensors), submitted(made, tensors)
    if int(rank) == 0:
        second.cancel()
        open(go, "w").close()
    y = first.wait()
    try:
        second.wait()
    except RuntimeError as error:
        assert "cancelled" in str(error) and ("rank 0: " in str(error)) == (int(rank) == 1), error
    else:
        raise AssertionError("a step that was cancelled before it began gave a result")
    assert torch.equal(submitted(made, tensors).wait(), y)


def rank_of(rank, job):
    """The layer and tensors of one of two ranks."""
    ranks = torch.classes.sluice.Ranks(job, int(rank), 2, 1, 20.0)
    made = torch.classes.sluice.Layer(ranks, program(ranks=2), WEIGHTS)
    return made, Tensors(experts=range(0, 4) if int(rank) == 0 else range(4, 8))


def rank_of_a_job(rank, how, job):
    """Two ranks; rank 1 ends before the second step."""
    made, tensors = rank_of(rank, job)
    tensors.run(made)
    if int(rank) == 1:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "error":
            raise ValueError("on purpose")
        sys.exit(0)
    began = time.monotonic()
    try:
        tensors.run(made)
    except RuntimeError as error:
        assert "rank 1" in str(error), error
        assert time.monotonic() - began < 15
        return
    raise AssertionError("a step went on without a rank")


# --- Tests ---------------------------------------------------------------------------------------------


class ProcessesTest(unittest.TestCase):
    def child(self, name, *arguments, ended=0, limit=60):
        said, how = core_jobs.finish(core_jobs.start(name, *arguments), limit)
        self.assertEqual(how, ended, said)
        return said

    def test_forked_children_leave_the_layer_alone_and_may_make_their_own(self):
        self.child("forks")

    def test_a_data_loader_with_workers_goes_between_steps(self):
        self.child("loads_data")

    def test_a_process_that_exits_with_steps_in_flight_ends(self):
        for how in ("dropped", "kept"):
            self.child("exits_with_steps_in_flight", how, ended=7)

    def test_an_error_with_steps_in_flight_ends_the_process(self):
        said = self.child("exits_with_steps_in_flight", "error", ended=1)
        self.assertIn("ValueError: on purpose", said)

    def test_a_cancelled_step_does_not_run_and_the_next_does(self):
        job = job_name()
        with tempfile.TemporaryDirectory() as folder:
            pair = [core_jobs.start("cancels", rank, job, os.path.join(folder, "go")) for rank in (0, 1)]
            for said, ended in [core_jobs.finish(process, 60) for process in pair]:
                self.assertEqual(ended, 0, said)

    def test_a_rank_that_ends_is_named_by_the_other(self):
        for how, ended in (("exit", 0), ("error", 1), ("kill", "SIGKILL")):
            job = job_name()
            pair = [core_jobs.start("rank_of_a_job", rank, how, job) for rank in (0, 1)]
            found = [core_jobs.finish(process, 60) for process in pair]
            self.assertEqual(found[0][1], 0, (how, found[0][0]))
            self.assertEqual(found[1][1], ended, (how, found[1][0]))


class PendingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.layer = layer()

    def test_a_submitted_step_gives_what_the_op_gives(self):
        tensors = Tensors()
        pending = submitted(self.layer, tensors)
        y = pending.wait()
        self.assertTrue(torch.equal(y, tensors.run(self.layer)))
        self.assertTrue(pending.done())
        self.assertTrue(torch.equal(pending.wait(), y))
        self.assertFalse(y.requires_grad)

    def test_steps_in_flight_of_several_layers_end_in_order(self):
        ranks = alone()
        layers = [torch.classes.sluice.Layer(ranks, program(), WEIGHTS) for _ in range(3)]
        batches = [Tensors(seed=seed) for seed in range(12)]
        pending = [submitted(layers[i % 3], tensors) for i, tensors in enumerate(batches)]
        pending[-1].wait()
        self.assertTrue(all(step.done() for step in pending))
        for step, tensors in zip(pending, batches):
            self.assertTrue(torch.equal(step.wait(), tensors.run(self.layer)))

    def test_tensors_of_a_submitted_step_live_until_it_is_done(self):
        expected = Tensors(128).run(self.layer)
        pending = [submitted(self.layer, Tensors(128)) for _ in range(8)]
        filler = [torch.full((128, 64), float("nan")).bfloat16() for _ in range(64)]
        for step in pending:
            self.assertTrue(torch.equal(step.wait(), expected))
        del filler

    def test_a_submitted_step_keeps_no_set(self):
        tensors = Tensors()
        y = tensors.run(self.layer)
        pending = [submitted(self.layer, Tensors(seed=seed)) for seed in range(4)]
        self.assertEqual(self.layer.saved_in_use(), 1)
        grads = torch.autograd.grad(y, tensors.leaves, tensors.dy)
        again = torch.autograd.grad(tensors.run(self.layer), tensors.leaves, tensors.dy)
        for a, b in zip(grads, again):
            self.assertTrue(torch.equal(a, b))
        del pending

    def test_other_threads_of_python_run_while_steps_do(self):
        tensors = Tensors(128)

        def found_steps_running():
            pending = [submitted(self.layer, tensors) for _ in range(400)]
            found = []
            thread = threading.Thread(target=lambda: (time.sleep(0.01), found.append(not pending[-1].done())))
            thread.start()
            pending[-1].wait()  # if this kept Python's lock, the thread would come too late
            thread.join()
            return found[0]

        self.assertTrue(any(found_steps_running() for _ in range(5)))


if __name__ == "__main__" and not core_jobs.main(globals()):
    unittest.main()
