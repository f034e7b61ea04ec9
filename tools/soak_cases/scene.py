"""One case: a layer, its own folder, and what a fault needs to start runs in it."""
import json
import os
import shutil
import struct
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


def _read_tensors(path):
    """{name: [type, shape, bytes]} of a safetensors file."""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header, body = json.loads(file.read(size)), file.read()
    header.pop("__metadata__", None)
    return {name: [about["dtype"], about["shape"], body[slice(*about["data_offsets"])]] for name, about in header.items()}


def drop_row(path, name):
    """Removes the last row of a tensor of a safetensors file; returns False if the file has no such row."""
    tensors = _read_tensors(path)
    if name not in tensors or tensors[name][1][0] == 0:
        return False
    _, shape, content = tensors[name]
    tensors[name][2] = content[:len(content) - len(content) // shape[0]]
    shape[0] -= 1
    header, body = {}, b""
    for each, (kind, dims, data) in tensors.items():
        header[each] = {"dtype": kind, "shape": dims, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)
    return True


def overwrite_int32(path, name, index, value):
    """Changes one element of a tensor of a safetensors file; returns False if the file or the tensor has none."""
    with open(path, "r+b") as file:
        size, = struct.unpack("<Q", file.read(8))
        begin, end = json.loads(file.read(size)).get(name, {"data_offsets": (0, 0)})["data_offsets"]
        if begin == end:
            return False
        file.seek(8 + size + begin + index * 4 % (end - begin))
        file.write(struct.pack("<i", value))
    return True


def new_folder(parent, name):
    return tempfile.mkdtemp(prefix=name + "-", dir=parent)
