"""The kernel of chained products on the model of the hardware, as it is and with mistakes that are chosen when it runs."""

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
      race_detection: instruments it in every configuration
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

def mutant_program(name, race_detection = False):
    """A program with the kernel and all mistakes of mutants.py (mutant_main.cc), for chain_kernel_test.

    Args:
      name: of the program
      race_detection: instruments the kernel in every configuration
    """
    chain_kernel(
        name = name + "_kernel",
        header = "tests/gpu/mutants_chain.h",
        race_detection = race_detection,
        deps = [":mutants_header"],
    )
    native.cc_binary(
        name = name,
        testonly = True,
        linkopts = _RACE_DETECTION if race_detection else [],
        deps = [
            ":" + name + "_kernel",
            ":mutant_main",
        ],
    )

def chain_kernel_test(name, finds, seeds, case = "chain", mistake = "none", race_detection = False, tags = []):
    """Runs the kernel with a case per seed.

    Args:
      name: of the test
      finds: "wrong": passes if something is found wrong in some case, "right": if nothing is
      seeds: number of cases at most
      case: "chain" (chain_case.h, gated_case.h), or what another of the headers of cases is named after
      mistake: of mutants.py, or none
      race_detection: whether ThreadSanitizer looks for races
      tags: of the test
    """
    program = ":race_mutants" if race_detection else ":plain_mutants"
    run = ["$(location " + program + ")"]
    arguments = run + [finds, str(seeds), case, mistake]
    native.sh_test(
        name = name,
        size = "medium",
        srcs = ["run.sh"],
        args = select({
            "//tests/gpu:address_sanitizer": run + ["skip"],
            "//conditions:default": arguments,
        }) if race_detection else arguments,
        data = [program],
        tags = tags + (["race_detection"] if race_detection else []),
    )

def chain_mutants(names, finds, seeds, case = "chain", race_detection = False):
    """Makes CASE_mutant_NAME_test for each name.

    Args:
      names: of mutants.py
      finds: as in chain_kernel_test
      seeds: as in chain_kernel_test
      case: as in chain_kernel_test
      race_detection: as in chain_kernel_test
    """
    for mistake in names:
        chain_kernel_test(
            name = case + "_mutant_" + mistake + "_test",
            finds = finds,
            seeds = seeds,
            case = case,
            mistake = mistake,
            race_detection = race_detection,
            tags = ["mutant"],
        )
