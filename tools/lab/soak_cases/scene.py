"""One case: a layer, its own folder, and what a fault needs to start runs in it."""
import os
import shutil
import tempfile

from soak_cases.jobs import Job
from soak_cases.layers import PATIENT, digest

LIMIT = 120.0  # seconds: more than ten times the --timeout of any case, for a busy machine


class Scene:
    def __init__(self, tools, layer, rng, folder):
        self.tools, self.layer, self.rng, self.folder = tools, layer, rng, folder
        os.chmod(folder, 0o755)
        self.out_folder = os.path.join(folder, "out")
        os.mkdir(self.out_folder)
        self.inputs = layer.inputs
        self.jobs = []
        self.notes = []  # a description of what the case did

    def note(self, text):
        self.notes.append(text)

    def outs(self):
        return [os.path.join(self.out_folder, f"out-{rank}") for rank in range(self.layer.ranks)]

    def place_old_outputs(self):
        """In half of the cases there are outputs of an earlier run, which a failed run must not change."""
        if self.rng.random() < 0.5:
            for path in self.outs():
                with open(path, "wb") as file:
                    file.write(self.rng.randbytes(self.rng.randint(0, 3000)))
        self.before = [digest(path) if os.path.exists(path) else None for path in self.outs()]

    def command(self, transport, *more, timeout=PATIENT, threads=None):
        """A run with options that change no bit."""
        rng = self.rng
        command = [self.tools.sluice, "run", self.layer.program, "--in", self.inputs, "--out",
                   os.path.join(self.out_folder, "out-{rank}"), "--transport", transport, "--timeout", str(timeout),
                   "--threads", str(threads or rng.choice([1, 1, 2, 3])), "--pack-weights",
                   rng.choice(["task", "task", "once"]), *self.layer.run_options, *more]
        if rng.random() < 0.2:
            command += ["--executor", "serial"]
        if rng.random() < 0.15:
            command += ["--trace", os.path.join(self.out_folder, "trace.json")]
        self.note(f"{transport} {' '.join(more)}")
        return command

    def start(self, command, **more):
        job = Job(command, self.folder, **more)
        self.jobs.append(job)
        return job

    def local_transport(self):
        return self.rng.choice(["threads", "shm"])

    def run(self, repeats=None, limits=(), user=None, **settings):
        """A whole run of ranks on this machine, with one of the numbers of repetitions."""
        transport = self.local_transport()
        more = ["--repeat", str(self.rng.choice(repeats))] if repeats else []
        self.start(self.command(transport, *more, **settings), limits=limits, user=user).wait(LIMIT)

    def copy_inputs(self):
        """Copies the inputs, so that the case can change them."""
        mine = os.path.join(self.folder, "in-{rank}")
        for rank in range(self.layer.ranks):
            shutil.copy(self.layer.inputs.replace("{rank}", str(rank)), mine.replace("{rank}", str(rank)))
        self.inputs = mine
        return mine

    def unexpected_files(self):
        """Files other than outputs and trace."""
        known = {os.path.basename(path) for path in self.outs()} | {"trace.json"}
        return sorted(set(os.listdir(self.out_folder)) - known)


def new_folder(parent, name):
    return tempfile.mkdtemp(prefix=name + "-", dir=parent)
