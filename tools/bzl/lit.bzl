"""lit_tests: one sh_test per file, run by LLVM's lit with FileCheck."""

def lit_tests(name, srcs, tools, data = [], size = "small"):
    tests = []
    for src in srcs:
        test = src + ".test"
        native.sh_test(
            name = test,
            size = size,
            srcs = ["//tools/bzl:lit_runner.sh"],
            args = ["$(location %s)" % src],
            data = [src, "//tests:lit.cfg.py"] + tools + data,
            tags = ["lit"],
        )
        tests.append(test)
    native.test_suite(name = name, tests = tests)
