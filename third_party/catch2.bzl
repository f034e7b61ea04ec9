"""Catch2 under the names of its version 2, which the tests use: Debian 12 has version 2, Debian 13 version 3."""

# The header of version 2 lies in /usr/include, a compiler built-in directory: nothing is left to name.
_V2 = """cc_library(name = "catch2", visibility = ["//visibility:public"])"""

_V3 = """
cc_library(
    name = "catch2",
    hdrs = ["include/catch2/catch.hpp"],
    includes = ["include"],
    linkopts = ["-lCatch2"],
    visibility = ["//visibility:public"],
)
"""

def _catch2_impl(ctx):
    is_v3 = ctx.path("/usr/include/catch2/catch_all.hpp").exists
    if is_v3:
        ctx.symlink(Label("//third_party:catch2_v3.h"), "include/catch2/catch.hpp")
    ctx.file("BUILD.bazel", _V3 if is_v3 else _V2)

# Looked for anew by each Bazel server.
find_catch2 = repository_rule(implementation = _catch2_impl, local = True)
