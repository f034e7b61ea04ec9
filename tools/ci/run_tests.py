#!/usr/bin/python3
"""Runs the parts of the test suite one after another. The last line is: N passed, N failed.

usage: run_tests.py [--all | --within MINUTES [--began SECONDS] | PART...]    parts: the names in PARTS (default: QUICK)

--within runs the style checks and QUICK, then each other part for which there is time: first the parts that files changed in
the last 20 commits concern. A part of QUICK may take twice that time, and is skipped where even that is too little: a machine
on which all tests take an hour runs no sanitizers, and says so. --began is the time of the start, in seconds since the epoch, if it was before this one.

The counts are the test cases that Catch2 and lit report in the test logs. A target whose log has no such totals, or
that does not build, counts as one.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import typing
import urllib.parse

RUNTIME_TESTS = ["//tests/runtime/...", "//tests/ops/...", "//tests/proof/...", "//tests/fuzz:runtime_replay_tests"]
EXECUTOR_TESTS = ["//tests/runtime/workers/...", "//tests/runtime/exec/...", "//tests/runtime/cpu/...",
                  "//tests/runtime/comm/...", "//tests/runtime/api/..."]
# All of the kernel for GPUs. The `..._race_test`s of the fast part look for races in it, with fewer cases.
KERNEL_TESTS = ["//tests/gpu:kernel_tests", "//tests/runtime/gpu:lost_signal_test"]
# tests that need libraries which a machine may lack
OPTIONAL_TESTS = ["//tests/runtime/comm/mpi/...", "//tests/runtime/comm/ucx/...", "//tests/tools/mpi/...", "//tests/torch/...",
                  "//tests/gpu:ptxas_test"]
WITHOUT = ["--repo_env=SLUICE_WITHOUT=cuda,d3,openmpi,onednn,torch,ucx"]
# What is slow because a model computes it, and shows sanitizers no more than the kernel's own tests do.
NOT_ON_MODEL = ["--test_tag_filters=-on_model", "--build_tag_filters=-on_model"]
# MPI is not instrumented: its programs would be compiled and then skip themselves
THREADS_ONLY = ["--test_tag_filters=-mpi", "--build_tag_filters=-mpi"]
# tests that newer libraries may affect
LIBRARY_TESTS = ["//tests/torch/...", "//tests/runtime/comm/mpi/...", "//tests/runtime/comm/ucx/...", "//tests/tools/mpi/...",
                 "//tests/tools/ranks/...", "//tests/tools/bench/...", "//tests/tools/install/...",
                 "-//tests/torch/models:state_test"]  # minutes of rearranging weights, the same with any library
COMPILER_TESTS = ["//tests/compiler/...", "//tests/layer/..."]
TORCH_TESTS = ["//tests/torch/..."]

# A line for each test that only --all runs: the build, the test, and what in tools/test guards its promise.
ONLY_WITH_ALL = "tests/only_with_all.txt"

# "title: what" of each target and script that failed, with the end of its log; printed before the last line
FAILURES = []
LOG_LINES = 40

# "title: why" of each part that this machine does not permit; also printed before the last line
SKIPPED = []
# exit status of tools/ci/debian in that case
NOT_PERMITTED = 77


def read_left_out(build):
    """The tests of ONLY_WITH_ALL in this build: "fast", "asan" or "tsan"."""
    with open(ONLY_WITH_ALL) as lines:
        rows = [line.split(maxsplit=2) for line in lines if line.strip() and not line.startswith("#")]
    return [test for found, test, _ in rows if found == build]


def without(targets, left_out):
    return [*targets, *("-" + test for test in left_out)]


def note_failure(title, log=""):
    """Keeps a failure for the end of the output, because pages of passed tests follow, and only the end may be kept."""
    FAILURES.append(title + "".join("\n    " + line for line in log.splitlines()[-LOG_LINES:]))


def parse_log(text):
    """The (passed, failed) that a test log reports, or None."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)  # Catch2 3 colours what it writes to the terminals of mpirun
    passed = failed = 0
    found = False
    for match in re.finditer(r"^test cases:\s*(\d+)(.*)$", text, re.M):
        found = True
        for number, word in re.findall(r"(\d+) (passed|failed)", match.group(2)):
            passed += int(number) if word == "passed" else 0
            failed += int(number) if word == "failed" else 0
    for match in re.finditer(r"^All tests passed \(\d+ assertions? in (\d+) test cases?\)", text, re.M):
        found = True
        passed += int(match.group(1))
    totals = re.search(r"^Total Discovered Tests: \d+", text, re.M)
    if totals:
        found = True
        for word, number in re.findall(r"^\s+([A-Z][A-Za-z ]+?)\s*:\s+(\d+) \(", text[totals.end():], re.M):
            if word in ("Passed", "Expectedly Failed"):
                passed += int(number)
            elif word not in ("Unsupported", "Skipped", "Excluded"):
                failed += int(number)
    return (passed, failed) if found else None


