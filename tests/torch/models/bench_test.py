"""tools/bench-torch as a user runs it, with a layer that has almost no work."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import forks

TINY = ["--tokens", "9", "--hidden", "64", "--intermediate", "32", "--experts", "4", "--top-k", "2", "--threads", "1"]


def refused(*arguments):
    """The exit status and all output of a command that ends before it measures anything."""
    process = forks.start("tools/bench-torch", arguments)
    said = process.communicate(timeout=240)[0]
    return process.returncode, said


def run(*arguments, **variables):
    here = {name: value for name, value in {**os.environ, **variables}.items() if value is not None}
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
        for words in ("H64 I32 E4 K2 T9", "sluice", "eager bf16", "eager fp32", "processor time", "1.00x", "the faster eager"):
            self.assertIn(words, done.stdout)
        self.assertIn("bench-torch: H64 I32 E4 K2 T9: times of sluice, eager bf16, eager fp32", done.stderr)

    def test_a_variant_that_is_too_slow_is_left_out(self):
        code = "import sys; sys.path[:0] = ['ops/torch', 'tests/torch', 'tools']\n"
        code += "from bench_torch import layers, memory\n"
        code += "if __name__ == '__main__': print(memory.peak_of('eager bf16', layers.Shape(4096, 1024, 1024, 16, 8), 1, 0.2))"
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "slow.py"
            path.write_text(code)
            done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.stdout, "None\n", done.stderr)

    def test_it_builds_what_no_variable_names(self):
        for command, unset, targets in (
            ("layer", ["SLUICE_LIBRARY"], "//runtime/api:libsluice.so"),
            ("train", ["SLUICE_TORCH_LIBRARY", "SLUICEC"], "//ops/torch:libsluice_torch.so //tools:sluicec"),
        ):
            with tempfile.TemporaryDirectory() as folder:
                bazel = pathlib.Path(folder) / "bazel"
                bazel.write_text('#!/bin/sh\necho "$@" >&2\nexit 9\n')
                bazel.chmod(0o755)
                given = {name: None for name in unset} | {"PATH": f"{folder}:{os.environ['PATH']}"}
                done = run(command, "--threads", "1", **given)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, f"build .* {targets}\n")
            self.assertIn(f"error: {targets} cannot be built", done.stderr)
        done = run("layer", PATH="/nowhere", SLUICEC=None)
        self.assertEqual(done.returncode, 1)
        self.assertIn("bazel, which builds //tools:sluicec, is not on the PATH", done.stderr)

    def test_encodings_are_compared(self):
        done = run("encodings", "--steps", "3", "--threads", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("bf16", "mxfp8:32x32,grads=mxfp8e5m2", "\n     3 ", "against bf16"):
            self.assertIn(words, done.stdout)

    def test_loading_takes_the_memory_of_the_layer(self):
        size = ["--experts", "16", "--hidden", "2048", "--intermediate", "1024", "--threads", "1"]
        done = run("load", *size, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        weights = 3 * 16 * 2048 * 1024
        self.assertEqual(found["layer_bytes"], weights // 2 + weights // 32 * 2)
        self.assertTrue(0 < found["file_bytes"] - (weights // 2 + weights // 32 * 2) < 20_000, found)
        for source in ("disk", "page_cache"):
            each = found[source]
            self.assertTrue(all(each[what] > 0 for what in ("read", "new", "again", "memory")))
            peak = (each["peak"] - each["before"]) * 2**20 / found["layer_bytes"]
            self.assertTrue(0.9 < peak < 1.2, peak)  # 1.9 if mapped pages of the file stayed
        with tempfile.TemporaryDirectory() as folder:
            tiny = ["--experts", "2", "--hidden", "64", "--intermediate", "32", "--threads", "1"]
            done = run("load", *tiny, "--folder", folder)
            self.assertEqual((done.returncode, os.listdir(folder)), (0, []), done.stderr)
        for words in ("2 experts, H 64, I 32, groups of 32", "from the page cache", "peak memory / layer"):
            self.assertIn(words, done.stdout)
        for option, value, words in (
            ("experts", "1000000000", "GB free, expected"),
            ("group", "48", "invalid choice"),
            ("hidden", "2000", "--hidden is 2000, expected a multiple of the group, 32"),
        ):
            status, said = refused("load", *size, f"--{option}", value)
            self.assertNotEqual(status, 0)
            self.assertIn(words, said)

    def test_delayed_gradients_are_compared_over_a_slow_network(self):
        sizes = [*TINY[:-2], "--repetitions", "1"]
        done = run("batches", "1gbit", *sizes)
        if "SKIP" in done.stderr:
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\n +1gbit: +[\d.]+ at once, +[\d.]+ delayed, ratio [\d.]+\n$")
        done = run("batches", "7xbit", *sizes)
        self.assertEqual(done.returncode, 1)
        self.assertIn('rate 7xbit: tbf: illegal value for "rate"', done.stderr)

    def test_wrong_options_are_errors_with_their_values(self):
        for arguments, status, words in (
            (["nothing"], 2, "found command 'nothing', expected layer, train, linear, encodings, load, batches"),
            (["layer", "--tokens", "0"], 2, "found 0, expected a whole number from 1 on"),
            (["layer", "--tokens", "4", "--experts", "4", "--top-k", "5"], 1, "--top-k is 5"),
            (["batches", "--experts", "4", "--top-k", "5"], 1, "--top-k is 5"),
            (["train", "--out", "/nowhere/loss.png"], 1, "/nowhere/loss.png"),
        ):
            ended, said = refused(*arguments)
            self.assertEqual(ended, status, arguments)
            self.assertIn(words, said)
            self.assertNotIn("Traceback", said)
        self.assertIn("tools/bench-torch train", run("--help").stdout)


if __name__ == "__main__":
    unittest.main()
