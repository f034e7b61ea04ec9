"""Finds and loads libsluice_torch.so, which registers torch.ops.sluice and torch.classes.sluice."""

import os
import threading
from pathlib import Path

import torch

_guard = threading.Lock()
_loaded: str | None = None


def find() -> str:
    """The path of the library: $SLUICE_TORCH_LIBRARY, next to this package, or in the Bazel tree that contains it."""
    if chosen := os.environ.get("SLUICE_TORCH_LIBRARY"):
        if os.path.isfile(chosen):
            return chosen
        raise RuntimeError(f"SLUICE_TORCH_LIBRARY is {chosen!r}, which is not a file")
    package = Path(__file__).resolve().parents[1]
    places = [package / "lib" / "libsluice_torch.so"]
    if len(package.parents) > 2:
        places.append(package.parents[2] / "bazel-bin" / "ops" / "torch" / "libsluice_torch.so")
    for place in places:
        if place.is_file():
            return str(place)
    looked = ", ".join(str(place) for place in places)
    raise RuntimeError(
        f"libsluice_torch.so was not found (looked at {looked}); build it with "
        "`bazel build //ops/torch:libsluice_torch.so`, or set SLUICE_TORCH_LIBRARY to its path"
    )


def load() -> str:
    """Loads the library once and returns its path. RuntimeError: not found, or built for another PyTorch."""
    global _loaded
    with _guard:
        if _loaded is None:
            path = find()
            try:
                torch.ops.load_library(path)
            except OSError as error:
                raise RuntimeError(f"{path} cannot be loaded by PyTorch {torch.__version__}: {error}") from error
            _loaded = path
    return _loaded
