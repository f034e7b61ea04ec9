"""layer.report: what a layer is, and what it did in a trace, of all ranks; and traces of steps that failed."""

import os
import re
import tempfile
import unittest
import warnings

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from grouped import grouped
from moe_eager import route
from sluice_torch import te


def make(experts=4, group=None, **options):
    torch.manual_seed(0)
    return sluice_torch.MoE(64, 32, experts, 2, **grouped(ep_group=group, threads=1, **options))


def step(layer, tokens=40):
    ids, weights = route(tokens, layer.shape.experts, layer.shape.top_k, 1)
    x = torch.ones(tokens, layer.shape.hidden).bfloat16().requires_grad_()
    layer(x, ids, weights).sum().backward()


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def ranks_of_one_run(rank, size, folder):
    """Each rank writes a file, and the report of both is one run."""
    os.environ["RANK"] = str(rank)
    layer, other = make(group=dist.group.WORLD), make(6, dist.group.WORLD)
    step(layer)
    with sluice_torch.trace(folder + "/trace-{rank}.json") as path:
        step(layer)
        step(other)
    dist.barrier()
    if rank == 0:
        for each in (layer, other):
            text = text_of(each.report(folder + "/report.txt", path))
            print(text)
            assert "rank 1, worker 0" in text and "Critical path" in text and "not shown" not in text, text
            assert f"experts     {each.shape.experts}, 2 per token" in text, text
    dist.barrier()


def a_rank_that_does_not_come(rank, size, folder):
    """Its peer leaves a trace of the step in which it waited, whether it recorded or not."""
    os.environ["RANK"] = str(rank)
    os.environ["SLUICE_ON_HANG"] = f"trace={folder}/hang-{{rank}}.json"
    layer = make(group=dist.group.WORLD, timeout=2)
    step(layer)
    if rank == 0:
        path = folder + "/trace-{rank}.json"
        with unittest.TestCase().assertRaisesRegex(RuntimeError, "waited 2 s for .*what rank 0 did until then is in"):
            with sluice_torch.trace(path):
                step(layer)
        for files in (path, folder + "/hang-{rank}.json"):
            text = text_of(layer.report(folder + "/report.txt", files))
            assert re.search(r"failed +rank 0 in step \d+ \(forward\)", text), text
            assert "no trace of rank 1" in text and "waited 2 s for" in text, text
    dist.barrier()


def no_room_for_the_trace(rank, size, folder):
    layer = make(group=dist.group.WORLD, timeout=2)
    step(layer)
    if rank == 0:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with unittest.TestCase().assertRaisesRegex(RuntimeError, "waited 2 s"):
                with sluice_torch.trace("/nothing/trace.json"):
                    step(layer)
        assert any("/nothing/trace.json" in str(each.message) for each in said), said
    dist.barrier()


class ReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def test_without_a_trace_it_is_the_program(self):
        layer, linear = make(), te.TEColumnParallelLinear(64, 32, threads=1)
        step(layer)
        linear(torch.ones(8, 64).bfloat16())
        self.assertEqual(layer.report(self.path("layer.txt")), self.path("layer.txt"))
        self.assertIn("backward/gate_up_weight_grad", text_of(self.path("layer.txt")))
        self.assertIn("column_parallel", text_of(linear.report(self.path("linear.txt"))))

    def test_a_trace_shows_the_layer_that_is_asked(self):
        first, second = make(), make(6)
        with sluice_torch.trace(self.path("trace.json")) as trace:
            step(first)
            step(second)
        self.assertEqual(trace, self.path("trace.json"))
        for layer in (first, second):
            text = text_of(layer.report(self.path("report.txt"), trace))
            self.assertIn(f"experts     {layer.shape.experts}, 2 per token", text)
            self.assertIn("Overlap of communication and computation", text)
        self.assertTrue(text_of(first.report(self.path("report.svg"), trace)).startswith("<svg"))
        try:
            page = text_of(first.report(self.path("report.html"), trace))
        except RuntimeError as error:  # a build without what makes the page
            self.assertIn("apt-get install esbuild node-d3", str(error))
        else:
            self.assertIn('id="report-data"', page)

    def test_what_is_wrong_is_an_error(self):
        layer, other = make(), make(6)
        with self.assertRaisesRegex(ValueError, "found path 'a.pdf', expected an end of .html, .svg, .txt"):
            layer.report("a.pdf")
        with self.assertRaisesRegex(RuntimeError, "the layer has no program: run a step, or call prepare"):
            layer.report(self.path("a.txt"))
        step(layer)
        with sluice_torch.trace(self.path("trace.json")) as trace:
            step(other)
        with self.assertRaisesRegex(RuntimeError, "sluice: .*trace.json: --program: found .*expected one of:"):
            layer.report(self.path("a.txt"), trace)
        with self.assertRaisesRegex(RuntimeError, "none.json: cannot .*No such file"):
            layer.report(self.path("a.txt"), self.path("none.json"))
        with self.assertRaisesRegex(RuntimeError, "expected a trace for --format svg"):
            layer.report(self.path("a.svg"))
        self.assertFalse(os.path.exists(self.path("a.txt")) or os.path.exists(self.path("a.svg")))

    def test_files_of_all_ranks_are_one_run(self):
        core_jobs.run_ranks(self, "ranks_of_one_run", 2, arguments=[self.folder])

    def test_a_step_that_does_not_end_is_in_a_trace(self):
        core_jobs.run_ranks(self, "a_rank_that_does_not_come", 2, arguments=[self.folder])

    def test_a_file_of_a_failed_step_that_cannot_be_written_is_a_warning(self):
        core_jobs.run_ranks(self, "no_room_for_the_trace", 2, arguments=[self.folder])


if __name__ == "__main__":
    if not core_jobs.main(globals()):
        unittest.main()