def read_events(path):
    """Status and log files of each test target, from Bazel's build event protocol."""
    status, logs = {}, {}
    with open(path, errors="replace") as events:
        for line in events:
            event = json.loads(line)
            kind = event.get("id", {})
            if "testSummary" in kind and "testSummary" in event:
                status[kind["testSummary"]["label"]] = event["testSummary"]["overallStatus"]
            elif "testResult" in kind and "testResult" in event:
                for output in event["testResult"].get("testActionOutput", []):
                    if output["name"] == "test.log":
                        path = urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)
                        logs.setdefault(kind["testResult"]["label"], []).append(path)
    return status, logs


def bazel_test(title, targets, options=(), folder="."):
    """Runs `bazel test`, in the tree of a folder; returns (passed, failed)."""
    started = time.time()
    print(f"== {title}", flush=True)
    handle, events = tempfile.mkstemp(suffix=".json")
    os.close(handle)
    command = ["bazel", "test", "--build_tests_only", "--keep_going", "--color=no", "--curses=no", "--noshow_progress",
               "--build_event_json_file=" + events, *options, "--", *targets]
    code = subprocess.call(command, cwd=folder, stdin=subprocess.DEVNULL)
    status, logs = read_events(events)
    os.unlink(events)
    passed = failed = 0
    for label, result in sorted(status.items()):
        good = result in ("PASSED", "FLAKY")
        counts, log = None, ""
        for path in logs.get(label, [])[-1:]:
            if os.path.exists(path):
                with open(path, errors="replace") as text:
                    log = text.read()
                counts = parse_log(log)
        if counts is None or good != (counts[1] == 0):
            counts = (1, 0) if good else (counts[0] if counts else 0, 1)
        if not good:
            note_failure(f"{title}: {label}: {result}", log)
        passed, failed = passed + counts[0], failed + counts[1]
    if code != 0 and failed == 0:
        failed = 1  # a target did not build, or Bazel itself failed
        note_failure(f"{title}: bazel's exit status is {code}")
    print(f"== {title}: {passed} passed, {failed} failed, {time.time() - started:.0f} s", flush=True)
    return passed, failed


def script(title, command):
    """Runs a command that prints "N passed, N failed" last; returns (passed, failed)."""
    started = time.time()
    print(f"== {title}", flush=True)
    run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    print(run.stdout, end="", flush=True)
    print(f"== {title}: {time.time() - started:.0f} s", flush=True)
    match = re.search(r"^(\d+) passed, (\d+) failed$", run.stdout, re.M)
    counts = (int(match.group(1)), int(match.group(2))) if match else (0, 1)
    if counts[1]:
        note_failure(f"{title}: exit status {run.returncode}", run.stdout)
    return counts


def debian_version():
    with open("/etc/os-release") as release:
        return re.search('VERSION_ID="?([0-9]*)', release.read()).group(1)


def debian13():
    """Runs the tests that newer libraries may affect, in a Debian 13 in a folder."""
    if debian_version() == "13":
        print("== Debian 13\nskipped: this is one", flush=True)
        return 0, 0
    return in_debian("Debian 13", ["--release", "13", "/usr/bin/python3", "tools/ci/run_tests.py", "libraries"])


def release():
    """Installs what tools/release makes on a bare machine, and uses and removes it."""
    with tempfile.TemporaryDirectory(dir=".", prefix="release-") as folder:
        made = subprocess.run(["tools/release", "--untested", "--out", folder], stdout=subprocess.PIPE, text=True)
        print(made.stdout, end="", flush=True)
        if made.returncode != 0:
            note_failure(f"release: exit status {made.returncode}", made.stdout)
            return 0, 1
        return in_debian("release", ["--release", debian_version(), "--bare", "tests/tools/release/installed.sh", folder])


