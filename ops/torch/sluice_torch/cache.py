"""Task programs on disk: sluicec compiles them at first use, and later processes find them.

The folder is $SLUICE_CACHE, else $XDG_CACHE_HOME/sluice, else ~/.cache/sluice. A program is KEY.slp; KEY.json next to
it records what it was compiled from and the digest of KEY.slp. KEY is a digest of graph, options, compiler and
target, so that nothing must be deleted when one of these changes. Token counts and routing are not part of it.

Any number of processes and threads may request a program at once: one compiles it, under a lock that ends with its
process, and the others wait. Files appear complete, by a rename. A file whose digest is wrong is compiled again.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import threading
from pathlib import Path

# Part of every key: changes when the meaning of the files changes.
_FORMAT = 1
_LOCKS = 16  # lock files; a program's key chooses one
_COMPILE_SECONDS = 600

_known: set[str] = set()  # paths of programs that this process has checked
_digests: dict[tuple, str] = {}  # (path, size, time of change) -> digest of a compiler or target
_compilations = 0
_guard = threading.Lock()


def compilations() -> int:
    """The number of compilations that this process has started."""
    return _compilations


def folder() -> Path:
    """The folder of programs."""
    if chosen := os.environ.get("SLUICE_CACHE"):
        return Path(chosen)
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "sluice"
    return Path.home() / ".cache" / "sluice"


def find_tool(name: str) -> str:
    """The path of sluicec or sluice: in a variable (SLUICEC, SLUICE), next to this package, on the PATH, or in the Bazel
    tree that contains this package."""
    variable = name.upper()
    if chosen := os.environ.get(variable):
        if os.access(chosen, os.X_OK) and os.path.isfile(chosen):
            return chosen
        raise RuntimeError(f"{variable} is {chosen!r}, which is not a program that can be run")
    package = Path(__file__).resolve().parent
    places = [package / "bin" / name, shutil.which(name)]
    if len(package.parents) > 2:
        places.append(package.parents[2] / "bazel-bin" / "tools" / name)
    for place in places:
        if place and os.access(place, os.X_OK) and os.path.isfile(place):
            return str(place)
    looked = ", ".join(str(place) if place else "the PATH" for place in places)
    raise RuntimeError(f"{name} was not found (looked at {looked}); set {variable} to its path")


def find_compiler() -> str:
    return find_tool("sluicec")


def find_target(compiler: str, name: str) -> str:
    """The device model `name` as sluicec finds it: a file in $SLUICE_TARGETS or next to the compiler; else its name."""
    if chosen := os.environ.get("SLUICE_TARGETS"):
        folders = [Path(chosen)]
    else:
        folders = []
        for program in (Path(compiler), Path(compiler).resolve()):
            folders.append(Path(f"{program}.runfiles") / "sluice" / "targets")
            prefix = program.parent.parent
            folders += [program.parent / "targets", prefix / "targets", prefix / "share" / "sluice" / "targets"]
    for place in folders:
        if (place / f"{name}.json").is_file():
            return os.path.abspath(place / f"{name}.json")
    return name  # of a model that is built into the compiler


def find_graph(name: str) -> Path:
    """The file of a graph that belongs to Sluice: in this package, or in the tree that contains it."""
    package = Path(os.path.abspath(__file__)).parent
    places = [folder / "graphs" / name for folder in (package / "bin", *list(package.parents)[2:3])]
    for place in places:
        if place.is_file():
            return place
    raise RuntimeError(f"the graph {name} was not found (looked at {', '.join(map(str, places))})")


def compile_graph(
    graph: dict,
    sets: dict | None = None,
    *,
    trainable: tuple[str, ...] = (),
    grads: str = "F32",
    accumulate: bool = False,
    keep: str = "all",
    target: str = "cpu",
    options: tuple[str, ...] = (),
) -> str:
    """The path of the task program of a graph (graphs/FORMAT.md), which is compiled if it does not exist yet.

    `sets` gives values to symbols of the graph; `trainable` names the inputs whose gradients a derived entry "backward"
    computes; `grads` is the type of weight gradients, and `accumulate` adds them to the old content of their outputs;
    `keep` states what a forward keeps; `options` is passed to sluicec unchanged.
    RuntimeError: no compiler; errors that the compiler reports; a folder that is not writable.
    """
    compiler = find_compiler()
    model = find_target(compiler, target)
    arguments = [f"--set={name}={value}" for name, value in sorted((sets or {}).items())]
    if trainable:
        arguments += [f"--trainable={','.join(trainable)}", f"--grads={grads}", f"--keep={keep}"]
    if accumulate:
        arguments.append("--accumulate")
    arguments += options
    text = json.dumps(graph)
    key = _key(text, arguments, compiler, model)
    path = folder() / f"{key}.slp"
    if str(path) in _known and path.exists():
        return str(path)
    if not _is_whole(path):
        with _locked(path.parent, key):
            if not _is_whole(path):
                _compile(path, text, [f"--target={model}", *arguments], compiler)
    _known.add(str(path))
    return str(path)


def _key(text: str, arguments: list[str], compiler: str, model: str) -> str:
    parts = [_FORMAT, text, arguments, _digest(compiler), _digest(model) if os.path.isabs(model) else model]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _digest(path: str) -> str:
    """The digest of a file. The file is read again only after it has changed."""
    try:
        state = os.stat(path)
        identity = (path, state.st_size, state.st_mtime_ns, state.st_ino)
        if identity not in _digests:
            _digests[identity] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        return _digests[identity]
    except OSError as error:
        raise RuntimeError(f"{path} cannot be read: {error.strerror}") from error


def _is_whole(path: Path) -> bool:
    """Whether a program exists and is complete."""
    try:
        note = json.loads(path.with_suffix(".json").read_bytes())
        return note["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError, KeyError, TypeError):
        return False


@contextlib.contextmanager
def _locked(place: Path, key: str):
    """A lock per key, for one process and thread at a time. It ends with its process, however that ends."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = os.open(place / f"lock-{int(key[:8], 16) % _LOCKS:02}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise RuntimeError(_unwritable(place, error)) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _unwritable(place: Path, error: OSError) -> str:
    return (
        f"the folder of compiled programs {place} cannot be written: {error.strerror}; "
        "set SLUICE_CACHE to a folder that can"
    )


