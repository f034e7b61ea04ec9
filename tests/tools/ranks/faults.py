#!/usr/bin/python3
"""Ranks that die, stop, fail or differ: every other rank must end in time and name that rank, and nothing may be left.

usage: faults.py SCENARIO LAYER INPUTS FOLDER   LAYER: a program of 4 ranks; INPUTS: its files, with {rank}
"""
import os
import random
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time

import processes
from processes import Process, await_true

RANKS = 4
KILLS = 20
NOTICED = 2.0  # seconds until survivors of a death must have ended in most rounds; or as long as the ranks took to start
LATEST = 15.0  # in every round: still less than any limit of a wait
FOREVER = ["--repeat", "1000000"]


class Scene:
    def __init__(self, layer, inputs, folder):
        self.layer, self.inputs, self.folder = layer, inputs, folder
        os.makedirs(folder, exist_ok=True)
        self.shared_memory = self.in_shared_memory()
        self.jobs = 0
        self.started = []

    @staticmethod
    def in_shared_memory():
        return sorted(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else []

    def command(self, *more, layer=None):
        return ["sluice", "run", layer or self.layer, "--in", self.inputs, "--out", self.folder + "/out-{rank}",
                "--transport", "shm", "--threads", "1", *more]

    def start(self, command, variables):
        self.started.append(Process(command, variables))
        return self.started[-1]

    def start_ranks(self, *more, commands=None):
        """Starts all ranks by hand, each with its own command if `commands` has one."""
        self.jobs += 1
        job = f"faults-{secrets.token_hex(8)}-{self.jobs}"
        return [self.start((commands or {}).get(rank) or self.command(*more), processes.by_hand(job, rank, RANKS))
                for rank in range(RANKS)]

    def check_nothing_left(self, files=()):
        assert sorted(os.listdir(self.folder)) == sorted(files), os.listdir(self.folder)
        left = set(self.in_shared_memory()) - set(self.shared_memory)
        assert not [name for name in left if "sluice" in name], left

    def end(self):
        for process in self.started:
            process.end()
        shutil.rmtree(self.folder, ignore_errors=True)


def await_steps(ranks, seconds=0.2):
    """Waits until every rank has used more time than loading takes: then they are in their steps, which do not end."""
    for rank in ranks:
        await_true(lambda: (processes.processor_seconds(rank.pid) or 0) >= seconds or rank.process.poll() is not None,
                   60, "the steps of a rank")
        assert rank.process.poll() is None, rank.text()


def await_failures(ranks, seconds):
    """All must end with status 1 within the time; returns their messages."""
    deadline = time.monotonic() + seconds
    texts = []
    for number, rank in ranks:
        status = rank.wait(deadline - time.monotonic())
        assert status is not None, f"rank {number} did not end within {seconds:g} s"
        assert status == 1, f"rank {number} ended with {status}: {rank.text()}"
        texts.append(rank.text())
    return texts


def killed(scene):
    """kill -9 of a rank at random moments of a step: the others report which rank died and what they waited for."""
    random.seed(4)
    waiting = running = 0
    times, starts = [], []
    for kill in range(KILLS):
        began = time.monotonic()
        ranks = scene.start_ranks(*FOREVER)
        await_steps(ranks)
        starts.append(time.monotonic() - began)
        time.sleep(random.uniform(0, 0.02))
        victim = kill % RANKS
        ranks[victim].signal(signal.SIGKILL)
        survivors = [(number, rank) for number, rank in enumerate(ranks) if number != victim]
        began = time.monotonic()
        texts = await_failures(survivors, LATEST)
        times.append(time.monotonic() - began)
        for text in texts:
            said = re.fullmatch(r"sluice: error: rank (\d) \(process (\d+)\) has died(; rank \d(?:, core \d)?(?: "
                                r"was running entry '\w+'|(:? was waiting for) .*))?\n", text)
            assert said and (int(said[1]), int(said[2])) == (victim, ranks[victim].pid), text
            # a rank that computes, or is between two steps, when it notices the death waits for nothing
            running += said[4] is None
            waiting += said[4] is not None
        scene.check_nothing_left()
    print(f"{KILLS} kills: {waiting} survivors were waiting for the dead rank or for what it held up, {running} were not")
    assert waiting > running
    assert sorted(times)[KILLS // 2] < max(NOTICED, sorted(starts)[KILLS // 2]), (times, starts)


def killed_early(scene):
    """kill -9 of a rank that the launcher started, possibly at its start."""
    random.seed(5)
    for kill in range(8):
        launcher = scene.start(scene.command(*FOREVER), {})
        await_true(lambda: len(processes.children_of(launcher.pid)) == RANKS, 60, "the ranks of the launcher")
        time.sleep(random.uniform(0, 0.2))
        ranks = processes.children_of(launcher.pid)
        victim = kill % RANKS
        os.kill(ranks[victim], signal.SIGKILL)
        status = launcher.wait(10)
        assert status == 1, (status, launcher.text())
        assert f"sluice: error: rank {victim} was killed by signal 9" in launcher.text(), launcher.text()
        assert not any(processes.is_alive(pid) for pid in ranks.values())
        scene.check_nothing_left()


def launcher_killed(scene):
    """However the launcher ends, its ranks end."""
    for number, expected in ((signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 143)):
        launcher = scene.start(scene.command(*FOREVER), {})
        await_true(lambda: len(processes.children_of(launcher.pid)) == RANKS, 60, "the ranks of the launcher")
        ranks = processes.children_of(launcher.pid)
        await_true(lambda: all((processes.processor_seconds(pid) or 0) > 0.1 for pid in ranks.values()), 60, "steps")
        launcher.signal(number)
        assert launcher.wait(10) == expected, launcher.text()
        await_true(lambda: not any(processes.is_alive(pid) for pid in ranks.values()), 2, "the ranks to end")
        scene.check_nothing_left()


def stopped(scene):
    """A stopped rank is not dead: the others report it at their limit; its later actions do no harm."""
    ranks = scene.start_ranks(*FOREVER, "--timeout", "2")
    await_steps(ranks)
    ranks[2].signal(signal.SIGSTOP)
    survivors = [(number, rank) for number, rank in enumerate(ranks) if number != 2]
    texts = await_failures(survivors, 2 + LATEST)
    for text in texts:
        assert re.search(r"waited 2 s for .*; rank 2 is stopped", text), texts
    ranks[2].signal(signal.SIGCONT)
    assert await_failures([(2, ranks[2])], LATEST)
    scene.check_nothing_left()


def stopped_launched(scene):
    """The launcher ends a stopped rank when the others have reported it."""
    launcher = scene.start(scene.command(*FOREVER, "--timeout", "1"), {})
    await_true(lambda: len(processes.children_of(launcher.pid)) == RANKS, 60, "the ranks of the launcher")
    ranks = processes.children_of(launcher.pid)
    await_true(lambda: all((processes.processor_seconds(pid) or 0) > 0.2 for pid in ranks.values()), 60, "steps")
    os.kill(ranks[1], signal.SIGSTOP)
    assert launcher.wait(15) == 1, launcher.text()
    assert re.search(r"waited 1 s for .*; rank 1 is stopped", launcher.text()), launcher.text()
    assert "rank 1 did not end within 3 s after rank" in launcher.text(), launcher.text()
    assert not any(processes.is_alive(pid) for pid in ranks.values())
    scene.check_nothing_left()


def hang_traces(scene):
    """Ranks that wait for a stopped or dead one write what they did until then, and a report reads it as one run."""
    files = scene.folder + "/hang-{rank}.json"
    for number, why in ((signal.SIGSTOP, r"waited 1 s for .*rank 2 is stopped"), (signal.SIGKILL, "rank 2 .* has died")):
        ranks = scene.start_ranks(*FOREVER, "--timeout", "1", "--on-hang", f"trace={files}")
        await_steps(ranks)
        ranks[2].signal(number)
        survivors = [(rank, ranks[rank]) for rank in (0, 1, 3)]
        for (rank, _), text in zip(survivors, await_failures(survivors, LATEST)):
            assert f"what rank {rank} did until then is in {files.replace('{rank}', str(rank))}" in text, text
        names = [f"hang-{rank}.json" for rank in (0, 1, 3)]
        scene.check_nothing_left(names)
        report = subprocess.run(["sluice", "report", files, "--format", "text"], capture_output=True, text=True)
        assert report.returncode == 0, report.stderr
        assert re.search(why, report.stdout), report.stdout
        assert "no trace of rank 2" in report.stdout, report.stdout
        for rank in (0, 1, 3):
            assert re.search(fr"failed .*rank {rank} in step \d+ \((forward|backward)\)", report.stdout), report.stdout
        # the next run does not mix its files with those of this one
        ranks[2].end()
        scene.start(scene.command("--on-hang", f"trace={files}"), {}).wait(60)
        outputs = [f"out-{rank}" for rank in range(RANKS)]
        scene.check_nothing_left(outputs)
        for name in outputs:
            os.unlink(f"{scene.folder}/{name}")


def all_stopped(scene):
    """If all ranks are stopped, none can report it: the launcher does, and ends them."""
    launcher = scene.start(scene.command(*FOREVER, "--timeout", "1"), {})
    await_true(lambda: len(processes.children_of(launcher.pid)) == RANKS, 60, "the ranks of the launcher")
    ranks = processes.children_of(launcher.pid)
    await_true(lambda: all((processes.processor_seconds(pid) or 0) > 0.2 for pid in ranks.values()), 60, "steps")
    for pid in ranks.values():
        os.kill(pid, signal.SIGSTOP)
    assert launcher.wait(15) == 1, launcher.text()
    expected = "sluice: error: waited 1 s for ranks that are all stopped: " + ", ".join(
        f"rank {rank} (SIGSTOP)" for rank in range(RANKS))
    assert expected in launcher.text(), launcher.text()
    assert not any(processes.is_alive(pid) for pid in ranks.values())
    scene.check_nothing_left()


def unreadable(scene):
    """One rank cannot read its inputs: all ranks end at once, and all messages name it."""
    bad = scene.command()
    bad[bad.index("--in") + 1] = scene.folder + "/none-{rank}"
    for text in await_failures(enumerate(scene.start_ranks(commands={2: bad})), 30):
        assert re.search(r"sluice: error: rank 2: .*none-2: cannot read: No such file", text), text
    scene.check_nothing_left()


def full(scene):
    """One rank cannot write its outputs when they are computed: no rank writes any."""
    limited = ["/bin/bash", "-c", "trap '' XFSZ; ulimit -f 4; exec \"$@\"", "bash", *scene.command()]
    for text in await_failures(enumerate(scene.start_ranks(commands={2: limited})), 30):
        assert re.search(r"sluice: error: rank 2: .*out-2: cannot write: File too large", text), text
    scene.check_nothing_left()


def different(scene):
    """Ranks with different arguments report that."""
    other = scene.folder + "/other.slp"
    cases = [
        ({1: scene.command("--entry", "forward")}, "rank 1 runs entries forward, but rank 0 runs entries forward, backward"),
        ({3: scene.command("--repeat", "3")}, "rank 3 runs 3 repetitions, but rank 0 runs 1 repetitions"),
        ({0: scene.command("--trace", scene.folder + "/t.json")}, "rank 1 runs without a trace, but rank 0 runs with a trace"),
    ]
    for commands, expected in cases:
        for text in await_failures(enumerate(scene.start_ranks(commands=commands)), 30):
            assert expected in text, text
        scene.check_nothing_left()
    # the same layer with a text in it that is another
    with open(scene.layer, "rb") as file:
        content = file.read()
    shutil.copy(scene.layer, other)
    os.system(f"sluice dump {scene.layer} --format text > {other}.text")
    with open(other + ".text") as text:
        changed = re.sub(r"max_tokens \d+", "max_tokens 96", text.read())
    with open(other + ".text", "w") as text:
        text.write(changed)
    assert os.system(f"sluice as {other}.text -o {other}") == 0
    with open(other, "rb") as file:
        assert file.read() != content
    os.unlink(other + ".text")
    for text in await_failures(enumerate(scene.start_ranks(commands={2: scene.command(layer=other)})), 30):
        assert re.search(r"rank 2 .*rank [0-9]|rank [0-9] .*rank 2", text), text
    scene.check_nothing_left(["other.slp"])


def together(scene):
    """Two jobs of one user at the same time do not meet."""
    first = scene.start(scene.command("--repeat", "50"), {})
    more = scene.command("--repeat", "50")
    more[more.index("--out") + 1] = scene.folder + "/more-{rank}"
    second = scene.start(more, {})
    assert first.wait(60) == 0, first.text()
    assert second.wait(60) == 0, second.text()
    for rank in range(RANKS):
        with open(f"{scene.folder}/out-{rank}", "rb") as one, open(f"{scene.folder}/more-{rank}", "rb") as other:
            assert one.read() == other.read()
    scene.check_nothing_left([f"{name}-{rank}" for name in ("out", "more") for rank in range(RANKS)])


def main():
    name, layer, inputs, folder = sys.argv[1:]
    scene = Scene(layer, inputs, folder)
    try:
        globals()[name](scene)
    finally:
        scene.end()


if __name__ == "__main__":
    main()
