"""Builds what bench-torch runs."""

import os
import shutil
import subprocess

# What Bazel builds, by the environment variable that can replace it.
NEEDED = {
    "SLUICE_TORCH_LIBRARY": "//ops/torch:libsluice_torch.so",
    "SLUICEC": "//tools:sluicec",
    "SLUICE_LIBRARY": "//runtime/api:libsluice.so",
}


def build_needed():
    """Builds what no environment variable replaces. RuntimeError: it cannot be built."""
    targets = [target for variable, target in NEEDED.items() if not os.environ.get(variable)]
    if not targets:
        return
    bazel = shutil.which("bazel")
    if bazel is None:
        raise RuntimeError(f"bazel, which builds {' '.join(targets)}, is not on the PATH: set {', '.join(NEEDED)}")
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    command = [bazel, "build", "--noshow_progress", "--ui_event_filters=-info", "--show_result=0", *targets]
    if subprocess.run(command, cwd=root, stdout=subprocess.DEVNULL).returncode != 0:
        raise RuntimeError(f"{' '.join(targets)} cannot be built: see bazel's message above")
