#!/usr/bin/python3
"""Checks what the compiler does not: file length, who includes whom, words of unfinished work, format.

Prints each finding as path:line: message, then "N passed, N failed": one test per rule.
"""
import concurrent.futures
import os
import re
import subprocess
import sys

MOST_LINES = 600

# (start of the path, forbidden include, reason)
FORBIDDEN_INCLUDES = [
    ("runtime/", r"(mlir|llvm|nlohmann|compiler)/", "the runtime includes neither LLVM, JSON nor the compiler"),
    ("ops/(?!torch/)", r"(mlir|llvm|nlohmann|compiler|runtime/(program|exec|comm|cpu|api))/",
     "a kernel sees runtime/base, the kernel ABI and its own folder"),
    ("ops/torch/", r"(mlir|llvm|nlohmann|compiler|runtime/(exec|cpu))/", "the PyTorch op sees runtime/api and what is below"),
    ("runtime/base/", r"runtime/(program|exec|comm|cpu|api)/", "base is below everything"),
    ("runtime/program/", r"runtime/(exec|comm|cpu|api)/", "program is below exec, comm, devices and api"),
    ("runtime/cost/", r"runtime/(exec|comm|cpu|api)/", "cost is below exec, comm, devices and api"),
    ("runtime/comm/", r"runtime/(program|exec|cpu|api)/", "comm is below exec, devices and api"),
    ("runtime/exec/", r"(ops|runtime/(cpu|workers|api))/", "exec is below devices and api, and sees no kernels"),
    ("runtime/cpu/", r"runtime/api/", "devices are below api"),
    ("runtime/sim/", r"(ops|runtime/(cpu|workers|api))/", "the simulator is a device, which sees no kernels"),
    ("runtime/api/", r"ops/", "only devices see kernels"),
    ("compiler/", r"runtime/(exec|comm|cpu|api)/", "the compiler meets the runtime at program, routing, cost and sim"),
    ("compiler/(?!analysis/cost/)", r"runtime/sim/", "only the choice of sizes and order simulates"),
    ("compiler/analysis/", r"(mlir|llvm)/", "analyses are plain values in, plain values out"),
    ("compiler/dialect/", r"compiler/passes/", "dialects know no passes"),
]
LEFT_UNDONE = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def tracked(*patterns):
    output = subprocess.run(["git", "ls-files", "--", *patterns], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [path for path in output.split("\n") if path]


def read(path):
    with open(path, encoding="utf-8") as text:
        return text.read().split("\n")


def too_long(sources):
    for path in sources:
        lines = len(read(path))
        if lines > MOST_LINES:
            yield f"{path}:{lines}: more than {MOST_LINES} lines"


def forbidden_includes(sources):
    for path in sources:
        for folder, pattern, why in FORBIDDEN_INCLUDES:
            if not re.match(folder, path):
                continue
            for number, line in enumerate(read(path), 1):
                if re.match(r'\s*#\s*include\s*[<"]' + pattern, line):
                    yield f"{path}:{number}: {why}"


def left_undone(sources):
    for path in sources:
        for number, line in enumerate(read(path), 1):
            if LEFT_UNDONE.search(line) and not path.endswith("check_style.py"):
                yield f"{path}:{number}: a word of unfinished work"


def unformatted(sources):
    def check(files):
        run = subprocess.run(["clang-format-19", "--dry-run", "--Werror", *files], stderr=subprocess.PIPE, text=True)
        return run.returncode, run.stderr

    count = os.cpu_count() or 1
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        done = list(pool.map(check, [sources[i::count] for i in range(count)]))
    found = sorted({line.split(":")[0] for _, text in done for line in text.splitlines() if ": error: " in line})
    if any(code for code, _ in done) and not found:
        yield "".join(text for _, text in done)
    for path in found:
        yield f"{path}: not formatted: run clang-format-19 -i"


def main():
    code = tracked("*.cc", "*.h")
    everything = code + tracked("*.td", "*.py", "*.sh", "*.bzl", "*.bazel", "*.fbs")
    rules = [
        too_long(everything),
        forbidden_includes(code),
        left_undone(everything),
        unformatted(code),
    ]
    passed = failed = 0
    for rule in rules:
        findings = list(rule)
        for finding in findings:
            print(finding)
        passed, failed = passed + (not findings), failed + bool(findings)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