def walkthrough():
    """Applies the change of docs/ADDING_AN_OP.md to a copy of the tree, and runs the tests that the page names."""
    with open("docs/ADDING_AN_OP.md") as page:
        targets = re.search(r"^bazel test (.+)$", page.read(), re.M).group(1).split()
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.call(["tools/ci/walkthrough", folder]) != 0:
            note_failure("walkthrough: the change of docs/ADDING_AN_OP.md does not fit the tree")
            return 0, 1
        counts = bazel_test("the change of docs/ADDING_AN_OP.md", targets, folder=folder)
        subprocess.call(["bazel", "clean", "--expunge"], cwd=folder)
    return counts


def in_debian(title, arguments):
    """Runs tools/ci/debian with a command that prints "N passed, N failed" last; returns (passed, failed)."""
    print(f"== {title}", flush=True)
    command = ["tools/ci/debian", *arguments]
    counts, lines, started = None, [], time.time()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace") as run:
        for line in run.stdout:
            print("  " + line, end="", flush=True)
            lines.append(line.rstrip())
            match = re.match(r"(\d+) passed, (\d+) failed$", line)
            counts = (int(match.group(1)), int(match.group(2))) if match else counts
    print(f"== {title}: {time.time() - started:.0f} s", flush=True)
    if run.returncode == NOT_PERMITTED:
        SKIPPED.append(f"{title}: " + lines[-1].removeprefix("debian: skipped: "))
        return 0, 0
    if run.returncode == 0 and counts:
        return counts
    told = [i for i, line in enumerate(lines) if line.startswith("failed: ")]
    note_failure(f"{title}: exit status {run.returncode}", "\n".join(lines[told[0]:] if told else lines))
    return counts if counts and counts[1] else (0, 1)


ASAN = ["--config=asan", *NOT_ON_MODEL]


def run_left_out():
    """Runs the tests that "fast" leaves out, and builds what no test needs."""
    counts = bazel_test("tests that only --all runs", read_left_out("fast"))
    code = subprocess.call(["bazel", "build", "--color=no", "--curses=no", "--noshow_progress", "//..."])
    if code != 0:
        note_failure(f"all targets: bazel's exit status is {code}")
    return counts[0] + (code == 0), counts[1] + (code != 0)


class Part(typing.NamedTuple):
    run: typing.Callable  # returns (passed, failed)
    minutes: int = 0      # a generous guess for 2 slow cores after the parts before it: without this time left, --within skips it
    concerns: tuple = ()  # files whose changes make it worth running first: how their paths begin


# In the order in which --all runs them.
PARTS = {
    "style": Part(lambda: script("style", ["/usr/bin/python3", "tools/ci/check_style.py"])),
    # before all tests, which build the same files with those libraries: this leaves bazel-bin as users expect it
    "without-libraries": Part(lambda: bazel_test("without optional libraries", OPTIONAL_TESTS, WITHOUT),
                              10, ("third_party/", "runtime/comm/", "ops/torch/")),
    "fast": Part(lambda: bazel_test("all tests", without(["//..."], read_left_out("fast")))),
    "asan": Part(lambda: bazel_test("runtime and ops under ASan+UBSan", without(RUNTIME_TESTS, read_left_out("asan")), ASAN), 45),
    "tsan": Part(lambda: bazel_test("executors under TSan", without(EXECUTOR_TESTS, read_left_out("tsan")),
                                    ["--config=tsan", *THREADS_ONLY]), 20),
    "avx2": Part(lambda: bazel_test("PyTorch with AVX2 and without oneDNN", TORCH_TESTS, ["--config=avx2"]),
                 15, ("ops/", "tests/torch/")),
    "left-out": Part(run_left_out, 25, ("tests/", "tools/lab/soak")),
    "fuzz": Part(lambda: script("fuzzing", ["tools/lab/fuzz", "--minutes", "0.1"]), 20, ("tests/fuzz/",)),
    "debian13": Part(debian13, 40, ("tools/setup", "third_party/")),
    "compiler-asan": Part(lambda: bazel_test("the rest under ASan+UBSan", COMPILER_TESTS + read_left_out("asan"), ASAN),
                          60, ("compiler/", "tools/")),
    # after "fast", which generates headers
    "tidy": Part(lambda: script("clang-tidy", ["tools/ci/tidy", "--all"]), 40),
    "kernel-tsan": Part(lambda: bazel_test("kernel for GPUs under TSan", KERNEL_TESTS + read_left_out("tsan"), ["--config=tsan"]),
                        15, ("ops/gpu/", "runtime/gpu/", "tests/gpu/")),
    "walkthrough": Part(walkthrough, 20, ("docs/ADDING_AN_OP.md",)),
    "cmake": Part(lambda: script("CMake build", ["tools/ci/cmake_build"]), 10, ("tools/cmake/", "ops/gpu/", "runtime/gpu/")),
    "release": Part(release, 10, ("tools/release", "tools/install/", "ops/torch/setup.py", "tests/tools/release/")),
    "libraries": Part(lambda: bazel_test("PyTorch, MPI, oneDNN and what is installed", LIBRARY_TESTS)),
}
QUICK = ("fast", "asan", "tsan")
ONLY_BY_NAME = ("libraries",)  # "debian13" runs it


