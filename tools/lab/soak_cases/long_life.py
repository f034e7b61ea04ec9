#!/usr/bin/python3
"""One long life: makes, uses and frees programs, transports, contexts, steps and refused steps again and again.

usage: long_life.py LIBRARY LAYERS.json SECONDS SEED

LAYERS.json: [{"program", "inputs", "outputs", "ranks", "entries"}, ...]. Prints a line for each anomaly, and one line
of figures at the end. Exit status 0 only without anomalies.
"""
import collections
import ctypes
import json
import os
import random
import struct
import sys
import threading
import time

LAB = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [LAB, os.path.dirname(LAB)]

from bench_torch import c_library  # noqa: E402: found by the paths above
from bench_torch.c_library import ABORTED, ARGUMENT, CANCELLED, FAILED, OK, Bound, Handle, Library  # noqa: E402
from soak_cases import safetensors  # noqa: E402

GROWTH = 8 << 20  # bytes of resident memory: more than the noise of an allocator, less than one leaked layer
SETTLED = 0.4  # share of the time after which all lasting memory has been allocated
PAST_SETS = 1024  # one more than the last saved set
TIMEOUT = 20.0  # seconds of a wait: nothing here takes that long


class Layer:
    """A program's file, and memory for the inputs and outputs of each rank."""

    def __init__(self, about):
        self.program, self.ranks, self.entries = about["program"], about["ranks"], about["entries"]
        self.rows_input = about["rows_input"]
        self.owned = about["owned"]  # outputs in the context's memory, written by the last entry that ran
        with open(self.program, "rb") as file:
            self.bytes = file.read()
        self.inputs, self.outputs, self.expected = [], [], []
        for rank in range(self.ranks):
            inputs, outputs = (safetensors.read(about[kind].replace("{rank}", str(rank))) for kind in ("inputs", "outputs"))
            self.expected.append({name: content for name, (_, _, content) in outputs.items()})
            outputs = {name: tensor for name, tensor in outputs.items() if name not in self.owned}
            starts = {name: inputs[name][2] for name in outputs if name in inputs}
            self.outputs.append({name: Bound(kind, shape, starts.get(name, bytes(len(content))))
                                 for name, (kind, shape, content) in outputs.items()})
            self.inputs.append({name: Bound(*tensor) for name, tensor in inputs.items() if name not in outputs})

    def bad_input(self, rank, value):
        """(name, tensor): the ids of a rank, one of them replaced by an expert that does not exist; without ids, its rows
        without the last one, if the first entry reads them. (None, None) if the rank has neither."""
        name = "expert_ids" if "expert_ids" in self.inputs[rank] else self.rows_input
        if name not in ("expert_ids", "x") or not self.inputs[rank][name].start:
            return None, None
        good = self.inputs[rank][name]
        if name == "expert_ids":
            return name, Bound(good.kind, good.shape, struct.pack("<i", value) + good.start[4:])
        rows, *others = good.shape
        return name, Bound(good.kind, [rows - 1, *others], good.start[:len(good.start) // rows * (rows - 1)])


class Rank(threading.Thread):
    """One rank of a round: a thread that performs the round's acts; `problem` is what went wrong."""

    def __init__(self, life, layer, rank, transport, plan):
        super().__init__()
        self.life, self.layer, self.rank, self.transport, self.plan = life, layer, rank, transport, plan
        self.problem = None
        self.handles = []

    def run(self):
        try:
            if self.transport is None:
                self.transport = self._join()
            self._use()
        except Exception as failure:  # the round must report any exception
            self.problem = f"rank {self.rank}: {failure!r}"
            self.plan.together.abort()
        rng = random.Random(f"{self.plan.seed} {self.rank}")
        rng.shuffle(self.handles)
        for kind, handle in self.handles:
            self.life.library.free(kind, handle)
        if self.transport is not None:
            self.life.library.free("transport", self.transport)

    def _make(self, kind, name, *arguments):
        handle = self.life.library.make(name, *arguments)
        self.handles.append((kind, handle))
        return handle

    def _join(self):
        job = c_library.JobOptions(ctypes.sizeof(c_library.JobOptions), self.plan.job.encode(), self.rank,
                                   self.layer.ranks, TIMEOUT)
        return self.life.library.make("transport_join", ctypes.byref(job))

    def _use(self):
        library, plan = self.life.library, self.plan
        program = self._make("program", "program_load", self.layer.program.encode())
        options = c_library.ContextOptions(size=ctypes.sizeof(c_library.ContextOptions), threads=plan.threads,
                                           executor=plan.executor, timeout_seconds=TIMEOUT)
        if plan.workspace:
            area = c_library.WorkspaceOptions(ctypes.sizeof(c_library.WorkspaceOptions), plan.threads, 1)
            workspace = self._make("workspace", "workspace_create", self.transport, ctypes.byref(area))
            options.workspace = workspace.value
        for _ in range(plan.contexts):
            context = self._make("context", "context_create", program, self.transport, ctypes.byref(options))
            for tensors in (self.layer.inputs[self.rank], self.layer.outputs[self.rank]):
                for name, bound in tensors.items():
                    library.call("context_bind", context, name.encode(), ctypes.byref(bound.view))
            for act in plan.acts:
                getattr(self, "_" + act)(context)

    def _good(self, context):
        """Every entry gives the bits of `sluice run`."""
        for bound in self.layer.outputs[self.rank].values():
            bound.reset()
        for entry in self.layer.entries:
            self.life.library.call("context_run", context, entry.encode(), self.plan.saved)
        self._compare(context)

    def _compare(self, context):
        for name, bound in self.layer.outputs[self.rank].items():
            if bound.content() != self.layer.expected[self.rank][name]:
                self.problem = f"rank {self.rank}: output {name} has other bits"
        if len(self.layer.entries) > 1:
            return
        for name in self.layer.owned:
            view = c_library.Tensor(size=ctypes.sizeof(c_library.Tensor))
            self.life.library.call("context_output", context, name.encode(), ctypes.byref(view))
            expected = self.layer.expected[self.rank][name]
            if expected and ctypes.string_at(view.data, len(expected)) != expected:
                self.problem = f"rank {self.rank}: output {name} of the context has other bits"

    def _refused(self, context):
        """A step that one rank refuses fails at all ranks; no later step fails."""
        library, layer, plan = self.life.library, self.layer, self.plan
        entry, x = layer.entries[0].encode(), layer.inputs[self.rank].get("x")
        name, bad = layer.bad_input(plan.victim, 1 << 20)
        how = plan.refusals.pop(0) if self.rank == plan.victim else ""
        self._together()  # the victim has chosen its way to refuse
        if how == "ids" and bad is None or how == "type" and x is None:
            how = "set"
        if how == "ids":
            library.call("context_bind", context, name.encode(), ctypes.byref(bad.view))
        if how == "type":
            library.status("context_bind", context, b"x", ctypes.byref(x.of_type("I32")))
        if how == "words":
            status = library.status("context_refuse", context, plan.saved, b"there is no batch left") or FAILED
        else:
            asked = b"sideways" if how == "entry" else entry
            status = library.status("context_run", context, asked, PAST_SETS if how == "set" else plan.saved)
        if how == "ids":
            library.call("context_bind", context, name.encode(), ctypes.byref(layer.inputs[self.rank][name].view))
        if how == "type":
            library.call("context_bind", context, b"x", ctypes.byref(x.view))
        if status not in ((FAILED, ARGUMENT) if how else (FAILED,)):
            self.problem = f"rank {self.rank}: a refused step ({how or 'by another rank'}) has status {status}"

    def _submitted(self, context):
        """Submits steps, and waits for them in another order."""
        for bound in self.layer.outputs[self.rank].values():
            bound.reset()
        library = self.life.library
        steps = [library.make("context_submit", context, entry.encode(), self.plan.saved) for entry in self.layer.entries]
        for step in reversed(steps):
            library.call("step_wait", step)
            library.free("step", step)
        self._compare(context)

    def _together(self):
        """Waits for all ranks: ending the transport must not end an earlier step at a slower rank."""
        self.plan.together.wait(TIMEOUT)

    def _cancelled(self, context):
        """Cancels a step in the queue or while it runs: in the second case the ranks cannot continue."""
        library = self.life.library
        self._together()
        step = Handle()
        status = library.status("context_submit", context, self.layer.entries[0].encode(), self.plan.saved, ctypes.byref(step))
        if status == ABORTED and self.rank != self.plan.victim:
            return  # another rank's step was already running, and was cancelled
        if self.rank == self.plan.victim:
            time.sleep(self.plan.moment)
            library.call("step_cancel", step)
        status = library.status("step_wait", step)
        library.free("step", step)
        if status not in (OK, FAILED, ABORTED, CANCELLED):
            self.problem = f"rank {self.rank}: a cancelled step has status {status}"

    def _aborted(self, context):
        """A rank that cannot continue ends the steps of all."""
        library = self.life.library
        self._together()
        if self.rank == self.plan.victim:
            time.sleep(self.plan.moment)
            library.call("transport_abort", self.transport, b"the soak ends this")
            return
        for _ in range(100000):
            status = library.status("context_run", context, self.layer.entries[0].encode(), self.plan.saved)
            if status != OK:
                break
        if status != ABORTED:
            self.problem = f"rank {self.rank}: an aborted step has status {status}, expected {ABORTED}"


class Plan:
    """What all ranks of a round do."""

    def __init__(self, rng, layer, number):
        self.seed = rng.randrange(1 << 60)
        self.kind = rng.choice(["threads", "threads", "shm"])
        self.job = f"soak-{os.getpid()}-{number}"
        self.threads = rng.randint(1, 2)
        self.executor = rng.choice([0, 0, 1])
        self.workspace = rng.random() < 0.5
        self.contexts = rng.choice([1, 1, 2])
        self.saved = rng.choice([0, 0, 1, 3])
        self.victim = rng.randrange(layer.ranks)
        self.moment = rng.uniform(0, 0.004)
        self.together = threading.Barrier(layer.ranks)
        self.refusals = [rng.choice(["ids", "entry", "set", "type", "words"]) for _ in range(100)]
        self.acts = [rng.choice(["good", "good", "submitted", "refused"]) for _ in range(rng.randint(1, 4))] + ["good"]
        # an act that may end the transport comes last, and only once
        last = rng.choice([[], [], ["cancelled"], ["aborted"]])
        if last and self.contexts == 1:
            self.acts += last


class Life:
    def __init__(self, library, layers, seed):
        self.library = Library(library)
        self.layers = [Layer(about) for about in layers]
        self.rng = random.Random(f"{seed} life")
        self.counts = collections.Counter()
        self.problems = 0

    def round(self):
        layer = self.rng.choice(self.layers)
        plan = Plan(self.rng, layer, self.counts["rounds"])
        transports = [None] * layer.ranks
        if plan.kind == "threads":
            handles = (Handle * layer.ranks)()
            self.library.call("transport_threads", layer.ranks, handles)
            transports = [Handle(handle) for handle in handles]
        ranks = [Rank(self, layer, rank, transports[rank], plan) for rank in range(layer.ranks)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        for rank in ranks:
            if rank.problem:
                self.problem(f"{plan.kind}, acts {plan.acts}, victim {plan.victim}: {rank.problem}")
        self.counts.update(["rounds", *plan.acts])

    def damaged(self):
        """A program that is cut or changed must be refused or harmless; null pointers must be errors."""
        layer = self.rng.choice(self.layers)
        content = bytearray(layer.bytes[:self.rng.randrange(len(layer.bytes))])
        for _ in range(self.rng.randint(0, 3) if content else 0):
            content[self.rng.randrange(len(content))] = self.rng.randrange(256)
        program = Handle()
        if self.library.status("program_from_memory", bytes(content), len(content), ctypes.byref(program)) == OK:
            self.library.free("program", program)
        for name in ("context_run", "context_submit"):
            arguments = (None, b"forward", 0) if name == "context_run" else (None, b"forward", 0, ctypes.byref(program))
            if self.library.status(name, *arguments) == OK:
                self.problem(f"{name} of a null context succeeded")
        self.counts["damaged"] += 1

    def problem(self, text):
        self.problems += 1
        print(f"round {self.counts['rounds']}: {text}", flush=True)


def measure():
    """(resident bytes, open files, threads) of this process."""
    with open("/proc/self/statm") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    threads = []
    for _ in range(20):  # a joined thread may still be listed for a moment
        threads.append(len(os.listdir("/proc/self/task")))
        time.sleep(0.002)
    return resident, len(os.listdir("/proc/self/fd")), min(threads)


def main():
    library, layers, seconds, seed = sys.argv[1:]
    with open(layers) as text:
        life = Life(library, json.load(text), seed)
    began, settled = time.monotonic(), None
    while (age := time.monotonic() - began) < float(seconds) and life.problems < 20:
        life.round()
        life.damaged()
        if settled is None and age > SETTLED * float(seconds):
            settled = measure()
    end = measure()
    settled = settled or end
    if end[0] - settled[0] > GROWTH:
        life.problem(f"resident memory grew from {settled[0] >> 20} to {end[0] >> 20} MiB")
    if any(now > then for now, then in zip(end[1:], settled[1:])):
        life.problem(f"open files and threads: found {end[1:]}, expected at most {settled[1:]}")
    counts = ", ".join(f"{count} {name}" for name, count in sorted(life.counts.items()))
    print(f"life: {counts}; resident {settled[0] / 2**20:.1f} then {end[0] / 2**20:.1f} MiB, files {settled[1]} then "
          f"{end[1]}, threads {settled[2]} then {end[2]}", flush=True)
    return 1 if life.problems else 0


if __name__ == "__main__":
    sys.exit(main())
