#!/usr/bin/env python3
"""Checks and measures the GPU of this machine with the programs beside it.

Climbs a ladder of rungs, one process per probe and per layer, each under its own time limit. A step that fails or hangs does
not keep later ones from running, and all ends within the budget. Prints a line for each step and, at the end, what to do
next; writes all of it, the figures of each step and the logs to a folder, and packs that into one archive of at most 16 MB.
"""
import argparse
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import typing

HERE = os.path.dirname(os.path.abspath(__file__))
BUDGET = 360  # seconds
PACKING = 4   # of them, for what is left after the last step
MAX_LOG_BYTES = 256 * 1024
MAX_ARCHIVE_BYTES = 16 * 1000 * 1000
NOTHING_TO_RUN = 3  # exit status of torch_products.py
OUT_OF_TIME = "the time of this rung is over"


class Rung(typing.NamedTuple):
    title: str
    seconds: int  # of all its steps, of BUDGET; what a rung leaves is for those after it
    limit: int    # seconds of a step
    advice: str   # if it is the first that fails


RUNGS = [
    Rung("machine", 10, 10, "This machine cannot run the kernel, for the reason above: nothing after it counts."),
    Rung("launch", 15, 10, "Kernels of this size do not run here: until these pass, nothing after them counts. Try a kernel of a few "
                           "lines for sm_90a built with the same nvcc."),
    Rung("hardware", 45, 8, "A fact of the hardware is not what the model says: write it into ops/gpu/hw_ptx.h (a product that is "
                            "right in another encoding) or into ops/gpu/model, and then into the kernel."),
    Rung("kernel", 60, 30, "The hardware is as the model says, but the kernel is wrong on it: begin with the first case that "
                           "fails, by itself (`gpu_check --probe NAME --cases 1 --seed SEED`), and with what compute-sanitizer "
                           "says of it (rung 8)."),
    Rung("rates", 50, 15, "The kernel is right, but these parts of it could not be timed: their logs say why."),
    Rung("layers", 60, 25, "The kernel is right in its cases, but a layer is not: look at what its tables have and no case has "
                           "(runtime/gpu/translate_*.cc)."),
    Rung("bench", 80, 50, "Layers are right, but could not be measured: the log says why."),
    Rung("pytorch", 20, 20, "PyTorch's own products were not measured: nothing of Sluice depends on them."),
    Rung("tools", 20, 20, "The tool of CUDA found errors or could not run: see its log."),
]


class Step(typing.NamedTuple):
    rung: int
    name: str
    state: str  # "ok", "FAILED" or "not run"
    text: str
    seconds: float = 0
    figures: dict = {}


def shorten(path):
    """Leaves the beginning and the end of a log that is too long."""
    size = os.path.getsize(path)
    if size <= MAX_LOG_BYTES:
        return
    with open(path, "rb") as log:
        begin = log.read(MAX_LOG_BYTES // 4)
        log.seek(-MAX_LOG_BYTES * 3 // 4, os.SEEK_END)
        end = log.read()
    with open(path, "wb") as log:
        log.write(begin + b"\n[... %d bytes left out ...]\n" % (size - MAX_LOG_BYTES) + end)


def last_line(path):
    """The last line that a command has printed; the first one of its log is the command."""
    with open(path, errors="replace") as log:
        lines = [line.strip() for line in list(log)[1:] if line.strip()]
    return lines[-1][:500] if lines else "it printed nothing"


def cublas_folders():
    """Folders of PyTorch's own libraries of CUDA, which no cache of the loader knows."""
    folders = []
    for path in sys.path:
        folders += glob.glob(os.path.join(path, "nvidia", "*", "lib"))
    return [folder for folder in folders if glob.glob(os.path.join(folder, "libcublas.so.*"))]


def find_tool(name):
    places = [shutil.which(name), f"/usr/local/cuda/bin/{name}", *sorted(glob.glob(f"/opt/nvidia/*/*/{name}"))]
    return next((place for place in places if place and os.access(place, os.X_OK)), None)


def start(command, log, environment):
    """Starts a process of a group of its own, whose output goes to a file: one that cannot be ended holds up nobody."""
    with open(log, "ab") as output:
        output.write(("$ " + " ".join(command) + "\n").encode())
        output.flush()
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                start_new_session=True, env=environment)


def wait(process, seconds):
    """Returns the exit status, or None after ending a process that lasts too long."""
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=2)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass  # in the driver: it is left behind
    return None


