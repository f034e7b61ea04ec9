"""The faults that a run may meet. Each starts jobs in a scene, disturbs them, waits, and returns the allowed
outcomes."""
import os
import resource
import signal
import subprocess
import time

import processes
from soak_cases.jobs import NOBODY, can_be_nobody, send
from soak_cases.safetensors import drop_row, overwrite_int32
from soak_cases.scene import LIMIT
from soak_cases.verdicts import Expected

LOST = ("killed", "died", "waited", "left", "late")  # how the other ranks of a lost rank end
FOREVER = ["--repeat", "1000000"]


def _moment(scene, steps=1.5):
    """(options, seconds): a moment of an endless run, or of a whole short run from load to rename."""
    if scene.rng.random() < 0.5:
        return FOREVER, scene.rng.uniform(0, steps)
    return [], scene.rng.uniform(0, scene.layer.seconds * 1.3)


def sleep_while(job, seconds):
    deadline = time.monotonic() + seconds
    while job.runs() and time.monotonic() < deadline:
        time.sleep(0.001)


def nothing(scene):
    """No fault: the right bits, whatever the options."""
    scene.run(repeats=[1, 1, 2, 5])
    return Expected()


def killed_rank(scene):
    """kill -9 of one rank, or of two, at any moment."""
    more, moment = _moment(scene)
    job = scene.start(scene.command("shm", *more, timeout=5))
    ranks = job.await_ranks(scene.layer.ranks)
    victims = scene.rng.sample(range(scene.layer.ranks), min(scene.layer.ranks, scene.rng.choice([1, 1, 2])))
    scene.note(f"kill -9 of ranks {victims} after {moment:.3f} s")
    sleep_while(job, moment)
    for victim in victims:
        if victim in ranks and job.runs():
            send(ranks[victim], signal.SIGKILL)
        time.sleep(scene.rng.choice([0, 0.001, 0.01]))
    job.wait(LIMIT)
    return Expected(*LOST, torn=True)


def _signal_launcher(scene, *numbers):
    more, moment = _moment(scene)
    job = scene.start(scene.command(scene.local_transport(), *more, timeout=5))
    number = scene.rng.choice(numbers)
    scene.note(f"{number.name} of the launcher after {moment:.3f} s")
    sleep_while(job, moment)
    send(job.pid, number)
    job.wait(LIMIT)
    handled = () if number == signal.SIGKILL else (128 + number,)
    return Expected(*LOST, statuses=(*handled, -number), torn=True, silent=True)


def killed_launcher(scene):
    """kill -9 of `sluice run` itself."""
    return _signal_launcher(scene, signal.SIGKILL)


def told_to_end(scene):
    """SIGINT, SIGTERM or SIGHUP to `sluice run`."""
    return _signal_launcher(scene, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stopped_rank(scene):
    """SIGSTOP of one rank, and SIGCONT before or after the limit of the others, or never."""
    more, moment = _moment(scene)
    job = scene.start(scene.command("shm", *more, timeout=2))
    ranks = job.await_ranks(scene.layer.ranks)
    pause = scene.rng.choice([0.02, 0.5, 1.9, 2.1, 4.0, None])
    victim = scene.rng.randrange(scene.layer.ranks)
    scene.note(f"SIGSTOP of rank {victim} after {moment:.3f} s for {pause} s")
    sleep_while(job, moment)
    if victim in ranks and job.runs():
        send(ranks[victim], signal.SIGSTOP)
        sleep_while(job, 5.0 if pause is None else pause)
        if pause is not None or scene.layer.ranks == 1:
            send(ranks[victim], signal.SIGCONT)
    if more:
        _end_steps(job, ranks)
    job.wait(LIMIT)
    return Expected(*LOST, torn=True)


def stopped_all(scene):
    """SIGSTOP of all ranks and the launcher, then SIGCONT of all; or of all ranks alone, for good."""
    more, moment = _moment(scene)
    job = scene.start(scene.command("shm", *more, timeout=2))
    ranks = job.await_ranks(scene.layer.ranks)
    pause = scene.rng.choice([0.1, 1.0, 3.0, None])
    scene.note(f"SIGSTOP of all after {moment:.3f} s for {pause} s")
    sleep_while(job, moment)
    everybody = [*ranks.values()] if pause is None else [*ranks.values(), job.pid]
    for number in (signal.SIGSTOP,) if pause is None else (signal.SIGSTOP, signal.SIGCONT):
        scene.rng.shuffle(everybody)
        for pid in everybody:
            send(pid, number)
        if number == signal.SIGSTOP:
            sleep_while(job, pause or 0)
    if more and pause is not None:
        _end_steps(job, ranks)
    job.wait(LIMIT)
    return Expected(*LOST, torn=True)


def _end_steps(job, ranks):
    """Endless steps that continued must be ended: by the death of a rank."""
    sleep_while(job, 1.0)
    if job.runs():
        for pid in list(ranks.values())[:1]:
            send(pid, signal.SIGKILL)


def full_disk(scene):
    """Outputs on a file system that has room for only some of them, or for none."""
    size = max(4096, int(scene.layer.out_bytes * scene.layer.ranks * scene.rng.uniform(0, 2)))
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "soak", scene.out_folder], stderr=subprocess.DEVNULL).returncode == 0
    scene.note(f"a disk of {size} bytes" if mounted else "no separate disk: needs root")
    scene.mounted = mounted
    if mounted:  # hides the files that were in the folder
        scene.before = [None] * scene.layer.ranks
    scene.run()
    return Expected("disk")


