"""A short soak passes, and each kind of wrong outcome is found. usage: soak_test.py SLUICE SLUICEC LIBRARY"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
MINUTES = "0.4"
SEED = "11"
TROUBLES = ("nothing,killed_rank,killed_launcher,told_to_end,stopped_rank,stopped_all,full_disk,small_files,few_threads,few_files,"
            "bad_ids,bad_file,by_hand")

# Replaces `sluice`: the real tool, except that in the runs of cases it does something that the soak must find.
WRAPPER = """#!/bin/bash
case "$1 $PWD" in "run "*/case-*) {deed}; exit;; esac
exec {real} "$@"
"""
DEEDS = {
    "wrong outputs of rank": "{real} \"$@\"; printf x >> \"$PWD/out/out-0\"",
    "wrote to standard error": "{real} \"$@\"; echo warning: odd >&2",
    "changed although the run failed": "{real} \"$@\" > /dev/null; echo sluice: error: waited 1 s for more >&2; exit 1",
    "unexpected message": "echo sluice: error: no reason at all >&2; exit 1",
    "without a message": "exit 1",
    "ended with -11": "kill -SEGV $$",
    "ended with 3": "exit 3",
    "left 1 process": "{real} \"$@\"; (setsid sleep 60 > /dev/null 2>&1 < /dev/null &)",
    "left files": "{real} \"$@\"; touch \"$PWD/out/out-0.tmp-abc\"",
}


def soak(tools, *arguments):
    return subprocess.run(["/usr/bin/python3", os.path.join(ROOT, "tools/lab/soak"), "--tools", tools, "--seed", SEED, *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


class SoakTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        for path in PROGRAMS:
            shutil.copy(path, self.folder)

    def test_a_short_soak_passes(self):
        done = soak(self.folder, "--minutes", MINUTES, "--trouble", TROUBLES)
        self.assertEqual(done.returncode, 0, done.stdout)
        passed = re.search(r"^(\d+) passed, 0 failed$", done.stdout, re.M)
        self.assertTrue(passed and int(passed[1]) > 0, done.stdout)  # how many depends on the machine
        self.assertRegex(done.stdout, r"(?m)^life: .* good, .* refused, .* rounds")

    def test_linear_layers_are_among_them_and_a_missing_row_is_refused(self):
        done = soak(self.folder, "--case", "90", "--trouble", "bad_ids", "--verbose")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"(?m)^bad_ids: named error: row_parallel .*; rank \d lacks a row of x;")

    def test_each_wrong_outcome_is_found_and_can_be_repeated(self):
        real = os.path.join(self.folder, "real-sluice")
        os.rename(os.path.join(self.folder, "sluice"), real)
        for found, deed in DEEDS.items():
            with self.subTest(found):
                path = os.path.join(self.folder, "sluice")
                with open(path, "w") as wrapper:
                    wrapper.write(WRAPPER.format(real=real, deed=deed.format(real=real)))
                os.chmod(path, 0o755)
                done = soak(self.folder, "--case", "3", "--trouble", "nothing")
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertIn(found, done.stdout)
                self.assertIn("again: tools/lab/soak --seed 11 --ranks 4 --trouble nothing --case 3", done.stdout)
                self.assertRegex(done.stdout, r"(?m)^0 passed, 1 failed$")

    def test_a_trouble_that_is_not_there_is_named(self):
        done = soak(self.folder, "--trouble", "rain")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("soak: error: --trouble: found 'rain', expected some of nothing, killed_rank", done.stdout)


if __name__ == "__main__":
    PROGRAMS = sys.argv[1:4]
    unittest.main(argv=sys.argv[:1])
