"""Adds what Bazel builds to the Python package: the op's library, the compiler, the device model of CPUs and graphs.

They are the files $SLUICE_TORCH_LIBRARY, $SLUICEC and $SLUICE, and cpu.json in $SLUICE_TARGETS, if these are set.
Otherwise `bazel build` runs in the tree that contains this folder, which is quick if everything is up to date. The version has the
compiler's and PyTorch's, which the package needs in exactly that version; with $SLUICE_UNTESTED it is one in development (.dev0).
"""

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch
from setuptools import Distribution, find_packages, setup
from setuptools.command.build_py import build_py
from wheel.bdist_wheel import bdist_wheel

HERE = Path(__file__).resolve().parent
TREE = HERE.parents[1]
LIBRARY, COMPILER, TOOL = "//ops/torch:libsluice_torch.so", "//tools:sluicec", "//tools:sluice"
VARIABLES = ("SLUICE_TORCH_LIBRARY", "SLUICEC", "SLUICE", "SLUICE_TARGETS")


@functools.cache
def built_files() -> dict[str, Path]:
    """The files of the package, by their paths in the package."""
    given = [os.environ.get(variable) for variable in VARIABLES]
    if all(given):
        library, compiler, tool, targets = map(Path, given)
    elif (TREE / "WORKSPACE").exists() and shutil.which("bazel"):
        subprocess.run(["bazel", "build", LIBRARY, COMPILER, TOOL], cwd=TREE, check=True)
        said = subprocess.run(["bazel", "info", "bazel-bin"], cwd=TREE, check=True, stdout=subprocess.PIPE, text=True)
        built = Path(said.stdout.strip())
        library = built / "ops/torch/libsluice_torch.so"
        compiler, tool = built / "tools/sluicec", built / "tools/sluice"
        targets = TREE / "targets"
    else:
        raise SystemExit(f"no Bazel tree around {HERE}: set {', '.join(VARIABLES)} to what Bazel has built")
    graphs = [f"graphs/exchange/{name}.json" for name in ("pairs", "ranks")]
    return {
        **{f"bin/{graph}": targets.parent / graph for graph in graphs},
        "lib/libsluice_torch.so": library,
        "bin/sluice": tool,
        "bin/sluicec": compiler,
        "bin/targets/cpu.json": targets / "cpu.json",
    }


def version(torch_version: str) -> str:
    said = subprocess.run([built_files()["bin/sluicec"], "--version"], check=True, stdout=subprocess.PIPE, text=True)
    return said.stdout.split()[1] + (".dev0" if os.environ.get("SLUICE_UNTESTED") else "") + "+torch" + torch_version


class BuildWithTools(build_py):
    def run(self):
        super().run()
        for place, file in built_files().items():
            to = Path(self.build_lib) / "sluice_torch" / place
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, to)
            to.chmod(0o755 if place in ("bin/sluice", "bin/sluicec") else 0o644)

    def get_outputs(self, include_bytecode=1):
        package = os.path.join(self.build_lib, "sluice_torch")
        return super().get_outputs(include_bytecode) + [os.path.join(package, place) for place in built_files()]


class WheelOfPlatform(bdist_wheel):
    """For any Python 3 of this platform: the library depends on PyTorch, but not on Python."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


class PlatformDistribution(Distribution):
    def has_ext_modules(self):
        return True


TORCH = ".".join(torch.__version__.split(".")[:2])

# Nothing is written next to the sources.
scratch = tempfile.mkdtemp(prefix="sluice-torch-")
try:
    setup(
        version=version(TORCH),
        install_requires=[f"torch=={TORCH}.*"],
        packages=find_packages(include=["sluice_torch", "sluice_torch.*"]),
        cmdclass={"build_py": BuildWithTools, "bdist_wheel": WheelOfPlatform},
        distclass=PlatformDistribution,
        options={"build": {"build_base": scratch}, "egg_info": {"egg_base": scratch}},
    )
finally:
    shutil.rmtree(scratch, ignore_errors=True)
