"""Runs commands with limits and a deadline, and finds what they leave: processes, files of shared memory."""
import os
import resource
import secrets
import signal
import subprocess
import tempfile
import time

import processes

MARK = "SLUICE_SOAK_JOB"
NOBODY = 41234  # a user without other processes, so that its limit of threads is for one job alone
FORCED = 5.0  # seconds in which a killed process must end


class Job:
    """A started command. The environment of all its processes has its mark, whatever they start."""

    def __init__(self, command, folder, variables=None, limits=(), user=None):
        self.mark = secrets.token_hex(8)
        self.files = [tempfile.TemporaryFile(mode="w+", errors="replace") for _ in range(2)]
        self.began = time.monotonic()

        def prepare():
            processes.prepare_child()
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, and its children would inherit that
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            for which, value in limits:
                resource.setrlimit(which, (value, value))

        self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=self.files[0],
                                        stderr=self.files[1], preexec_fn=prepare, start_new_session=True,
                                        env={**processes.clean_environment(), **(variables or {}), MARK: self.mark})
        self.pid = self.process.pid
        self.status = None
        self.overdue = False
        self.stuck = []  # names of the processes that did not end in time

    def ranks(self):
        """Process numbers of the ranks that a launcher has started, by rank."""
        return processes.children_of(self.pid)

    def runs(self):
        return self.process.poll() is None

    def await_ranks(self, count, seconds=20.0):
        """The ranks of a launcher; fewer if it ended, or did not start them in time."""
        deadline = time.monotonic() + seconds
        while True:
            ranks = self.ranks()
            if len(ranks) >= count or not self.runs() or time.monotonic() > deadline:
                return ranks
            time.sleep(0.002)

    def wait(self, seconds):
        """Kills the job if it takes longer."""
        try:
            self.status = self.process.wait(max(0.0, seconds - (time.monotonic() - self.began)))
        except subprocess.TimeoutExpired:
            self.overdue = True
            self.stuck = [name_of(pid) for pid in marked_processes(self.mark)]
            end_marked(self.mark)
            self.status = self.process.wait()
        self.seconds = time.monotonic() - self.began

    def text(self, which=1):
        """Its standard output (0) or error (1)."""
        self.files[which].seek(0)
        return self.files[which].read()

    def left(self):
        """Processes of the job that are still running although it has ended; kills them."""
        deadline = time.monotonic() + 2.0
        while True:
            marked = marked_processes(self.mark)
            if not marked or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        if marked:
            end_marked(self.mark)
        for file in self.files:
            file.close()
        return marked


def can_be_nobody(folder):
    """Whether this process may start others as that user, and the user can reach the folder."""
    if os.geteuid() != 0:
        return False
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os._exit(0 if os.access(folder, os.R_OK | os.X_OK) else 1)
        except OSError:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def send(pid, number):
    """Sends a signal to a process that may have ended meanwhile."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm") as name:
            return name.read().strip()
    except OSError:
        return ""


def marked_processes(mark):
    """The numbers of the processes with the mark, without processes that have ended but were not waited for."""
    found = []
    wanted = f"{MARK}={mark}".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as environment:
                if wanted in environment.read() and processes.is_alive(int(name)):
                    found.append(int(name))
        except OSError:
            continue
    return found


def end_marked(mark):
    deadline = time.monotonic() + FORCED
    while True:
        found = marked_processes(mark)
        if not found or time.monotonic() > deadline:
            return
        for pid in found:
            send(pid, signal.SIGKILL)
        time.sleep(0.02)


def shared_memory():
    """Names of Sluice's files in /dev/shm."""
    return {name for name in os.listdir("/dev/shm") if "sluice" in name} if os.path.isdir("/dev/shm") else set()
