"""The processor of this machine: kernels that it cannot run need not be instrumented by sanitizers."""

def _processor_impl(ctx):
    found = ctx.execute(["grep", "-m1", "^flags", "/proc/cpuinfo"])
    words = found.stdout.split(" ")
    ctx.file("found.bzl", "HAS_AVX512 = %s\nHAS_AMX = %s\n" % ("avx512f" in words, "amx_bf16" in words))
    ctx.file("BUILD.bazel", "")

# Looked for anew by each Bazel server.
find_processor = repository_rule(implementation = _processor_impl, local = True)
