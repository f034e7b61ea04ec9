"""torch_test: a test in Python that uses PyTorch; skipped with a word where PyTorch is not installed."""

load("@torch//:found.bzl", "TORCH_FOUND")

def torch_test(name, src = None, data = [], args = [], size = "medium", tags = [], timeout = None):
    """Runs src, a file of unittest (NAME.py where none is given), with the package sluice_torch, the op and the compiler in its reach.

    Args:
      name: of the test
      src: the file
      data: files that it finds below the current folder
      args: of the file
      size: as of other tests
      tags: likewise
      timeout: likewise
    """
    src = src or name + ".py"
    native.sh_test(
        name = name,
        size = size,
        srcs = ["//tests/torch:with_torch.sh" if TORCH_FOUND else "//tests/torch:skipped.sh"],
        args = ["$(location %s)" % src] + args if TORCH_FOUND else [],
        data = [
            src,
            "//tests/torch:forks.py",
            "//tests/torch:grouped.py",
            "//ops/torch:libsluice_torch.so",
            "//graphs",
            "//ops/torch:sluice_torch",
            "//tests/torch:without_mkldnn/sitecustomize.py",
            "//targets",
            "//tools:sluicec",
        ] + data if TORCH_FOUND else [],
        tags = tags,
        timeout = timeout,
    )

def torch_tests(names, **options):
    """torch_test for each of the names, all with the same options."""
    for name in names:
        torch_test(name = name, **options)