def _compile(path: Path, text: str, arguments: list[str], compiler: str):
    """Makes a program. The caller has the lock, so no other process uses the files of an unfinished attempt."""
    global _compilations
    work = path.with_suffix(".new")
    try:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        (work / "graph.json").write_text(text)
    except OSError as error:
        raise RuntimeError(_unwritable(path.parent, error)) from error
    try:
        command = [compiler, "graph.json", *arguments, "-o", "program.slp"]
        with _guard:
            _compilations += 1
        _run(command, work, text)
        note = {
            "sha256": hashlib.sha256((work / "program.slp").read_bytes()).hexdigest(),
            "arguments": command[1:],
            "graph": json.loads(text),
        }
        (work / "note.json").write_text(json.dumps(note))
        os.replace(work / "program.slp", path)
        os.replace(work / "note.json", path.with_suffix(".json"))
    except OSError as error:
        raise RuntimeError(_unwritable(path.parent, error)) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run(command: list[str], work: Path, text: str):
    compiler = os.path.abspath(command[0])
    try:
        done = subprocess.run(
            [compiler, *command[1:]],
            cwd=work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMPILE_SECONDS,
        )
    except OSError as error:
        raise RuntimeError(f"{compiler} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{compiler} took longer than {_COMPILE_SECONDS} s") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"
        # the reason first: other ranks get only the beginning
        raise RuntimeError(f"sluicec: {said}\nfrom sluicec {' '.join(command[1:])} in {work.parent}\ngraph: {text[:2000]}")

