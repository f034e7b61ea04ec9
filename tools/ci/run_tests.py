#!/usr/bin/python3
"""Runs the parts of the test suite one after another. The last line is: N passed, N failed.

usage: run_tests.py [--all] [PART...]    parts: those of PARTS (default: all except those of NOT_BY_DEFAULT)

The counts are the test cases that Catch2 and lit report in the test logs. A target whose log has no such totals, or
that does not build, counts as one.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse

RUNTIME_TESTS = ["//tests/runtime/...", "//tests/ops/...", "//tests/gpu:kernel_tests", "//tests/proof/...",
                 "//tests/tools/evaluate/...",
                 "//tests/testing/moe/...", "//tests/tools/moe/...", "//tests/tools/io/...", "//tests/tools/trace/...",
                 "//tests/tools/launch/...", "//tests/tools/overlap/...", "//tests/fuzz:runtime_replay_tests"]
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
COMPILER_TESTS = ["//tests/compiler/...", "//tests/layer/...", "//tests/tools/..."]

# "title: what" of each target and script that failed, with the end of its log; printed before the last line
FAILURES = []
LOG_LINES = 40

# "title: why" of each part that this machine does not permit; also printed before the last line
SKIPPED = []
# exit status of tools/ci/debian13 in that case
NOT_PERMITTED = 77


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


def bazel_test(title, targets, options=()):
    """Runs `bazel test`; returns (passed, failed)."""
    started = time.time()
    print(f"== {title}", flush=True)
    handle, events = tempfile.mkstemp(suffix=".json")
    os.close(handle)
    command = ["bazel", "test", "--keep_going", "--color=no", "--curses=no", "--noshow_progress",
               "--build_event_json_file=" + events, *options, "--", *targets]
    code = subprocess.call(command, stdin=subprocess.DEVNULL)
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


def debian13():
    """Runs the tests that newer libraries may affect, in a Debian 13 in a folder."""
    print("== Debian 13", flush=True)
    with open("/etc/os-release") as release:
        if 'VERSION_ID="13"' in release.read():
            print("skipped: this is one", flush=True)
            return 0, 0
    command = ["tools/ci/debian13", "/usr/bin/python3", "tools/ci/run_tests.py", "libraries"]
    counts, lines, started = None, [], time.time()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace") as run:
        for line in run.stdout:
            print("  " + line, end="", flush=True)
            lines.append(line.rstrip())
            match = re.match(r"(\d+) passed, (\d+) failed$", line)
            counts = (int(match.group(1)), int(match.group(2))) if match else counts
    print(f"== Debian 13: {time.time() - started:.0f} s", flush=True)
    if run.returncode == NOT_PERMITTED:
        SKIPPED.append("Debian 13: " + lines[-1].removeprefix("debian13: skipped: "))
        return 0, 0
    if run.returncode == 0 and counts:
        return counts
    told = [i for i, line in enumerate(lines) if line.startswith("failed: ")]
    note_failure(f"Debian 13: exit status {run.returncode}", "\n".join(lines[told[0]:] if told else lines))
    return counts if counts and counts[1] else (0, 1)


# Name -> function that runs the part and returns (passed, failed), in the order in which they run.
PARTS = {
    "style": lambda: script("style", ["/usr/bin/python3", "tools/ci/check_style.py"]),
    # before all tests, which build the same files with those libraries: this leaves bazel-bin as users expect it
    "without-libraries": lambda: bazel_test("without optional libraries", OPTIONAL_TESTS, WITHOUT),
    "fast": lambda: bazel_test("all tests", ["//..."]),
    "asan": lambda: bazel_test("runtime and ops under ASan+UBSan", RUNTIME_TESTS, ["--config=asan", *NOT_ON_MODEL]),
    "tsan": lambda: bazel_test("executors under TSan", EXECUTOR_TESTS, ["--config=tsan", *THREADS_ONLY]),
    "fuzz": lambda: script("fuzzing", ["tools/fuzz", "--minutes", "0.1"]),
    "debian13": debian13,
    "compiler-asan": lambda: bazel_test("compiler and tools under ASan+UBSan", COMPILER_TESTS, ["--config=asan", *NOT_ON_MODEL]),
    # after "fast", which generates headers
    "tidy": lambda: script("clang-tidy", ["tools/ci/tidy", "--all"]),
    "kernel-tsan": lambda: bazel_test("kernel for GPUs under TSan", KERNEL_TESTS, ["--config=tsan"]),
    "cmake": lambda: script("CMake build", ["tools/ci/cmake_build"]),
    "libraries": lambda: bazel_test("PyTorch, MPI, oneDNN and what is installed", LIBRARY_TESTS),
}
ONLY_WITH_ALL = ("compiler-asan", "tidy", "kernel-tsan", "cmake")
NOT_BY_DEFAULT = (*ONLY_WITH_ALL, "libraries")
# What runs by default is to end within 50 minutes. So parts that build most of it once more, and come last, are left out
# where the others took longer than this, in seconds, and a line says so.
WITHIN = {"fuzz": 2500, "debian13": 1800}


def run_parts(names, within):
    """Returns the sums of (passed, failed)."""
    started = time.time()
    passed = failed = 0
    for name in names:
        took = time.time() - started
        if took > within.get(name, float("inf")):
            SKIPPED.append(f"{name}: the other parts took {took:.0f} s, expected at most {within[name]}; "
                           f"tools/ci/run_tests.py {name} runs it alone")
            continue
        counts = PARTS[name]()
        passed, failed = passed + counts[0], failed + counts[1]
    return passed, failed


def main():
    wanted = sys.argv[1:] or [name for name in PARTS if name not in NOT_BY_DEFAULT]
    if wanted == ["--all"]:
        wanted = [name for name in PARTS if name not in NOT_BY_DEFAULT or name in ONLY_WITH_ALL]
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        print(f"run_tests: error: unknown part '{unknown[0]}', expected some of {', '.join(PARTS)}", file=sys.stderr)
        return 2
    passed, failed = run_parts(wanted, {} if sys.argv[1:] else WITHIN)
    for part in SKIPPED:
        print("not run: " + part)
    for failure in FAILURES:
        print("failed: " + failure)
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
