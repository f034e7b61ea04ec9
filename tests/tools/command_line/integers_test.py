"""usage: integers_test.py SLUICE SLUICEC   numbers at and beyond the limits of integers, for each flag and part of a flag that takes
one: the tool ends with its own status, in time"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

SLUICE, SLUICEC = (os.path.abspath(tool) for tool in sys.argv[1:3])
GRAPHS = os.path.abspath("graphs/moe_ffn")
VALUES = [str(sign * 2**power + more) for power in (31, 32, 62, 63) for more in (-1, 0) for sign in (1, -1)]
VALUES += ["18446744073709551616", "1e400", "nan"]
SIZES = [f"--set={name}" for name in ("ep=2", "experts=4", "top_k=2", "hidden=64", "intermediate=64", "max_tokens=16")]
COMMANDS = {
    "run": ["run", "s.slp", "--in", "in-{rank}", "--out", "out-{rank}"],
    "make-inputs": ["make-inputs", "s.slp", "--out", "other-{rank}", "--tokens", "8"],
    "check": ["check", "s.slp", "--in", "in-{rank}", "--out", "out-{rank}"],
    "simulate": ["simulate", "s.slp", "--tokens", "8"],
    "dump": ["dump", "s.slp"],
    "explain": ["explain", "s.slp"],
    "report": ["report", "trace.json", "-o", "report.html"],
    "plan": ["plan", "s.slp"],
}
NUMBER = re.compile(r"^ +(?:-\w, ?)?(--[a-z-]+)[ ,].*?\b(?:N|X|INT|UINT|FLOAT|MIB|SECONDS|ROWS|TOKENS|SEED)\b", re.M)
LIMIT = 60  # seconds of a command, most of which take some 20 ms


class Integers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        os.chdir(cls.folder.name)
        for command in (
            [SLUICEC, f"{GRAPHS}/forward.json", *SIZES, "-o", "s.slp"],
            [SLUICE, "make-inputs", "s.slp", "--out", "in-{rank}", "--tokens", "8"],
            [SLUICE, *COMMANDS["run"], "--trace", "trace.json"],
        ):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        os.chdir("/")
        cls.folder.cleanup()

    def end(self, command):
        with self.subTest(command=command[1:]):
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
            self.assertIn(done.returncode, (0, 1, 2), done.stderr)
            self.assertNotIn("terminate called", done.stderr)

    def numbers_of(self, *command):
        said = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
        return sorted(set(NUMBER.findall(said)))

    def test_flags_of_sluice(self):
        found = 0
        for name, arguments in COMMANDS.items():
            for flag in self.numbers_of(SLUICE, name):
                found += 1
                for value in VALUES:
                    self.end([SLUICE, *arguments, flag, value])
        self.assertGreater(found, 10)

    def test_flags_and_sizes_of_sluicec(self):
        for value in VALUES:
            for flag in self.numbers_of(SLUICEC):
                self.end([SLUICEC, f"{GRAPHS}/forward.json", "-o", "other.slp", flag, value])
            for size in ("experts", "hidden", "intermediate", "max_tokens", "top_k", "ep", "tp", "spare"):
                self.end([SLUICEC, f"{GRAPHS}/train.json", "-o", "other.slp", "--set", f"{size}={value}"])

    def test_numbers_within_values(self):
        for value in VALUES:
            for tokens in (value, f"ragged:{value}", f"8,{value}"):
                self.end([SLUICE, "make-inputs", "s.slp", "--out", "other-{rank}", "--tokens", tokens])
                self.end([SLUICE, "simulate", "s.slp", "--tokens", tokens])
            self.end([SLUICE, *COMMANDS["make-inputs"], "--routing", f"zipf:{value}"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
