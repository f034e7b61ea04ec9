"""PyTorch, for the op in ops/torch: found where libtorch-dev and python3-torch are installed, else left out."""

load("//third_party:without.bzl", "is_wanted")

def _torch_impl(ctx):
    found = ctx.path("/usr/include/torch/library.h").exists and is_wanted(ctx, "torch")
    python = ctx.path("/usr/lib/python3/dist-packages/torch/__init__.py").exists
    ctx.file("found.bzl", "TORCH_FOUND = %s\n" % (found and python))

    # Headers in /usr/include, a compiler built-in directory: the target only names the dependency and its flags.
    ctx.file("BUILD.bazel", """
cc_library(
    name = "torch",
    linkopts = %s,
    visibility = ["//visibility:public"],
)
""" % (["-ltorch", "-ltorch_cpu", "-lc10"] if found else []))

# Looked for anew by each Bazel server.
find_torch = repository_rule(implementation = _torch_impl, local = True, environ = ["SLUICE_WITHOUT"])
