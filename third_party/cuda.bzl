"""CUDA, for kernels of GPUs: found where $NVCC or /usr/local/cuda/bin/nvcc can be executed, else left out."""

load("//third_party:without.bzl", "is_wanted")

_DEFAULT = "/usr/local/cuda/bin/nvcc"

# nvcc itself is asked where its libraries are: $NVCC may be a script in another folder that calls it.
def _library(ctx, nvcc):
    words = ctx.execute([nvcc, "--dryrun", "-x", "cu", "-c", "/dev/null", "-o", "dryrun.o"]).stderr
    top = [line[len("#$ TOP="):] for line in words.split("\n") if line.startswith("#$ TOP=")]
    if not top:
        fail("'%s --dryrun' did not say 'TOP=', where CUDA is; it said:\n%s" % (nvcc, words))
    return top[0].replace("/bin/..", "") + "/lib64/libcudart_static.a"

def _cuda_impl(ctx):
    nvcc = ctx.os.environ.get("NVCC", "") or _DEFAULT
    found = is_wanted(ctx, "cuda") and ctx.execute(["test", "-f", nvcc, "-a", "-x", nvcc]).return_code == 0
    ctx.file("found.bzl", "CUDA_FOUND = %s\nNVCC = \"%s\"\nCUDA_LIBRARY = \"%s\"\n" % (
        found,
        nvcc if found else "",
        _library(ctx, nvcc) if found else "",
    ))
    ctx.file("BUILD.bazel", "")

# Looked for anew by each Bazel server.
find_cuda = repository_rule(implementation = _cuda_impl, local = True, environ = ["NVCC", "SLUICE_WITHOUT"])
