"""d3 and esbuild, which only the page of `sluice report` uses: found where node-d3 and esbuild are installed, else left out."""

load("//third_party:without.bzl", "is_wanted")

def _d3_impl(ctx):
    installed = ctx.path("/usr/bin/esbuild").exists and ctx.path("/usr/share/nodejs/d3-selection").exists
    ctx.file("found.bzl", "D3_FOUND = %s\n" % (installed and is_wanted(ctx, "d3")))
    ctx.file("BUILD.bazel", "")

# Looked for anew by each Bazel server.
find_d3 = repository_rule(implementation = _d3_impl, local = True, environ = ["SLUICE_WITHOUT"])
