"""cc_library, cc_binary and cc_test whose sources are compiled several at a time.

A file of this project takes some four seconds to compile, three of them for headers and for templates that its neighbours
need too. A unit includes up to _MAX_FILES sources of one library or test: what they share is compiled once, in less than half of
the time. So names without linkage must differ within it, and a source says `using namespace` within its own namespace only.
"""

_MAX_FILES = 8  # an edit compiles all of a unit again

def _write_unit_impl(ctx):
    text = "".join(["#include \"%s\"\n" % source.path for source in ctx.files.srcs])
    ctx.actions.write(ctx.outputs.out, text)

_write_unit = rule(
    implementation = _write_unit_impl,
    attrs = {
        "out": attr.output(),
        "srcs": attr.label_list(allow_files = [".cc"]),
    },
)

def _make_units(name, srcs):
    """Returns (sources to compile, dependencies that they need)."""
    sources = [source for source in srcs if source.endswith(".cc")]
    if len(sources) < 2:
        return srcs, []
    native.cc_library(name = name + ".sources", textual_hdrs = sources, visibility = ["//visibility:private"])
    count = (len(sources) + _MAX_FILES - 1) // _MAX_FILES
    size = (len(sources) + count - 1) // count
    units = []
    for number in range(count):
        unit = "%s.unit%d.cc" % (name, number + 1)
        _write_unit(name = unit + ".text", out = unit, srcs = sources[number * size:(number + 1) * size])
        units.append(unit)
    return [source for source in srcs if source not in sources] + units, [":" + name + ".sources"]

def is_unit(file):
    """Whether a file is the text of a unit, and no source."""
    return not file.is_source and ".unit" in file.basename

def cc_library(name, srcs = [], deps = [], **others):
    srcs, sources = _make_units(name, srcs)
    native.cc_library(name = name, srcs = srcs, deps = deps + sources, **others)

def cc_binary(name, srcs = [], deps = [], **others):
    srcs, sources = _make_units(name, srcs)
    native.cc_binary(name = name, srcs = srcs, deps = deps + sources, **others)

def cc_test(name, srcs = [], deps = [], **others):
    srcs, sources = _make_units(name, srcs)
    native.cc_test(name = name, srcs = srcs, deps = deps + sources, **others)
