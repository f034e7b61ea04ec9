"""cuda_object: compiles a .cu file for sm_90a, and keeps what ptxas said about its kernels for tests."""

load("@cuda//:found.bzl", "CUDA_FOUND", "NVCC")

# tools/cmake reads them, too. -fPIC as all else (.bazelrc).
_OPTIONS = [
    "-std=c++20",
    "-O3",
    "-gencode=arch=compute_90a,code=sm_90a",
    "-lineinfo",
    "-Xcompiler=-fPIC",
]

_COMPILE = " ".join([NVCC] + _OPTIONS + ["-Xptxas=-v", "-I.", "-I$(GENDIR)"])

def cuda_object(name, src, hdrs = [], testonly = False, visibility = None):
    """NAME.o and NAME.ptxas.txt of SRC; where there is no nvcc, both are empty lists of files.

    hdrs: all headers of the tree that SRC includes, as files or file groups.
    """
    object = name + ".o"
    words = name + ".ptxas.txt"
    if not CUDA_FOUND:
        for each in [name, object, words]:
            native.filegroup(name = each, testonly = testonly, visibility = visibility)
        return
    native.genrule(
        name = name,
        testonly = testonly,
        srcs = [src] + hdrs,
        outs = [object, words],
        cmd = ("{compile} -c $(location {src}) -o $(location {object}) 2> $(location {words}) || " +
               "{{ cat $(location {words}) >&2; exit 1; }}").format(
            compile = _COMPILE,
            src = src,
            object = object,
            words = words,
        ),
        message = "Compiling for sm_90a",
        visibility = visibility,
    )
