"""usage: ladder_test.py RUN TORCH_PRODUCTS GPU_CHECK GPU_BENCH LAYER   the ladder on the hardware model

RUN is the archive's script, GPU_CHECK its program on the model, of which SLUICE_TEST_FAULT breaks a fact: each rung fails where
its fact is broken, and none below it.
"""
import json
import os
import runpy
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest


class Ladder(unittest.TestCase):
    files = []

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        for path, name in zip(cls.files, ["run", "torch_products.py", "gpu_check", "gpu_bench", "layer2.slp"]):
            shutil.copy(path, os.path.join(cls.folder, name))
        version = subprocess.run([os.path.join(cls.folder, "gpu_check"), "--version"], stdout=subprocess.PIPE, text=True, check=True)
        cls.write("VERSION", version.stdout)
        # stands for the real one: it only runs the command that it is given
        cls.write("bin/compute-sanitizer", '#!/bin/bash\nwhile [[ $1 == --* ]]; do shift 2; done\necho "it checks $*"\n"$@"\n')

        cls.script = runpy.run_path(cls.files[0])

    @classmethod
    def write(cls, name, text):
        path = os.path.join(cls.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def visit(self, fault, rungs, *options, tools=False):
        """Runs the ladder: returns its exit status, its output and its steps."""
        environment = dict(os.environ, SLUICE_TEST_FAULT=fault, PATH="/usr/bin:/bin")
        if tools:
            environment["PATH"] = os.path.join(self.folder, "bin") + ":/usr/bin:/bin"
        out = tempfile.mkdtemp(dir=self.folder)
        self.out = os.path.join(out, "visit")
        limit = "0.05" if fault else "10"  # what is broken may hang; else ranks wait for each other as long as the machine needs
        if fault != "hang" and "--budget" not in options:
            options = (*options, "--budget", "7200")  # nothing waits: a step may take as long as the machine needs
        command = [sys.executable, os.path.join(self.folder, "run"), "--out", self.out, "--rungs", rungs, *options,
                   "--", "--cases", "1", "--runs", "2", "--timed-runs", "1", "--timeout", limit]
        run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        with open(os.path.join(self.out, "visit.json")) as file:
            steps = json.load(file)["steps"]
        return run.returncode, run.stdout, steps

    def expect(self, fault, rungs, failing, text, **others):
        """The first rung that fails is `failing`, its step says `text`, and the page names the rung."""
        status, output, steps = self.visit(fault, rungs, **others)
        failed = [step for step in steps if step["state"] == "FAILED"]
        self.assertEqual(status, 1, output)
        self.assertEqual(min(step["rung"] for step in failed), failing, output)
        self.assertTrue(any(text in step["text"] for step in failed if step["rung"] == failing), output)
        self.assertIn(f"- Rung {failing} (", output)
        return output, steps

    def test_nothing_fails_where_nothing_is_broken(self):
        status, output, steps = self.visit("", "0,1,2,3,5")
        self.assertEqual([step for step in steps if step["state"] == "FAILED"], [])
        self.assertEqual(status, 0, output)
        self.assertIn("Nothing is wrong", output)
        for rung, least in [(1, 3), (2, 18), (3, 4), (5, 1)]:
            self.assertGreaterEqual(sum(step["rung"] == rung and step["state"] == "ok" for step in steps), least, output)
        with tarfile.open(self.out + ".tar.gz") as archive:
            names = archive.getnames()
        self.assertIn("visit/summary.txt", names)
        self.assertIn("visit/visit.json", names)
        self.assertLess(os.path.getsize(self.out + ".tar.gz"), 16e6)

    def test_rung_0_names_what_the_machine_lacks(self):
        self.expect("driver", "0", 0, "the driver supports CUDA 12.4, expected 13.0 or newer")
        self.expect("kind", "0", 0, "the model has compute capability 8.0, expected 9.0")
        self.expect("memory", "0", 0, "1.0 of 64.0 GiB are free, expected 24 or more")

    def test_rung_0_names_an_archive_of_another_version(self):
        version = os.path.join(self.folder, "VERSION")
        with open(version) as file:
            right = file.read()
        self.write("VERSION", "gpu_check 0.0.1\n")
        try:
            self.expect("", "0", 0, "unpack one archive into an empty folder")
        finally:
            self.write("VERSION", right)

    def test_rung_1_fails_where_shared_memory_begins_elsewhere(self):
        output, steps = self.expect("alignment", "1", 1, "shared memory begins 512 bytes after a multiple of 1024")
        self.assertEqual(sum(step["state"] == "FAILED" for step in steps), 1, output)

    def test_rung_2_says_how_products_are_right(self):
        output, steps = self.expect("majors", "2", 2, "right with majors inverted")
        failed = [step["name"] for step in steps if step["state"] == "FAILED"]
        self.assertIn("products of 64 columns", failed)
        self.assertNotIn("edges of boxes", failed)

    def test_a_probe_that_hangs_or_crashes_is_one_step_and_the_next_ones_run(self):
        for fault, text in [("hang", "it did not end within"), ("crash", "exit status")]:
            began = time.monotonic()
            output, steps = self.expect(fault, "2,8", 2, text, tools=False)
            self.assertEqual([step["name"] for step in steps if step["state"] == "FAILED"], ["phases of a barrier"], output)
            self.assertLess(time.monotonic() - began, 120)

    def test_it_ends_within_its_budget(self):
        began = time.monotonic()
        self.visit("", "1")
        way = time.monotonic() - began  # to the probe that hangs, as far as this machine goes now
        # rung 2 must still have time when it is reached, and loses all of it there
        until_rung_3 = sum(rung.seconds for rung in self.script["RUNGS"][:3]) / self.script["BUDGET"]
        budget = max(12, self.script["PACKING"] + (2 * way + 0.5) / until_rung_3)
        began = time.monotonic()
        status, output, steps = self.visit("hang", "1,2,3,4,5", "--budget", str(budget))
        self.assertLess(time.monotonic() - began, budget + max(2, way), output)
        self.assertEqual(status, 1)
        self.assertIn("phases of a barrier", [step["name"] for step in steps if step["state"] == "FAILED"], output)
        self.assertIn("No time was left for", output)

    def test_rung_3_names_the_first_wrong_element_and_the_sanitizer_runs_that_case(self):
        output, steps = self.expect("kernel", "3,8", 3, "seed ", tools=True)
        failed = [step for step in steps if step["state"] == "FAILED" and step["rung"] == 3]
        self.assertIn("is", failed[0]["text"])
        self.assertIn("expected", failed[0]["text"])
        self.assertTrue(any(step["rung"] == 8 and failed[0]["name"] in step["name"] for step in steps), output)
        log = [name for name in os.listdir(self.out) if "compute_sanitizer" in name]
        with open(os.path.join(self.out, log[0])) as file:
            self.assertIn(f"it checks {self.folder}/gpu_check --probe {failed[0]['name']}", file.read())

    def test_rung_4_fails_where_a_rate_cannot_be_measured(self):
        output, steps = self.expect("signals", "4", 4, "did not end within")
        failed = [step["name"] for step in steps if step["state"] == "FAILED"]
        self.assertEqual(failed, ["from a signal to the end of the next task"], output)
        figures = {step["name"]: step["figures"] for step in steps if step["state"] == "ok"}
        self.assertIn("stage_cycles", figures["rate of gathered rows"])

    def test_rung_5_fails_where_a_layer_is_wrong(self):
        output, _ = self.expect("ranks", "1,5", 5, "differs most")
        self.assertIn("layer2", output)

    def test_rungs_6_to_8_say_why_they_cannot_run_here(self):
        _, output, steps = self.visit("", "6,7,8")
        texts = {step["name"]: (step["state"], step["text"]) for step in steps}
        self.assertEqual(texts["dense"][0], "FAILED", output)
        self.assertIn("device 'cuda'", texts["dense"][1])
        self.assertEqual(texts["products of PyTorch"][0], "not run", output)
        self.assertEqual(texts["ncu"][0], "not run", output)


if __name__ == "__main__":
    Ladder.files = [os.path.abspath(path) for path in sys.argv[1:]]
    unittest.main(argv=sys.argv[:1])
