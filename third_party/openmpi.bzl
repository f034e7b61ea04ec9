"""Open MPI, for ranks on several machines: found where libopenmpi-dev is installed, else left out."""

load("//third_party:without.bzl", "is_wanted")

# Debian's folder of headers and libraries.
_ROOT = "/usr/lib/x86_64-linux-gnu/openmpi"

def _openmpi_impl(ctx):
    found = ctx.path(_ROOT + "/include/mpi.h").exists and is_wanted(ctx, "openmpi")
    if found:
        ctx.symlink(_ROOT + "/include", "include")
    ctx.file("found.bzl", "OPENMPI_FOUND = %s\n" % found)
    ctx.file("BUILD.bazel", """
cc_library(
    name = "openmpi",
    hdrs = glob(["include/**/*.h"]),
    defines = ["OMPI_SKIP_MPICXX"],
    includes = ["include", "include/openmpi"],
    linkopts = %s,
    visibility = ["//visibility:public"],
)
""" % (["-L%s/lib" % _ROOT, "-lmpi"] if found else []))

# Looked for anew by each Bazel server.
find_openmpi = repository_rule(implementation = _openmpi_impl, local = True, environ = ["SLUICE_WITHOUT"])