def order_by_changes(names):
    """The parts that files changed in the last 20 commits concern come first."""
    log = subprocess.run(["git", "log", "-20", "--name-only", "--format="], stdout=subprocess.PIPE, text=True)
    changed = log.stdout.split()
    return sorted(names, key=lambda name: not any(path.startswith(PARTS[name].concerns) for path in changed))


def describe_cpu():
    with open("/proc/cpuinfo") as lines:
        info = dict(re.split(r"\s*: ?", line.rstrip(), 1) for line in lines if ":" in line)
    units = [unit for unit in ("avx2", "avx_vnni", "avx512_bf16", "amx_bf16") if unit in info.get("flags", "").split()]
    return f"{info.get('model name', 'unknown')}, {os.cpu_count()} cores, {' '.join(units) or 'no AVX2'}"


def run_parts(names, began, minutes):
    """Runs the parts, or those for which there is time: returns the sums of (passed, failed) and the seconds of each part."""
    passed = failed = 0
    seconds = {}
    for name in names:
        took = (time.time() - began) / 60
        limit = 2 * minutes if name in QUICK else minutes
        if PARTS[name].minutes and took + PARTS[name].minutes > limit:
            SKIPPED.append(f"{name}: it takes up to {PARTS[name].minutes} minutes, and {took:.0f} of {limit:.0f} are over; "
                           f"tools/ci/run_tests.py {name} runs it alone")
            continue
        started = time.time()
        counts = PARTS[name].run()
        seconds[name] = time.time() - started
        passed, failed = passed + counts[0], failed + counts[1]
    return passed, failed, seconds


def parse_arguments():
    """Returns the names of parts, the time of the start and the minutes within which parts may begin."""
    parser = argparse.ArgumentParser(usage=__doc__[__doc__.index("usage: ") + 7:])
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--within", type=float)
    parser.add_argument("--began", type=float, default=time.time())
    parser.add_argument("parts", nargs="*", metavar="PART")
    given = parser.parse_args()
    unknown = [name for name in given.parts if name not in PARTS]
    if unknown:
        parser.error(f"unknown part '{unknown[0]}', expected some of {', '.join(PARTS)}")
    others = [name for name in PARTS if name not in ("style", *QUICK, *ONLY_BY_NAME)]
    if given.within is not None:
        return ["style", *QUICK, *order_by_changes(others)], given.began, given.within
    names = [name for name in PARTS if name not in ONLY_BY_NAME] if given.all else given.parts or QUICK
    return names, given.began, float("inf")


def note_passed():
    """Notes for tools/release that all tests have passed on this commit."""
    def git(*arguments):
        return subprocess.run(["git", *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    if not git("status", "--porcelain"):
        with open(git("rev-parse", "--git-path", "passed-all"), "a") as file:
            file.write(git("rev-parse", "HEAD") + "\n")


def main():
    names, began, minutes = parse_arguments()
    print(f"CPU: {describe_cpu()}", flush=True)
    passed, failed, seconds = run_parts(names, began, minutes)
    for name, took in seconds.items():
        print(f"{took:6.0f} s  {name}")
    print(f"{time.time() - began:6.0f} s  in all")
    for part in SKIPPED:
        print("not run: " + part)
    for failure in FAILURES:
        print("failed: " + failure)
    if not failed and not SKIPPED and set(names) >= PARTS.keys() - {*ONLY_BY_NAME}:
        note_passed()
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
