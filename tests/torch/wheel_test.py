"""The package as users get it: a wheel made without network, installed in a folder, far from the source tree."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

import sluice_torch
import torch

# Runs a layer with only what is installed.
USE = """
import os, sys, torch, sluice_torch
from sluice_torch import cache
from sluice_torch.base import library
here = os.path.dirname(sluice_torch.__file__)
assert os.path.realpath(here).startswith(os.path.realpath(sys.argv[1])), here
assert cache.find_compiler() == os.path.join(here, "bin", "sluicec"), cache.find_compiler()
assert library.load() == os.path.join(here, "lib", "libsluice_torch.so"), library.load()
layer = sluice_torch.MoE(64, 32, 4, 2, steps=sluice_torch.Steps(threads=1))
x = torch.randn(9, 64).bfloat16().requires_grad_()
ids = torch.tensor([[1, 3]] * 9)
layer(x, ids, torch.ones(9, 2)).sum().backward()
assert x.grad.abs().sum() > 0 and layer.down_weight.grad[1].abs().sum() > 0
assert "gmm_weight_grad" in open(layer.report(os.path.join(sys.argv[1], "layer.txt"))).read()
print("ran")
"""


class WheelTest(unittest.TestCase):
    def run_python(self, *arguments, **options):
        done = subprocess.run(
            [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_a_wheel_has_all_that_a_layer_needs(self):
        source = pathlib.Path(sluice_torch.__file__).parent.parent
        with tempfile.TemporaryDirectory() as folder:
            offline = ["--no-index", "--no-deps", "--no-cache-dir", "--disable-pip-version-check"]
            home = dict(os.environ, HOME=folder)
            self.run_python(
                "-m", "pip", "wheel", "--no-build-isolation", *offline, "-w", folder, str(source), env=home, cwd=folder
            )
            (wheel,) = pathlib.Path(folder).glob("*.whl")
            said = subprocess.run([os.environ["SLUICEC"], "--version"], stdout=subprocess.PIPE, text=True, check=True)
            version = said.stdout.split()[1] + "+torch" + ".".join(torch.__version__.split(".")[:2])
            self.assertRegex(wheel.name, rf"^sluice_torch-{re.escape(version)}-py3-none-linux_\w+\.whl$")
            with zipfile.ZipFile(wheel) as archive:
                names = set(archive.namelist())
            modules = [str(path.relative_to(source / "sluice_torch")) for path in (source / "sluice_torch").rglob("*.py")]
            self.assertIn("layers/moe.py", modules)
            for name in (*modules, "lib/libsluice_torch.so", "bin/sluice", "bin/sluicec", "bin/targets/cpu.json", "bin/graphs/exchange/pairs.json"):
                self.assertIn(f"sluice_torch/{name}", names)
            site = os.path.join(folder, "site")
            self.run_python("-m", "pip", "install", *offline, "--target", site, str(wheel), env=home, cwd=folder)
            bare = {"PATH": "/usr/bin:/bin", "HOME": folder, "PYTHONPATH": site}
            self.assertIn("ran", self.run_python("-c", USE, site, env=bare, cwd=folder))
        self.assertEqual([left.name for left in source.glob("*.egg-info")] + [*source.glob("build")], [])


if __name__ == "__main__":
    unittest.main()
