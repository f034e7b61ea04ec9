"""gentbl: one genrule running mlir-tblgen per file, and a header-only cc_library of the results."""

_TBLGEN = "/usr/lib/llvm-19/bin/mlir-tblgen -I /usr/lib/llvm-19/include -I ."

def gentbl(name, td, outs, td_deps = [], visibility = None):
    """outs: list of (mlir-tblgen options, output file in this package)."""
    rules = []
    for (options, out) in outs:
        rule = name + "_" + out.replace("/", "_").replace(".", "_")
        native.genrule(
            name = rule,
            srcs = [td] + td_deps,
            outs = [out],
            cmd = _TBLGEN + " " + options + " $(location %s) -o $@" % td,
        )
        rules.append(":" + rule)
    native.cc_library(name = name, textual_hdrs = rules, visibility = visibility)
