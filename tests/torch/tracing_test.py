"""sluice_torch.trace: every task of all layers, forward and backward, in one file."""

import json
import os
import tempfile
import unittest

import sluice_torch
import torch
from moe_eager import route
from sluice_torch import te


def step(layer, tokens=40):
    torch.manual_seed(1)
    ids, weights = route(tokens, layer.shape.experts, layer.shape.top_k, 1)
    x = torch.randn(tokens, layer.shape.hidden).bfloat16().requires_grad_()
    y = layer(x, ids, weights)
    y.backward(torch.ones_like(y))
    return y.detach(), x.grad


def make(hidden=64):
    torch.manual_seed(0)
    return sluice_torch.MoE(hidden, 32, 4, 2, steps=sluice_torch.Steps(threads=2))


class TraceTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "trace.json")

    def read(self):
        with open(self.path) as file:
            events = json.load(file)["traceEvents"]
        names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        spans = [event for event in events if event["ph"] == "X"]
        return names, spans

    def test_all_layers_are_in_one_file_with_the_tasks_of_forward_and_backward(self):
        known, linear = make(), te.TEColumnParallelLinear(64, 32, threads=2)
        step(known)
        with sluice_torch.trace(self.path):
            found = step(known)
            step(make(96))  # made inside
            linear(torch.ones(8, 64).bfloat16())
        names, spans = self.read()
        self.assertEqual(len(names), 3)
        self.assertTrue(all(name.startswith("rank 0: ") for name in names.values()), names)
        for pid, name in names.items():
            steps = [span["name"] for span in spans if span["pid"] == pid and span["cat"] == "step"]
            self.assertIn("forward", steps)
            self.assertEqual("backward" in steps, "column_parallel" not in name, names)
            self.assertGreater(sum(span["cat"] == "task" for span in spans if span["pid"] == pid), 0)
        self.assertGreaterEqual(min(span["ts"] for span in spans), 0)
        for a, b in zip(found, step(known)):  # recording changes no bit
            self.assertTrue(torch.equal(a, b))

    def test_only_what_is_inside_is_recorded(self):
        layer = make()
        for steps in (1, 3):
            step(layer)
            with sluice_torch.trace(self.path):
                for _ in range(steps):
                    step(layer)
            step(layer)
            names, spans = self.read()
            self.assertEqual(list(names.values()), ["rank 0"])
            self.assertEqual(sum(span["name"] == "forward" for span in spans), steps)
            self.assertEqual(sum(span["name"] == "backward" for span in spans), steps)

    def test_submitted_steps_end_before_the_file_is_written(self):
        layer = make()
        ids, weights = route(40, 4, 2, 1)
        with torch.no_grad(), sluice_torch.trace(self.path):
            layer.submit_forward(torch.ones(40, 64).bfloat16(), ids, weights)
        self.assertEqual(sum(span["name"] == "forward" for span in self.read()[1]), 1)

    def test_the_rank_is_part_of_the_path(self):
        layer = make()
        os.environ["RANK"] = "3"
        self.addCleanup(os.environ.pop, "RANK")
        with sluice_torch.trace(self.path + ".{rank}"):
            step(layer)
        self.assertTrue(os.path.isfile(self.path + ".3"))

    def test_an_exception_writes_nothing_and_the_next_trace_works(self):
        layer = make()
        with self.assertRaises(ArithmeticError), sluice_torch.trace(self.path):
            step(layer)
            raise ArithmeticError
        self.assertFalse(os.path.exists(self.path))
        with sluice_torch.trace(self.path):
            step(layer)
        self.assertEqual(len(self.read()[0]), 1)

    def test_what_is_wrong_is_an_error(self):
        with self.assertRaisesRegex(RuntimeError, "no layer has run"), sluice_torch.trace(self.path):
            pass
        layer = make()
        with self.assertRaisesRegex(RuntimeError, "a recording is under way"), sluice_torch.trace(self.path):
            with sluice_torch.trace(self.path):
                pass
        with self.assertRaisesRegex(RuntimeError, "nothing/trace.json"), sluice_torch.trace("/nothing/trace.json"):
            step(layer)
        self.assertFalse(os.path.exists(self.path))


if __name__ == "__main__":
    unittest.main()
