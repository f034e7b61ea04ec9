"""tools/bench-torch as a user runs it, with a layer of next to no work."""

import json
import os
import subprocess
import sys
import unittest

TINY = ["--tokens", "9", "--hidden", "64", "--intermediate", "32", "--experts", "4", "--top-k", "2", "--threads", "1"]


def run(*arguments):
    here = dict(os.environ, SLUICE_LIBRARY=os.environ.get("SLUICE_LIBRARY") or "runtime/api/libsluice.so")
    command = [sys.executable, "tools/bench-torch", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=here, timeout=240)


class BenchTest(unittest.TestCase):
    def test_json_has_times_memory_differences_and_overhead(self):
        done = run("layer", *TINY, "--repetitions", "1", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        (layer,) = found["layers"]
        self.assertEqual(layer["shape"]["text"], "H64 I32 E4 K2 T9")
        for variant in ("sluice", "eager bf16", "eager fp32"):
            self.assertGreater(layer["times"][variant]["both"]["median"], 0)
            self.assertGreaterEqual(layer["memory"][variant]["peak"], layer["memory"][variant]["before"])
        self.assertLess(layer["differences"]["sluice"], 0.02)
        self.assertLess(layer["differences"]["eager bf16"], 0.03)
        self.assertGreater(found["overhead"]["op"]["median"], 0)
        self.assertIn("reference_blas", found)

    def test_the_table_names_every_variant(self):
        done = run(*TINY, "--repetitions", "1", "--skip", "memory", "--skip", "overhead", "--clock", "cpu")
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("H64 I32 E4 K2 T9", "sluice", "eager bf16", "eager fp32", "processor time", "1.00x"):
            self.assertIn(words, done.stdout)

    def test_wrong_options_are_errors_with_their_values(self):
        for arguments, status, words in (
            (["nothing"], 2, "found command 'nothing', expected layer or train"),
            (["layer", "--tokens", "0"], 2, "found 0, expected a whole number from 1 on"),
            (["layer", "--tokens", "4", "--experts", "4", "--top-k", "5"], 1, "--top-k is 5"),
            (["train", "--out", "/nowhere/loss.png"], 1, "/nowhere/loss.png"),
        ):
            done = run(*arguments)
            self.assertEqual(done.returncode, status, arguments)
            self.assertIn(words, done.stderr)
            self.assertNotIn("Traceback", done.stderr)
        self.assertIn("tools/bench-torch train", run("--help").stdout)


if __name__ == "__main__":
    unittest.main()
