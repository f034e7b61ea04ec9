"""Runs a test in a process that is forked from one that has imported PyTorch, which takes longer than most jobs, and the test's
own processes likewise. Usage: forks.py TEST.py [ARGUMENTS]

The first process has imported nothing else, and runs nothing: a forked one imports its file, and all that the file imports, like
one that was started."""

import array
import atexit
import contextlib
import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import types

_origin = None  # in the test: a socket to the process that forks, and the environment that it was started with


def read_number(pipe):
    return struct.unpack("i", os.read(pipe, 4))[0]


def write_number(pipe, number):
    os.write(pipe, struct.pack("i", number))


class Forked:
    """What subprocess.Popen has, for a process whose output went to a file."""

    def __init__(self, output, status):
        self.output, self.status, self.returncode = output, status, None
        self.pid = read_number(status)

    def wait(self, timeout=None):
        if self.returncode is None:
            if not select.select([self.status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a forked process", timeout)
            self.returncode = os.waitstatus_to_exitcode(read_number(self.status))
            os.close(self.status)
        return self.returncode

    def communicate(self, timeout=None):
        self.wait(timeout)
        self.output.seek(0)
        with self.output:
            return self.output.read(), None

    def send_signal(self, number):
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def start(path, arguments, ends_whole=False):
    """A process that runs the file with the arguments; None if the environment is no longer what PyTorch was imported with, or this
    is not a test that was forked. It ends by end(), or as a user's process does."""
    if _origin is None or _origin[1] != dict(os.environ):
        return None
    output = tempfile.TemporaryFile("w+", errors="replace")
    status, theirs = os.pipe()
    request = json.dumps([ends_whole, os.path.abspath(path), *arguments]).encode()
    passed = array.array("i", [output.fileno(), theirs])
    _origin[0].sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)])
    os.close(theirs)
    return Forked(output, status)


def run_file(ends_whole, path, *arguments):
    """Runs the file as Python would have, with the arguments, and ends this process."""
    sys.argv, sys.path[0] = [path, *arguments], os.path.dirname(path)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = path
    with open(path) as file:
        code = compile(file.read(), path, "exec")
    status = 0
    try:
        exec(code, main.__dict__)
    except SystemExit as ended:
        if ends_whole or not isinstance(ended.code, int | None):
            raise
        status = ended.code or 0
    if not ends_whole:
        end(status)


def serve(requests, statuses):
    """Forks for each request, and returns it in the forked process; None when all processes have ended. Of
    each it writes who it is and how it ended. `statuses` has the pipes of those that run."""
    ends, wakes = socket.socketpair()  # a byte for each process that has ended, at least one for several
    for each in (ends, wakes):
        each.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    write_ends(statuses)  # some may have ended before a signal could wake this process
    is_open = True
    while is_open or statuses:
        readable = select.select([ends, requests] if is_open else [ends], [], [])[0]
        if ends in readable:
            ends.recv(1 << 16)
            write_ends(statuses)
        if requests not in readable:
            continue
        request, passed, _, _ = requests.recvmsg(1 << 16, socket.CMSG_SPACE(8))
        if not request:
            is_open = False
            continue
        output, status = array.array("i", passed[0][2])
        process = os.fork()
        if process == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (ends, wakes, requests):
                each.close()
            for each in (status, *statuses.values()):
                os.close(each)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            return json.loads(request)
        write_number(status, process)
        statuses[process] = status
        os.close(output)
    return None


def write_ends(statuses):
    """Takes out the processes that have ended."""
    while statuses:
        process, ended = os.waitpid(-1, os.WNOHANG)
        if process == 0:
            return
        write_number(statuses[process], ended)
        os.close(statuses.pop(process))


def end(status=0):
    """Ends this process after all that Python runs at an end, without the destructors of PyTorch: they write to most of the memory
    that a forked process shares, and take a second of processor time, ten times as long as all that a rank does before its job."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main():
    """Runs the test in a forked process and ends as it does."""
    global _origin
    import torch  # noqa: F401
    import torch.distributed  # noqa: F401

    gc.collect()
    gc.freeze()  # no collection in a forked process writes to what it shares
    requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ended, status = os.pipe()
    test = os.fork()
    if test == 0:
        requests.close()
        _origin = theirs, dict(os.environ)
        sys.modules["forks"] = sys.modules["__main__"]  # else the test would import another one, without _origin
        return run_file(False, *sys.argv[1:])
    theirs.close()
    found = serve(requests, {test: status})
    if found:
        return run_file(*found)
    code = os.waitstatus_to_exitcode(read_number(ended))
    return end(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
