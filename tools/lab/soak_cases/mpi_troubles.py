"""Faults of ranks that mpirun starts. Open MPI prints many messages of its own, and leaves files in its own folder."""
import shutil
import signal
import tempfile

from soak_cases.jobs import marked_processes, name_of, send
from soak_cases.scene import LIMIT
from soak_cases.troubles import FOREVER, LOST, sleep_while
from soak_cases.verdicts import Expected


def _start(scene, *more, timeout):
    # a short name, because it contains sockets
    scene.own_folder = tempfile.mkdtemp(prefix="sl_", dir="/tmp")
    variables = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "TMPDIR": scene.own_folder}
    for part in ("btl_vader", "osc_rdma", "osc_sm"):
        variables[f"OMPI_MCA_{part}_backing_directory"] = scene.own_folder
    command = scene.command("mpi", *more, timeout=timeout)
    return scene.start(["mpirun", "-n", str(scene.layer.ranks), "--oversubscribe", "--bind-to", "none", *command],
                       variables=variables)


def _end(scene, job):
    job.wait(LIMIT)
    shutil.rmtree(scene.own_folder, ignore_errors=True)


def mpi(scene):
    """No trouble over MPI."""
    job = _start(scene, timeout=60)
    _end(scene, job)
    return Expected()


def _disturbed(scene, number):
    """A signal to one of the ranks at a random moment, possibly before MPI knows all of them."""
    job = _start(scene, *FOREVER, timeout=5)
    moment = scene.rng.uniform(0.05, 2.0)
    scene.note(f"{number.name} of a rank after {moment:.3f} s")
    sleep_while(job, moment)
    ranks = sorted(pid for pid in marked_processes(job.mark) if "sluice" in name_of(pid))
    if ranks:
        send(scene.rng.choice(ranks), number)
    else:
        send(job.pid, signal.SIGTERM)
    _end(scene, job)
    # mpirun of Open MPI 4.1 itself may crash when its ranks end before they have initialised MPI, and the SIGTERM above
    # ends it like any program that has not set a handler yet
    return Expected(*LOST, right=False, statuses=[*range(1, 256), -signal.SIGSEGV, -signal.SIGTERM], torn=True, silent=True, foreign=True)


def mpi_killed(scene):
    """kill -9 of a rank that mpirun started."""
    return _disturbed(scene, signal.SIGKILL)


def mpi_stopped(scene):
    """SIGSTOP of such a rank, for good. No rank waits for the only rank of a job."""
    return _disturbed(scene, signal.SIGSTOP if scene.layer.ranks > 1 else signal.SIGKILL)


TROUBLES = [mpi, mpi_killed, mpi_stopped]
