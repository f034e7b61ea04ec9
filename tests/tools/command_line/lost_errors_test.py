"""usage: lost_errors_test.py TOOL...   error messages that cannot be written: each tool ends with the status that it has
otherwise, and no message gets into a file"""
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

TOOLS = {pathlib.Path(tool).name: os.path.abspath(tool) for tool in sys.argv[1:]}
GRAPH = os.path.abspath("graphs/moe_ffn/train.json")
SIZES = [f"--set={name}" for name in ("ep=2", "experts=8", "top_k=2", "hidden=64", "intermediate=48", "max_tokens=64")]
# What fails, as arguments of a tool.
FAILURES = {
    "sluicec": (
        [], ["nonsense"], ["/nonexistent"], ["/"], ["--target=none", "/nonexistent"], ["--target="], ["--unknown"], ["a", "b"],
        ["/dev/null"], ["--emit=nothing", "/dev/null"], ["--set=x", "/dev/null"],
    ),
    "sluice": (
        [], ["nonsense"], ["run"], ["run", "/nonexistent"], ["dump", "/nonexistent"], ["dump", "/dev/null"], ["verify", "/"],
        ["as", "/dev/null"], ["diff", "/dev/null"], ["simulate", "/nonexistent"], ["run", "--threads="], ["--unknown"],
        ["report", "/nonexistent"], ["check", "/nonexistent", "/nonexistent"],
    ),
    "sluice-bench": (["nonsense"], ["--unknown"]),
}  # fmt: skip


def closed():
    os.close(2)


def limited():
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


class LostErrors(unittest.TestCase):
    def status(self, command, stderr=subprocess.PIPE, before=None):
        run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr, preexec_fn=before, timeout=60)
        return run.returncode

    def test_the_status_is_that_of_the_error(self):
        with tempfile.TemporaryDirectory() as folder, open("/dev/full", "w") as full:
            for tool, failures in FAILURES.items():
                for arguments in failures:
                    command = [TOOLS[tool], *arguments]
                    expected = self.status(command)
                    self.assertIn(expected, (1, 2), command)
                    reader, writer = os.pipe()
                    os.close(reader)
                    with open(pathlib.Path(folder) / "errors", "w") as file, os.fdopen(writer, "w") as pipe:
                        ways = {
                            "closed": (None, closed), "full": (full, None), "limited": (file, limited),
                            "a pipe without a reader": (pipe, lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN)),
                        }  # fmt: skip
                        for way, (stderr, before) in ways.items():
                            with self.subTest(command=[tool, *arguments], way=way):
                                self.assertEqual(self.status(command, stderr, before), expected)

    def test_no_message_gets_into_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            made = []
            for before in (None, closed, lambda: os.closerange(0, 3)):
                path = pathlib.Path(folder) / f"{len(made)}.slp"
                command = [TOOLS["sluicec"], GRAPH, *SIZES, "--time", "-o", str(path)]
                self.assertEqual(self.status(command, None if before else subprocess.DEVNULL, before), 0)
                made.append(path.read_bytes())
            self.assertEqual(made[0], made[1])
            self.assertEqual(made[0], made[2])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
