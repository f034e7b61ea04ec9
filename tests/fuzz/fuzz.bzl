"""Fuzz targets: one function that takes any bytes, run by libFuzzer and replayed by a plain test."""

def _options_rule(ctx):
    lines = ["-seed_inputs=" + ",".join([file.path for file in ctx.files.seeds])]
    lines += ["-dict=" + file.path for file in ctx.files.dictionary]
    ctx.actions.write(ctx.outputs.out, "\n".join(lines) + "\n")
    return [DefaultInfo(files = depset([ctx.outputs.out]))]

# Options of libFuzzer for a target, a line each; paths count from the root of the source tree.
_options = rule(
    implementation = _options_rule,
    attrs = {
        "seeds": attr.label_list(allow_files = True),
        "dictionary": attr.label(allow_files = True),
    },
    outputs = {"out": "%{name}.txt"},
)

def fuzz_target(name, deps, seeds = [], dictionary = None, damaged = 100, copts = [], slow_build = False):
    """Makes, of NAME_fuzz.cc, which defines LLVMFuzzerTestOneInput:

      NAME_fuzz         for libFuzzer, --config=fuzz only; tools/lab/fuzz builds and runs it
      NAME_options      its seeds and dictionary, as options of libFuzzer
      NAME_replay_test  feeds every seed, and `damaged` copies of each with random damage; any compiler

    Args:
      name: of the target
      deps: of NAME_fuzz.cc
      seeds: inputs beside those of corpus/NAME: files that the tree has anyway, by label
      dictionary: tokens for libFuzzer, a file in dictionaries/
      damaged: copies of each seed that the replay damages
      copts: of NAME_fuzz.cc
      slow_build: true where it links compiler or kernels: tools/lab/fuzz --quick leaves it out
    """
    seeds = native.glob(["corpus/" + name + "/*"], allow_empty = True) + seeds
    native.cc_library(
        name = name + "_body",
        testonly = True,
        srcs = [name + "_fuzz.cc"],
        copts = copts,
        deps = deps + [":fuzz"],
        alwayslink = True,
    )
    _options(
        name = name + "_options",
        testonly = True,
        dictionary = dictionary,
        seeds = seeds,
    )
    native.cc_binary(
        name = name + "_fuzz",
        testonly = True,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual", "slow_build" if slow_build else "quick_build"],
        deps = [":" + name + "_body"],
    )
    native.cc_test(
        name = name + "_replay_test",
        size = "small",
        args = ["--damaged=%d" % damaged] + ["$(locations %s)" % seed for seed in seeds],
        data = seeds,
        deps = [
            ":" + name + "_body",
            ":replay_main",
        ],
    )