def small_files(scene):
    """A limit on the size of files (ulimit -f), which also limits shared memory."""
    size = max(8192, int(scene.layer.out_bytes * scene.rng.uniform(0, 1.5)))
    scene.note(f"RLIMIT_FSIZE {size}")
    scene.run(limits=[(resource.RLIMIT_FSIZE, size)])
    return Expected("disk", "memory")


def little_memory(scene):
    """A limit on address space or on private memory."""
    which, name = scene.rng.choice([(resource.RLIMIT_AS, "RLIMIT_AS"), (resource.RLIMIT_DATA, "RLIMIT_DATA")])
    size = int(2 ** scene.rng.uniform(23.5, 31))  # with less the system cannot start a program
    scene.note(f"{name} {size}")
    scene.run(timeout=5, limits=[(which, size)])
    return Expected("memory", "threads", "ended", *LOST, statuses=(127,))


def few_threads(scene):
    """A limit on processes and threads, as another user, because root has no limit."""
    if not can_be_nobody(scene.folder):
        scene.note("no limit of threads: needs root, and a folder that others can read")
        return nothing(scene)
    count = scene.rng.randint(1, 12)
    scene.note(f"RLIMIT_NPROC {count}")
    os.chmod(scene.out_folder, 0o777)
    for path in scene.outs():
        if os.path.exists(path):
            os.chown(path, NOBODY, NOBODY)
    scene.run(timeout=5, threads=scene.rng.randint(1, 8), limits=[(resource.RLIMIT_NPROC, count)], user=NOBODY)
    return Expected("threads", "ended", *LOST)


def few_files(scene):
    """A limit on open files."""
    count = scene.rng.randint(4, 40)
    scene.note(f"RLIMIT_NOFILE {count}")
    scene.run(timeout=5, limits=[(resource.RLIMIT_NOFILE, count)])
    return Expected("files", "ended", *LOST, statuses=(127,))


def bad_ids(scene):
    """One rank routes to an expert that does not exist, or lacks a row: all fail, with its message."""
    mine, victim = scene.copy_inputs(), scene.rng.randrange(scene.layer.ranks)
    if scene.layer.linear:
        return _bad_rows(scene, mine.replace("{rank}", str(victim)), victim)
    value = scene.rng.choice([-2, -1000, 1 << 20, 2147483647])
    scene.note(f"rank {victim} has id {value}")
    hit = overwrite_int32(mine.replace("{rank}", str(victim)), "expert_ids", scene.rng.randrange(1 << 20), value)
    scene.run(repeats=[1, 3])
    return Expected("refused", right=not hit)


def _bad_rows(scene, path, victim):
    """The rows of all ranks, one missing: at a single rank the rest may be the rows of fewer tokens."""
    name = scene.layer.rows_input
    hit = name is not None and scene.layer.ranks > 1 and drop_row(path, name)
    scene.note(f"rank {victim} lacks a row of {name}" if hit else "no rows to lack")
    scene.run(repeats=[1, 3])
    return Expected("refused", "input", right=not hit)


def bad_file(scene):
    """The inputs of one rank are cut short, empty or missing."""
    mine = scene.copy_inputs().replace("{rank}", str(scene.rng.randrange(scene.layer.ranks)))
    kind = scene.rng.choice(["cut", "empty", "missing"])
    scene.note(f"{os.path.basename(mine)} is {kind}")
    if kind == "missing":
        os.unlink(mine)
    else:
        os.truncate(mine, 0 if kind == "empty" else scene.rng.randrange(os.path.getsize(mine)))
    scene.run()
    return Expected("input", right=False)


class _Group:
    """Ranks that were started one by one, judged as one job."""

    def __init__(self, jobs):
        for job in jobs:
            job.wait(LIMIT)
        self.overdue = any(job.overdue for job in jobs)
        self.seconds = max(job.seconds for job in jobs)
        statuses = {job.status for job in jobs}
        self.status = statuses.pop() if len(statuses) == 1 else sorted(job.status for job in jobs)
        self._text = "".join(job.text() for job in jobs)

    def text(self):
        return self._text


def by_hand(scene):
    """Ranks that are started one by one, one of them late, and one with little memory or few files."""
    ranks = scene.layer.ranks
    victim, late = scene.rng.randrange(ranks), scene.rng.randrange(ranks)
    limit = scene.rng.choice([None, (resource.RLIMIT_AS, int(2 ** scene.rng.uniform(24, 30))),
                              (resource.RLIMIT_NOFILE, scene.rng.randint(6, 30))])
    scene.note(f"rank {victim} has limit {limit}, rank {late} comes late")
    name = f"soak-{scene.rng.randrange(1 << 60):x}-{os.getpid()}"
    command = scene.command("shm", timeout=8)
    jobs = []
    for rank in sorted(range(ranks), key=lambda each: each == late):
        if rank == late:
            time.sleep(scene.rng.uniform(0, 0.5))
        jobs.append(scene.start(command, variables=processes.by_hand(name, rank, ranks),
                                limits=[limit] if limit and rank == victim else []))
    scene.verdict_of = _Group(jobs)
    return Expected("memory", "threads", "files", *LOST, right=True, statuses=([1, 127],) if ranks > 1 else (127,))


TROUBLES = [nothing, killed_rank, killed_launcher, told_to_end, stopped_rank, stopped_all, full_disk, small_files,
            little_memory, few_threads, few_files, bad_ids, bad_file, by_hand]
