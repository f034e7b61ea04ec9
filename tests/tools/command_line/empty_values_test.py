"""usage: empty_values_test.py TOOL...   every option of every tool refuses an empty value and names the option"""
import os
import re
import subprocess
import sys
import unittest

TOOLS = sys.argv[1:]
# LLVM brings more than a thousand options; each of these runs takes a while.
MAX_OPTIONS = 30


def run(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=60)


def read_options(text):
    """The options, long and short, that a help text lists."""
    for line in text.splitlines():
        match = re.match(r"\s{1,8}((?:-\w,)?--?[a-zA-Z][\w-]*(?:,--[\w-]+)?)", line)
        if match:
            yield from match.group(1).split(",")


def commands():
    """Each tool, and each of its subcommands."""
    for tool in TOOLS:
        yield [tool]
        text = run(tool, "--help").stdout
        if "Subcommands:" in text:
            for name in re.findall(r"^  ([a-z][\w-]*)  ", text.split("Subcommands:")[1], re.M):
                yield [tool, name]


class EmptyValues(unittest.TestCase):
    def expect_refused(self, command, name):
        result = run(*command)
        self.assertEqual(result.returncode, 2, f"{command}: {result.stderr}")
        self.assertIn(f"{name}: its value is empty", result.stderr, f"{command}")
        self.assertEqual(result.stdout, "", f"{command}")

    def test_every_option_of_every_tool_refuses_an_empty_value(self):
        tried = {}
        for command in commands():
            flags = sorted(set(read_options(run(*command, "--help").stdout)))
            step = max(1, len(flags) // MAX_OPTIONS)
            for turn, flag in enumerate(flags[::step]):
                forms = [[flag, "", "--other", "x"], [f"{flag}="], [flag, ",", "x"]]
                self.expect_refused([*command, "file", *forms[turn % len(forms)]], flag)
            tool = os.path.basename(command[0])
            tried[tool] = tried.get(tool, 0) + len(flags[::step])
        self.assertEqual(len(tried), len(TOOLS))
        for tool, least in {"sluice": 40, "sluice-mpi": 40, "sluice-bench": 15, "sluicec": 15, "sluice-opt": 30}.items():
            self.assertGreaterEqual(tried[tool], least, f"{tool}: {tried}")

    def test_an_empty_positional_argument_is_refused_too(self):
        for command in commands():
            result = run(*command, "")
            self.assertEqual(result.returncode, 2, f"{command}: {result.stderr}")
            self.assertIn(f"argument {len(command)} is empty", result.stderr)

    def test_nothing_is_written_by_a_run_whose_inputs_are_an_unset_variable(self):
        out = os.path.join(os.environ["TEST_TMPDIR"], "out-{rank}")
        self.expect_refused([TOOLS[0], "run", "layer.slp", "--in", "", "--out", out], "--in")
        self.assertEqual(os.listdir(os.environ["TEST_TMPDIR"]), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
