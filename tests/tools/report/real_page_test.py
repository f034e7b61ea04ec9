#!/usr/bin/python3
"""Opens what `sluice report` writes in a browser: a simulated step, and the program without one.

usage: real_page_test.py SLUICE SLUICEC GRAPH.json [unittest arguments]

Skipped where Chromium, its driver or Selenium is missing.
"""
import contextlib
import subprocess
import sys
import tempfile
import unittest

import page_test

SLUICE = SLUICEC = GRAPH = ""  # set by main
SIZES = ("ep=2", "experts=8", "hidden=256", "intermediate=128", "top_k=2", "max_tokens=256")


class RealPageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        stack = contextlib.ExitStack()
        cls.folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        cls.addClassCleanup(stack.close)
        tool = lambda *command: subprocess.run(command, cwd=cls.folder, check=True, stdout=subprocess.DEVNULL)
        tool(SLUICEC, GRAPH, *(f"--set={size}" for size in SIZES), "--cores", "2", "-o", "layer.slp")
        for seed in ("1", "2"):
            tool(SLUICE, "simulate", "layer.slp", "--routing", "zipf:1.2", "--seed", seed, "--trace", f"{seed}.json")
        tool(SLUICE, "report", "1.json", "-o", "run.html")
        tool(SLUICE, "report", "layer.slp", "-o", "program.html")
        tool(SLUICE, "report", "1.json", "2.json", "-o", "both.html")
        cls.driver = stack.enter_context(page_test.browser(cls.folder))

    def open(self, name):
        self.driver.get(f"file://{self.folder}/{name}")
        self.assertEqual(self.run_js("return [sluiceReport.ready, sluiceReport.errors]"), [True, []])
        self.assertEqual([entry for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")], [])

    def run_js(self, script):
        return self.driver.execute_script(script)

    def sections(self):
        return self.run_js("return [...document.querySelectorAll('section')].map(each => each.id)")

    def test_a_run_has_all_its_sections_and_its_waits_have_causes(self):
        self.open("run.html")
        self.assertEqual(self.sections(), [
            "timeline", "use", "roofline", "routing", "memory", "graph", "table-overlap", "table-families", "table-critical",
            "table-workers", "table-waits", "table-slots", "table-program-families", "table-lanes", "table-events",
            "table-buffers"])
        count = self.run_js("const s = sluiceReport.reports[0].spans; const waits = [], critical = []; "
                            "for (let at = 0; at < s.count; ++at) { "
                            "if (s.kind[at] === 1 || s.kind[at] === 2) waits.push(s.cause[at]); "
                            "if (s.critical[at]) critical.push(at); } return [waits, critical.length, s.count]")
        self.assertGreater(len(count[0]), 0)
        self.assertTrue(all(0 <= cause < count[2] for cause in count[0]))
        self.assertGreater(count[1], 4)

    def test_search_finds_a_task_and_shows_it(self):
        self.open("run.html")
        box = self.driver.find_element("id", "search")
        box.send_keys("forward/down_proj[0,0]")
        page_test.wait_until(lambda: self.run_js("return sluiceReport.matches") == 2, "both ranks have the task")
        self.assertIn("forward/down_proj[0,0]", self.driver.find_element("id", "tooltip").text)

    def test_a_program_has_what_it_is_without_a_run(self):
        self.open("program.html")
        self.assertEqual(self.sections(), ["memory", "graph", "table-program-families", "table-lanes", "table-events",
                                           "table-buffers"])

    def test_two_runs_share_a_page(self):
        self.open("both.html")
        heads = self.run_js("return sluiceReport.timeline.lines.filter(line => !line.row).map(line => line.label)")
        self.assertEqual(len(heads), 6)


def main():
    global SLUICE, SLUICEC, GRAPH
    if page_test.missing():
        print(f"SKIP: {page_test.missing()} is not installed")
        return
    SLUICE, SLUICEC, GRAPH = (page_test.os.path.abspath(path) for path in sys.argv[1:4])
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])


if __name__ == "__main__":
    main()
