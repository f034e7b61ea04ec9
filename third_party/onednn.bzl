"""oneDNN, which only peers of `sluice bench` use: found where libdnnl-dev is installed, else left out."""

load("//third_party:without.bzl", "is_wanted")

def _onednn_impl(ctx):
    found = ctx.path("/usr/include/oneapi/dnnl/dnnl.hpp").exists and is_wanted(ctx, "onednn")
    ctx.file("found.bzl", "ONEDNN_FOUND = %s\n" % found)
    ctx.file("BUILD.bazel", """
# Headers in /usr/include, a compiler built-in directory: the target only names the dependency and its link flag.
cc_library(name = "onednn", linkopts = %s, visibility = ["//visibility:public"])
""" % (["-ldnnl"] if found else []))

# Looked for anew by each Bazel server.
find_onednn = repository_rule(implementation = _onednn_impl, local = True, environ = ["SLUICE_WITHOUT"])
