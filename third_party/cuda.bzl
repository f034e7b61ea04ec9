"""CUDA, for kernels of GPUs: found where $NVCC or /usr/local/cuda/bin/nvcc can be executed, else left out."""

load("//third_party:without.bzl", "is_wanted")

_DEFAULT = "/usr/local/cuda/bin/nvcc"

def _cuda_impl(ctx):
    nvcc = ctx.os.environ.get("NVCC", "") or _DEFAULT
    found = is_wanted(ctx, "cuda") and ctx.execute(["test", "-f", nvcc, "-a", "-x", nvcc]).return_code == 0
    ctx.file("found.bzl", "CUDA_FOUND = %s\nNVCC = \"%s\"\nCUDA_LIBRARY = \"%s\"\n" % (
        found,
        nvcc if found else "",
        nvcc.replace("bin/nvcc", "lib64/libcudart_static.a") if found else "",
    ))
    ctx.file("BUILD.bazel", "")

# Looked for anew by each Bazel server.
find_cuda = repository_rule(implementation = _cuda_impl, local = True, environ = ["NVCC", "SLUICE_WITHOUT"])
