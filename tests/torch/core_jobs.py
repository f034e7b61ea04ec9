"""Jobs of tests: the test's file, as processes with a torch.distributed group over gloo, or as a single process."""

import faulthandler
import gc
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import weakref

import forks
import torch
import torch.distributed as dist

LIMIT = 120  # seconds per job, unless specified


def start(name, *arguments, role="child"):
    """A process that runs function `name` of the test's file. Ranks are forked from a process that has imported PyTorch."""
    arguments = [role, name, *map(str, arguments)]
    forked = forks.start(sys.argv[0], arguments) if role == "rank" else None
    command = [sys.executable, os.path.abspath(sys.argv[0]), *arguments]
    return forked or subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process, limit=LIMIT):
    """Its output, and how it ended: an exit status, or a signal's name. After the limit it is made to print the stacks
    of its threads, and killed."""
    try:
        said = process.communicate(timeout=limit)[0]
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # faulthandler prints the stacks
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
        return process.communicate()[0] + f"\nstill there after {limit} s", "hang"
    code = process.returncode
    return said, signal.Signals(-code).name if code < 0 else code


def run_ranks(test, name, size, limit=LIMIT, arguments=()):
    """Runs function `name`(rank, size, *arguments) in each of `size` processes, and returns what they print; a failure of any fails the
    test."""
    with tempfile.TemporaryDirectory() as folder:
        store = pathlib.Path(folder) / "store"
        ranks = [start(name, rank, size, store, *arguments, role="rank") for rank in range(size)]
        found = [finish(process, limit) for process in ranks]
        for rank, (said, ended) in enumerate(found):
            test.assertEqual(ended, 0, f"rank {rank} of {name}: {said}")
        return [said for said, _ in found]


def main(functions):
    """In a child: runs the function and returns True. Otherwise returns False."""
    role = sys.argv[1] if len(sys.argv) > 2 else ""
    if role not in ("child", "rank"):
        return False
    function, arguments = functions[sys.argv[2]], sys.argv[3:]
    faulthandler.enable()
    if role == "child":
        function(*arguments)
        return True
    rank, size, store = int(arguments[0]), int(arguments[1]), arguments[2]
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("USE_LIBUV", "0")  # for a store over TCP: Debian builds PyTorch 2.6 without it
    torch.set_num_threads(1)
    method = store if "://" in store else f"file://{store}"
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=size)
    function(rank, size, *arguments[3:])
    if dist.is_initialized():
        # PyTorch 2.6 destroys a group holding the GIL and waits for its threads, one of which may need the GIL to free
        # a tensor: a deadlock. The destructor of a backend that Python refers to releases the GIL.
        world = dist.group.WORLD
        backend = world._get_backend(torch.device("cpu")) if hasattr(world, "_get_backend") else None
        group = weakref.ref(world)
        del world
        dist.barrier()
        dist.destroy_process_group()
        if group() is not None:
            gc.collect()
        assert group() is None, "something keeps the process group, so that its threads may abort the process as it ends"
        del backend
    return True