class Visit:
    def __init__(self, options):
        self.folder, self.options = options.out, options
        self.began = time.monotonic()
        self.steps = []
        self.environment = dict(os.environ)
        folders = [os.path.join(HERE, "lib"), *cublas_folders(), os.environ.get("LD_LIBRARY_PATH", "")]
        self.environment["LD_LIBRARY_PATH"] = ":".join(folder for folder in folders if folder)
        self.tool = os.path.join(HERE, "gpu_check")

    def seconds_left(self, rung):
        # without rung 0, which lists the probes, nothing can run: it may take what it needs of any budget
        share = sum(each.seconds for each in RUNGS[:rung + 1]) / BUDGET if rung > 0 else 1
        return self.began + share * (self.options.budget - PACKING) - time.monotonic()

    def add(self, step):
        self.steps.append(step)
        spent = f" ({step.seconds:.1f} s)" if step.seconds else ""
        print(f"{step.state:7} {step.rung} {step.name}{spent}: {step.text}", flush=True)

    def call(self, rung, name, command, limit=None):
        """Runs a command: returns (exit status or None, path of its log, seconds), or None where there is no time for it."""
        grown = max(1, self.options.budget / BUDGET)  # who gives more time has a slower machine
        seconds = min((limit or RUNGS[rung].limit) * grown, self.seconds_left(rung))
        if seconds < 0.5:
            self.add(Step(rung, name, "not run", OUT_OF_TIME))
            return None
        log = os.path.join(self.folder, f"{len(self.steps):02}_{re.sub('[^A-Za-z0-9]+', '_', name)}.log")
        began = time.monotonic()
        try:
            status = wait(start(command, log, self.environment), seconds)
        except OSError as error:
            self.add(Step(rung, name, "FAILED", f"{command[0]}: {error.strerror}"))
            return None
        took = time.monotonic() - began
        shorten(log)
        if status is None:
            self.add(Step(rung, name, "FAILED", f"it did not end within {seconds:.0f} s; before: {last_line(log)}", took))
            return None
        return status, log, took

    def check(self, rung, name, arguments):
        """Runs gpu_check, and adds a step with what its results say."""
        results = os.path.join(self.folder, "results.json")
        if os.path.exists(results):
            os.remove(results)
        command = [self.tool, *arguments, "--device", self.options.device, "--json", results, *self.options.gpu_check_options]
        called = self.call(rung, name, command)
        if called is None:
            return
        status, log, took = called
        try:
            with open(results) as file:
                found = json.load(file)
        except (OSError, ValueError):
            self.add(Step(rung, name, "FAILED", f"exit status {status}: {last_line(log)}", took))
            return
        wrong = [each for each in found if not each["passed"]]
        figures = {key: value for each in found for key, value in each["figures"].items()}
        if wrong or status != 0:
            text = f"{wrong[0]['name']}: {wrong[0]['text']}" if wrong and wrong[0]["name"] != name else \
                wrong[0]["text"] if wrong else f"exit status {status}: {last_line(log)}"
        else:
            text = found[0]["text"] if len(found) == 1 else f"{len(found)} checks passed; {found[-1]['text']}"
        self.add(Step(rung, name, "FAILED" if wrong or status != 0 else "ok", text, took, figures))

    def command(self, rung, name, command, limit=None):
        """Runs a command of which the last line says what it found."""
        called = self.call(rung, name, command, limit)
        if called is not None:
            status, log, took = called
            state = {0: "ok", NOTHING_TO_RUN: "not run"}.get(status, "FAILED")
            self.add(Step(rung, name, state, last_line(log), took))

    def output(self, rung, name, command):
        """What a command prints if it ends well, as a list of lines; else a step says why not."""
        called = self.call(rung, name, command)
        if called is None:
            return []
        status, log, took = called
        with open(log, errors="replace") as file:
            lines = file.read().splitlines()[1:]
        if status != 0:
            self.add(Step(rung, name, "FAILED", f"exit status {status}: {last_line(log)}", took))
            return []
        return lines

    # ---- The rungs.

    def describe_machine(self):
        self.add(Step(0, "libraries", "ok", f"{os.confstr('CS_GNU_LIBC_VERSION')}, Python {sys.version.split()[0]}, cuBLAS of PyTorch: "
                      f"{', '.join(cublas_folders()) or 'none'}"))
        for name, command in [("nvidia-smi", ["nvidia-smi", "--format=csv,noheader", "--query-gpu=name,driver_version,memory.total,"
                                              "clocks.max.sm,power.limit,ecc.mode.current,mig.mode.current"]),
                              ("nvcc", [os.environ.get("NVCC") or "nvcc", "--version"])]:
            tool = find_tool(command[0])
            if tool:
                self.command(0, name, [tool, *command[1:]])
            else:
                self.add(Step(0, name, "not run", f"{command[0]} was not found: " +
                              ("only needed to build here" if name == "nvcc" else "is the driver installed?")))
        found = self.output(0, "gpu_check", [self.tool, "--version"])
        expected = os.path.join(HERE, "VERSION")
        if found and os.path.exists(expected):
            with open(expected) as file:
                lines = file.read().splitlines()
            if lines != found:
                self.add(Step(0, "archive", "FAILED", f"found gpu_check '{'; '.join(found)}' beside programs of '{'; '.join(lines)}': "
                              "unpack one archive into an empty folder"))
        elif not found:
            print("        (does not start? an older glibc, perhaps: build the sources here, docs/GPU.md)")
        return found

    def climb(self):
        probes = []
        if self.describe_machine():
            probes = [line.split(" ", 1) for line in self.output(0, "list of probes", [self.tool, "--list"])]
        for rung, name in probes:
            if int(rung) in self.options.rungs:
                self.check(int(rung), name, ["--probe", name])
        for rung, climb in [(5, self.check_layers), (6, self.measure), (7, self.measure_pytorch), (8, self.look_closer)]:
            if rung in self.options.rungs:
                climb()

    def check_layers(self):
        for layer in sorted(glob.glob(os.path.join(HERE, "*.slp"))):
            name = os.path.splitext(os.path.basename(layer))[0]
            self.check(5, name, [layer, "--no-probes", "--runs", "20", "--timed-runs", "3"])

    def measure(self):
        tool = os.path.join(HERE, "gpu_bench")
        if not os.path.exists(tool):
            self.add(Step(6, "gpu_bench", "not run", "it is not beside this script"))
            return
        for case in ["dense", "f", "n2048", "n1024"]:
            json_file = os.path.join(self.folder, f"bench_{case}.json")
            called = self.call(6, case, [tool, os.path.join(HERE, "bench_programs"), "--device", self.options.device, "--case", case,
                                         "--repeat", "5", "--json", json_file])
            if called is None:
                continue
            status, log, took = called
            figures, text = {}, last_line(log)
            if os.path.exists(json_file):
                figures, text = read_bench(json_file, text)
            self.add(Step(6, case, "ok" if status == 0 else "FAILED", text, took, figures))

    def measure_pytorch(self):
        self.command(7, "products of PyTorch", [sys.executable, os.path.join(HERE, "torch_products.py")])

    def look_closer(self):
        failed = next((step for step in sorted(self.steps, key=lambda step: (step.rung != 3, step.rung))
                       if step.state == "FAILED" and 1 <= step.rung <= 4), None)
        name = "compute-sanitizer" if failed else "ncu"
        tool = find_tool(name)
        if tool is None:
            self.add(Step(8, name, "not run", "it was not found in PATH, in /usr/local/cuda/bin or below /opt/nvidia"))
            return
        if failed:
            seed = re.search(r"\bseed (\d+)", failed.text)
            self.command(8, f"{name}: {failed.name}", [
                tool, "--tool", "memcheck", "--print-limit", "20", self.tool, "--probe", failed.name, "--device",
                self.options.device, "--timeout", "600", "--cases", "1", "--seed", seed.group(1) if seed else "1"])
            return
        self.command(8, f"{name}: n1024", [
            tool, "--clock-control", "none", "-k", "regex:chainKernel", "-c", "1", "--section", "SpeedOfLight", "--section",
            "WarpStateStats", os.path.join(HERE, "gpu_bench"), os.path.join(HERE, "bench_programs"), "--device",
            self.options.device, "--case", "n1024", "--repeat", "1"])

    # ---- What comes back.

    def page(self):
        lines = ["", f"{'rung':12} {'ok':>3} {'FAILED':>6} {'not run':>7}"]
        for number, rung in enumerate(RUNGS):
            states = [step.state for step in self.steps if step.rung == number]
            lines.append(f"{number} {rung.title:10} {states.count('ok'):3} {states.count('FAILED'):6} {states.count('not run'):7}")
        lines += ["", "What to do next:"]
        failed = [step for step in self.steps if step.state == "FAILED"]
        if failed:
            first = min(step.rung for step in failed)
            names = [f"{step.name} ({step.text})" for step in failed if step.rung == first]
            lines += [f"- Rung {first} ({RUNGS[first].title}) fails first: {RUNGS[first].advice}", *(f"  * {name}" for name in names)]
        slow = [f"{step.name}: {step.figures['stage_cycles']:.0f} cycles per stage, expected {step.figures['expected_stage_cycles']:.0f}"
                for step in self.steps if 0 < step.figures.get("expected_stage_cycles", 0) < step.figures.get("stage_cycles", 0)]
        if slow:
            lines += ["- Slower than expected, most first to be changed:", *(f"  * {each}" for each in slow)]
        late = [f"{step.rung} {step.name}" for step in self.steps if step.text == OUT_OF_TIME]
        if late:
            lines += [f"- No time was left for {', '.join(late)}: `run --rungs {','.join(sorted({each[0] for each in late}))}` runs them."]
        if not failed and not slow and not late:
            lines += ["- Nothing is wrong: write the figures into the table of docs/GPU.md, and the next goal is speed (rung 6)."]
        return lines

    def pack(self, lines):
        with open(os.path.join(self.folder, "summary.txt"), "w") as summary:
            summary.writelines(f"{step.state:7} {step.rung} {step.name} ({step.seconds:.1f} s): {step.text}\n" for step in self.steps)
            summary.writelines(line + "\n" for line in lines)
        with open(os.path.join(self.folder, "visit.json"), "w") as file:
            json.dump({"seconds": time.monotonic() - self.began, "steps": [step._asdict() for step in self.steps]}, file, indent=1)
        archive = self.folder.rstrip("/") + ".tar.gz"
        logs = sorted(glob.glob(os.path.join(self.folder, "*.log")), key=os.path.getsize)
        while True:
            with tarfile.open(archive, "w:gz") as tar:
                tar.add(self.folder, arcname=os.path.basename(self.folder.rstrip("/")))
            if os.path.getsize(archive) <= MAX_ARCHIVE_BYTES or not logs:
                return archive
            os.remove(logs.pop())


