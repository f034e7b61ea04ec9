"""The loop of tools/lab/soak: cases until the time is over, a line for each anomaly, a table, a last line."""
import argparse
import collections
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

from soak_cases import jobs, long_life_cases, mpi_troubles, troubles
from soak_cases.layers import Layer, Refused
from soak_cases.scene import Scene, new_folder
from soak_cases.verdicts import judge

CASES_OF_LAYER = 10
LONG_LIFE = 0.2  # share of the time


class Tools:
    """Copies of the tools, which a rebuild during the soak does not change, and which other users can read."""

    def __init__(self, root, folder, given):
        self.folder = folder
        source = given or os.path.join(root, "bazel-bin/tools")
        library = [os.path.join(source, "libsluice.so"), os.path.join(source, "../lib/libsluice.so"),
                   os.path.join(source, "../runtime/api/libsluice.so")]
        self.sluice = self._copy(os.path.join(source, "sluice"), "bazel build //tools:all")
        self.sluicec = self._copy(os.path.join(source, "sluicec"), "bazel build //tools:all")
        self.library = self._copy(next(filter(os.path.exists, library), library[-1]),
                                  "bazel build //runtime/api:libsluice.so")
        mpi = os.path.join(source, "sluice-mpi")
        self.has_mpi = os.path.exists(mpi) and shutil.which("mpirun") is not None
        if self.has_mpi:
            self._copy(mpi, "")

    def _copy(self, path, how):
        if not os.path.exists(path):
            sys.exit(f"soak: error: {path} is not there: {how}, or --tools FOLDER")
        copy = os.path.join(self.folder, os.path.basename(path))
        shutil.copy(path, copy)
        os.chmod(copy, 0o755)
        return copy


class Tally:
    """Counts outcomes by trouble."""

    def __init__(self):
        self.rows = collections.OrderedDict()
        self.failed = 0

    def add(self, trouble, outcome, is_good):
        row = self.rows.setdefault(trouble, collections.Counter())
        row[outcome if is_good else "failed"] += 1
        self.failed += not is_good

    def table(self):
        columns = ["right bits", "named error", "mpirun hung", "failed"]
        lines = [f"{'trouble':<18}{'cases':>7}" + "".join(f"{name:>13}" for name in columns)]
        for trouble, row in self.rows.items():
            lines.append(f"{trouble:<18}{sum(row.values()):>7}" + "".join(f"{row[name]:>13}" for name in columns))
        return "\n".join(lines)

    def total(self):
        return sum(sum(row.values()) for row in self.rows.values())


class Soak:
    def __init__(self, options, root, tools, folder):
        self.options, self.root, self.tools, self.folder = options, root, tools, folder
        self.tally = Tally()
        self.layer, self.layer_number, self.layers = None, None, 0
        every = troubles.TROUBLES + (mpi_troubles.TROUBLES if tools.has_mpi else [])
        self.troubles = {each.__name__: each for each in every}
        wanted = options.trouble.split(",") if options.trouble else list(self.troubles)
        for name in wanted:
            if name not in self.troubles:
                sys.exit(f"soak: error: --trouble: found '{name}', expected some of {', '.join(self.troubles)}")
        self.wanted = wanted

    def repeat(self, case):
        more = f" --trouble {self.options.trouble}" if self.options.trouble else ""
        return f"tools/lab/soak --seed {self.options.seed} --ranks {self.options.ranks}{more} --case {case}"

    def fail(self, trouble, case, what, text):
        self.tally.add(trouble, "failed", False)
        print(f"FAILED {trouble}: {text}\n    {what}\n    again: {self.repeat(case)}", flush=True)

    def layer_of(self, case):
        """The layer of this case; None if it could not be made, which counts as a failure."""
        number = case // CASES_OF_LAYER
        if number == self.layer_number:
            return self.layer
        if self.layer:
            shutil.rmtree(self.layer.folder)
        self.layer_number, self.layer = number, None
        rng = random.Random(f"{self.options.seed} layer {number}")
        folder = new_folder(self.folder, "layer")
        os.chmod(folder, 0o755)
        try:
            self.layer = Layer(self.tools, self.root, folder, rng, self.options.ranks)
            self.layers += 1
        except (Refused, subprocess.TimeoutExpired) as error:
            self.fail("layer", case, "a layer, its reference and the check of that", str(error))
            shutil.rmtree(folder)
        return self.layer

    def run(self, case):
        layer = self.layer_of(case)
        if layer is None:
            return
        rng = random.Random(f"{self.options.seed} case {case}")
        trouble = self.troubles[rng.choice(self.wanted)]
        scene = Scene(self.tools, layer, rng, new_folder(self.folder, "case"))
        scene.place_old_outputs()
        before = jobs.shared_memory()
        expected = trouble(scene)
        job = getattr(scene, "verdict_of", None) or scene.jobs[0]
        outcome, wrong = judge(job, layer, scene.outs(), scene.before, expected)
        problems = [wrong] if wrong else []
        left = [pid for each in scene.jobs for pid in each.left()]
        if left:
            problems.append(f"left {len(left)} process(es)")
        if scene.unexpected_files():
            problems.append(f"left files {scene.unexpected_files()}")
        if jobs.shared_memory() - before:
            problems.append(f"left in /dev/shm: {sorted(jobs.shared_memory() - before)}")
        if getattr(scene, "mounted", False):
            subprocess.run(["umount", scene.out_folder], check=True)
        what = f"{layer.description}; {'; '.join(scene.notes)}"
        if problems:
            self.fail(trouble.__name__, case, what, "; ".join(problems))
        else:
            self.tally.add(trouble.__name__, outcome, True)
            if self.options.verbose:
                print(f"{trouble.__name__}: {outcome}: {what}", flush=True)
        shutil.rmtree(scene.folder)


def parse(arguments, doc):
    parser = argparse.ArgumentParser(prog="tools/lab/soak", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0, help="duration (default: 1)")
    parser.add_argument("--seed", type=int, default=1, help="seed of all choices (default: 1)")
    parser.add_argument("--ranks", type=int, default=4, help="maximum ranks of a layer (default: 4)")
    parser.add_argument("--case", type=int, help="run only this case")
    parser.add_argument("--trouble", help="run only these troubles")
    parser.add_argument("--tools", help="folder of sluice, sluicec and libsluice.so (default: bazel-bin)")
    parser.add_argument("--verbose", action="store_true", help="print a line for each case")
    return parser.parse_args(arguments)


def own_state():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def main(arguments, doc, root):
    options = parse(arguments, doc)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        os.chmod(folder, 0o755)
        tool_folder = os.path.join(folder, "tools")
        os.mkdir(tool_folder)
        soak = Soak(options, root, Tools(root, tool_folder, options.tools), folder)
        began, state = time.monotonic(), own_state()
        if options.case is not None:
            soak.run(options.case)
        else:
            case = 0
            while time.monotonic() - began < options.minutes * 60 * (1 - LONG_LIFE):
                soak.run(case)
                case += 1
            seconds = options.minutes * 60 - (time.monotonic() - began)
            long_life_cases.run(soak, max(5.0, seconds))
        if own_state() != state:
            soak.fail("soak", 0, "open files and threads of this process", f"found {own_state()}, expected {state}")
        minutes = (time.monotonic() - began) / 60
    tally = soak.tally
    print(f"seed {options.seed}: {tally.total()} cases of {soak.layers} layers in {minutes:.1f} minutes")
    print(tally.table())
    print(f"{tally.total() - tally.failed} passed, {tally.failed} failed", flush=True)
    return 1 if tally.failed or not tally.total() else 0
