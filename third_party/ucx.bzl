"""UCX, for ranks of PyTorch on several machines: its headers, found where libucx-dev is installed, else left out."""

load("//third_party:without.bzl", "is_wanted")

def _ucx_impl(ctx):
    # in /usr/include, a compiler built-in directory: no target names them
    found = ctx.path("/usr/include/ucp/api/ucp.h").exists and is_wanted(ctx, "ucx")
    ctx.file("found.bzl", "UCX_FOUND = %s\n" % found)
    ctx.file("BUILD.bazel", "")

# Looked for anew by each Bazel server.
find_ucx = repository_rule(implementation = _ucx_impl, local = True, environ = ["SLUICE_WITHOUT"])
