"""Ranks of a job as processes that a test starts, each with its own standard error and a deadline."""
import ctypes
import os
import signal
import subprocess
import tempfile
import time

PR_SET_PDEATHSIG = 1


def clean_environment():
    """The environment without the variables of a launcher of this test."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLUICE_JOB", "MASTER_ADDR", "MASTER_PORT")
    return {name: value for name, value in os.environ.items() if name not in names}


def prepare_child():
    # a test in the background of a shell, or under nohup, has these ignored, and its children would, too
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    def __init__(self, command, variables):
        self.output = tempfile.TemporaryFile(mode="w+")
        self.errors = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(command, env={**clean_environment(), **variables}, stdin=subprocess.DEVNULL,
                                        stdout=self.output, stderr=self.errors, preexec_fn=prepare_child)
        self.pid = self.process.pid

    def signal(self, number):
        os.kill(self.pid, number)

    def wait(self, seconds):
        """Exit status, or None if it runs longer."""
        try:
            return self.process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return None

    def text(self):
        self.errors.seek(0)
        return self.errors.read()

    def printed(self):
        self.output.seek(0)
        return self.output.read()

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.output.close()
        self.errors.close()


def by_hand(job, rank, size):
    return {"SLUICE_JOB": job, "RANK": str(rank), "WORLD_SIZE": str(size)}


def by_torchrun(run, rank, size):
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": run,
            "TORCHELASTIC_RESTART_COUNT": "0"}


def processor_seconds(pid):
    """Returns the processor time of the process so far, or None where it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children_of(pid):
    """Ranks that a launcher started, by number."""
    ranks = {}
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as text:
            children = [int(child) for child in text.read().split()]
        for child in children:
            with open(f"/proc/{child}/environ") as environment:
                for variable in environment.read().split("\0"):
                    if variable.startswith("RANK="):
                        ranks[int(variable[5:])] = child
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        pass
    return ranks


def await_true(condition, seconds, what):
    """Waits until the condition holds; fails the test if it does not within the time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s for {what}")
        time.sleep(0.002)
