"""The recipes of docs/PYTORCH.md run as they are, and their losses fall."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PAGE = pathlib.Path("docs/PYTORCH.md")  # from the root of the tree, or of the runfiles
TORCHRUN = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--redirects", "1:1", "--tee", "1:1"]


def recipes():
    """The titles of the page's sections that have a program, and their first program."""
    sections = [section.partition("\n") for section in PAGE.read_text().split("\n## ")[1:]]
    programs = [(title, re.search("```python\n(.*?)```", text, re.DOTALL)) for title, _, text in sections]
    return [(title, program[1]) for title, program in programs if program]


class RecipesTest(unittest.TestCase):
    def run_recipe(self, program, ranks=1):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "recipe.py")
            pathlib.Path(path).write_text(program)
            command = [sys.executable, *(TORCHRUN if ranks > 1 else []), path]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        output = re.sub(r"\[default\d\]:", "", ended.stdout)  # torchrun puts it anywhere
        losses = [float(found) for found in re.findall(r"(?m)^(?:\d )?\d+ (\d+\.\d+)$", output)]
        self.assertEqual(len(losses), 20 * ranks, ended.stdout)
        self.assertLess(sum(losses[-ranks:]), 0.99 * sum(losses[:ranks]))

    def test_every_recipe_trains(self):
        found = recipes()
        self.assertEqual([title for title, _ in found], ["A layer of your own", "A model whose blocks are replaced", "Two ranks"])
        for title, program in found:
            with self.subTest(title):
                self.assertLessEqual(program.count("\n"), 20)
                self.run_recipe(program, ranks=2 if title == "Two ranks" else 1)


if __name__ == "__main__":
    unittest.main()