def read_bench(path, text):
    """The milliseconds of each line of a case, and the same in words."""
    try:
        with open(path) as file:
            case = json.load(file)["cases"][0]
        figures = {}
        for each in case.get("passes", []):
            for line in each["lines"]:
                if line.get("step_seconds"):
                    steps = sorted(line["step_seconds"])
                    figures[f"{each['pass']} {line['what']}"] = 1e3 * steps[len(steps) // 2]
    except (OSError, ValueError, KeyError, IndexError):
        return {}, text
    return figures, ", ".join(f"{what} {ms:.3f} ms" for what, ms in figures.items()) or case.get("error", text)


def parse_arguments():
    def rungs(text):
        numbers = [int(each) for each in text.split(",")]
        if not all(0 <= number < len(RUNGS) for number in numbers):
            raise ValueError
        return numbers

    parser = argparse.ArgumentParser(prog="run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="rungs: " + ", ".join(f"{i} {rung.title}" for i, rung in enumerate(RUNGS)) +
                                     "\n\nexit status: 0 nothing failed, 1 something failed, 2 wrong usage")
    parser.add_argument("--rungs", type=rungs, default=list(range(len(RUNGS))), metavar="N,N", help="only these, and 0 (default: all)")
    parser.add_argument("--budget", type=float, default=BUDGET, metavar="SECONDS", help=f"it ends by then (default: {BUDGET}); with more, each step may take longer, too")
    parser.add_argument("--device", default="cuda", metavar="cuda[:N]", help="the GPU (default: cuda, the first one)")
    parser.add_argument("--out", default="gpu_visit", metavar="FOLDER", help="new folder for results (default: gpu_visit)")
    parser.add_argument("gpu_check_options", nargs="*", metavar="-- OPTION", help="options of gpu_check for each of its calls")
    options = parser.parse_args()
    options.rungs = sorted({0, *options.rungs})
    if options.budget < 10:
        parser.error("--budget: expected 10 seconds or more")
    try:
        os.makedirs(options.out)
    except OSError as error:
        parser.error(f"--out {options.out}: {error.strerror}")
    return options


def main():
    visit = Visit(parse_arguments())
    visit.climb()
    lines = visit.page()
    print("\n".join(lines))
    print(f"\nto bring back: {visit.pack(lines)}")
    return 1 if any(step.state == "FAILED" for step in visit.steps) else 0


if __name__ == "__main__":
    sys.exit(main())
