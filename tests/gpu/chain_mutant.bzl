"""chain_kernel, chain_mutants: the kernel of chained products, as it is and with planted mistakes."""

# g++ does not combine them; without race detection a mutant that needs it is skipped.
_RACE_DETECTION = select({
    "//tests/gpu:address_sanitizer": [],
    "//conditions:default": ["-fsanitize=thread"],
})

def chain_kernel(name, header, deps, race_detection = False):
    """A library that runs the kernel of a header on the model.

    Args:
      name: of the library
      header: path of the header that #include finds
      deps: that have the header
      race_detection: instruments it in every configuration; for chain_kernel_test
    """
    native.cc_library(
        name = name,
        testonly = True,
        srcs = ["chain_kernel.cc"],
        # designated initialisers leave the other fields at their defaults
        copts = ["-Wno-missing-field-initializers"] + (_RACE_DETECTION if race_detection else []),
        local_defines = ["SLUICE_CHAIN_HEADER=\\\"" + header + "\\\""],
        deps = deps + [":chain_kernel_header"],
        # who declares it does not depend on one of the libraries
        alwayslink = True,
    )

def chain_kernel_test(name, kernel, finds, seeds, case = "chain", race_detection = False, tags = []):
    """Runs a chain_kernel with a case per seed.

    Args:
      name: of the test
      kernel: a chain_kernel
      finds: "wrong": passes if something is found wrong in some case, "right": if nothing is
      seeds: number of cases at most
      case: "chain" (chain_case.h, gated_case.h), "weight_grad" or "row_work" (weight_grad_case.h, row_work_case.h)
      race_detection: as that of the kernel
      tags: of the test
    """
    arguments = [finds, str(seeds), case]
    native.cc_test(
        name = name,
        size = "medium",
        args = select({
            "//tests/gpu:address_sanitizer": ["skip"],
            "//conditions:default": arguments,
        }) if race_detection else arguments,
        linkopts = _RACE_DETECTION if race_detection else [],
        tags = tags + (["race_detection"] if race_detection else []),
        deps = [
            kernel,
            ":mutant_main",
        ],
    )

def chain_mutants(names, finds, seeds, case = "chain", race_detection = False):
    """Makes mutant_NAME_test for each name of make_mutant.py.

    Args:
      names: of make_mutant.py
      finds: as in chain_kernel_test
      seeds: as in chain_kernel_test
      case: as in chain_kernel_test
      race_detection: as in chain_kernel_test
    """
    for mistake in names:
        name = "mutant_" + mistake
        header = "mutants/" + mistake + ".h"
        native.genrule(
            name = name,
            testonly = True,
            srcs = ["//ops/gpu:chain_sources"],
            outs = [header],
            cmd = "/usr/bin/python3 $(location make_mutant.py) " + mistake + " $(SRCS) > $@",
            tools = ["make_mutant.py"],
        )
        native.cc_library(
            name = name + "_header",
            testonly = True,
            hdrs = [header],
            deps = ["//ops:activation_point"],
        )
        chain_kernel(
            name = name + "_kernel",
            header = "tests/gpu/" + header,
            race_detection = race_detection,
            deps = [":" + name + "_header"],
        )
        chain_kernel_test(
            name = name + "_test",
            kernel = ":" + name + "_kernel",
            finds = finds,
            seeds = seeds,
            case = case,
            race_detection = race_detection,
            tags = ["mutant"],
        )
