"""usage: draw_timeline_test.py DRAW_TIMELINE   what the picture of a trace shows"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

SVG = "{http://www.w3.org/2000/svg}"


def span(rank, begin, length, name, kind, **arguments):
    return {"ph": "X", "pid": rank, "tid": 1, "ts": begin, "dur": length, "name": name, "cat": kind, "args": arguments}


def task(rank, begin, length, name):
    return span(rank, begin, length, name, "task", slot=0, tile=0, worker=0)


def wait(rank, begin, length, event, cause="arrival"):
    return span(rank, begin, length, "wait " + event, "wait", cause=cause, event=event, slot=0, worker=0)


# Rank 1 sends at 100 us, rank 0 waits for it until 400 us; the results are back at rank 1 at 900 us.
EVENTS = [
    span(0, 0, 1000, "forward", "step"), span(1, 0, 1000, "forward", "step"), span(0, 0, 50, "bind", "step"),
    task(1, 100, 50, "dispatch"), wait(0, 150, 250, "rows_arrived"), task(0, 400, 200, "up_proj"),
    wait(0, 600, 50, "up_proj_done", "producer"), task(0, 650, 50, "combine.return"), wait(1, 200, 700, "returned"),
    task(1, 900, 100, "combine.sum"),
]


class Timeline(unittest.TestCase):
    def draw(self, events):
        with tempfile.TemporaryDirectory() as folder:
            trace, svg = os.path.join(folder, "trace.json"), os.path.join(folder, "timeline.svg")
            with open(trace, "w") as text:
                json.dump({"otherData": {"program": "layer"}, "traceEvents": events}, text)
            run = subprocess.run(["/usr/bin/python3", sys.argv[1], trace, "-o", svg], stderr=subprocess.PIPE, text=True)
            return run, xml.etree.ElementTree.parse(svg).getroot() if os.path.exists(svg) else None

    def test_it_has_a_bar_per_task_and_wait_and_what_was_on_its_way(self):
        run, svg = self.draw(EVENTS)
        self.assertEqual(run.returncode, 0, run.stderr)
        bars = {bar.find(SVG + "title").text: (float(bar.get("x")), float(bar.get("width")))
                for bar in svg.iter(SVG + "rect") if bar.find(SVG + "title") is not None}
        self.assertEqual(sorted(bars), [
            "combine.return, slot 0: 0.05 ms", "combine.sum, slot 0: 0.10 ms", "dispatch, slot 0: 0.05 ms", "results",
            "rows", "up_proj, slot 0: 0.20 ms", "wait for returned, slot 0: 0.70 ms",
            "wait for rows_arrived, slot 0: 0.25 ms", "wait for up_proj_done, slot 0: 0.05 ms"])
        begin, length = bars["rows"]
        self.assertAlmostEqual(begin, bars["dispatch, slot 0: 0.05 ms"][0], delta=0.11)
        self.assertAlmostEqual(begin + length, bars["up_proj, slot 0: 0.20 ms"][0], delta=0.11)
        begin, length = bars["results"]
        self.assertAlmostEqual(begin, bars["combine.return, slot 0: 0.05 ms"][0], delta=0.11)
        self.assertAlmostEqual(begin + length, bars["combine.sum, slot 0: 0.10 ms"][0], delta=0.11)

    def test_a_rank_that_waited_for_nothing_has_nothing_on_its_way(self):
        run, svg = self.draw([event for event in EVENTS if event["cat"] != "wait"])
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertFalse({"rows", "results"} & {title.text for title in svg.iter(SVG + "title")})

    def test_a_trace_without_a_step_is_an_error(self):
        run, svg = self.draw([])
        self.assertEqual(run.returncode, 1)
        self.assertIn("found no step, expected a trace of sluice run", run.stderr)
        self.assertIsNone(svg)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
