"""Converts the experts of a checkpoint to an encoding, once, so that layers use the files' own memory.

    python3 -m sluice_torch.convert SOURCE TARGET --encode int4:g32
    python3 -m sluice_torch.convert SOURCE TARGET.gguf --encode int4:g32:f16

TARGET gets a file for each layer of experts, with the parameters that a sluice_torch.MoE of that encoding has; all other tensors as
they are; other files of SOURCE, such as config.json and those of a tokenizer; and the index. load_model() reads it. sluice.json says what
was converted, and how. TARGET.gguf is one file with the whole model (gguf_export.py).
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import re
import sys
import typing

import torch

from .encodings import codes
from .encodings.encodings import Encodings, encodings_of
from .layers.moe import MoE
from .weights import formats, gguf_export, loading, safetensors, sources
from .weights.checkpoint import INDEX, NUMBERS, Checkpoint
from .weights.gguf_models import GgufModel
from .weights.json_objects import read_object
from .weights.models import open_model

_MANIFEST = "sluice.json"
_BYTES = 1 << 30
# What names of files with weights end in: nothing else of such formats is copied.
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".onnx")
_EXPERT = re.compile(rf"(?P<prefix>.*experts)\.(?P<number>\d+)\.(?P<name>{'|'.join(sum(sources.LISTED, ()))})\.\w+")
_STACKED = sources.STACKED[0].parts
_STACK_BIASES = {name for names in sources.STACKED for name in names.biases}
_STACK = re.compile(rf"(?P<prefix>.*experts)\.(({'|'.join(_STACKED)})({'|'.join(formats.MXFP4_STACK)})?|{'|'.join(_STACK_BIASES)})")


class Converted(typing.NamedTuple):
    """What convert() wrote."""

    layers: int
    bytes_before: int
    bytes_after: int
    error: float | None  # of codes that were made of codes: |new - old| / |old| of a layer's first expert, the largest


class _Experts(typing.NamedTuple):
    """The experts of a layer in the source."""

    prefix: str
    names: list[str]  # of all their tensors
    hidden: int
    intermediate: int
    count: int
    is_gated: bool
    has_biases: bool = False


@torch.no_grad()
def convert(source, target, encode: str, *, requantise: bool = False, progress: bool = False) -> Converted:
    """Converts what load_model() reads: safetensors files, or a GGUF file, whose tensors get the names of transformers.

    target      a folder; or NAME.gguf for a GGUF file with the whole model
    encode      an encoding of weights, as MoE takes it; "bf16": numbers. For a GGUF file one of gguf_export.TYPES
    requantise  True: codes may become other codes, which are rounded a second time
    progress    True: shows a bar (package tqdm)

    A file has its name when it is complete. If a conversion was interrupted, or the disk was full, the same call goes on with the files
    that are missing, as long as the files of the source have the sizes and times that sluice.json has; a GGUF file begins anew. At any time one
    layer is held.
    ValueError: files that load_experts() refuses; no experts; a target with something else. OSError: a file cannot be written.
    """
    encodings = encodings_of(encode)
    if encodings is None or encodings.facts.rounds:
        raise ValueError(f"encode is {encode!r}, expected what weights are stored as, such as bf16, int8 or int4:g32")
    checkpoint, target = open_model(source), pathlib.Path(target)
    found = _experts_of(checkpoint)
    for experts in found:
        _layer_of(experts, encodings)  # sizes that do not fit are an error before anything is written
    states = {path.name: path.stat() for path in checkpoint.paths()}
    before = sum(state.st_size for state in states.values())
    if target.suffix == ".gguf":
        errors = _write_gguf(checkpoint, target, found, encodings, requantise, progress)
        return Converted(len(found), before, target.stat().st_size, max(errors, default=None))
    sizes_and_times = {name: [state.st_size, state.st_mtime_ns] for name, state in states.items()}
    _begin(target, {"source": sizes_and_times, "encode": encodings.text or "bf16"})
    try:
        files, errors = _write_all(checkpoint, target, found, encodings, requantise, progress)
    except BaseException:
        if not any(target.glob("*.safetensors")):  # there is nothing to go on with
            (target / _MANIFEST).unlink()
            with contextlib.suppress(OSError):
                target.rmdir()
        raise
    _copy_others(checkpoint.path, target)
    with safetensors.replacing(target / INDEX) as file:
        by_name = {name: file_name for file_name, names in files.items() for name in names}
        file.write(json.dumps({"metadata": {}, "weight_map": by_name}, indent=1).encode())
    return Converted(len(found), before, sum(os.path.getsize(target / name) for name in files), max(errors, default=None))


def _write_gguf(checkpoint: Checkpoint | GgufModel, target: pathlib.Path, found: list[_Experts], encodings, requantise: bool, progress: bool) -> list:
    """Writes one file. Returns errors of codes that were made of codes."""
    kind = gguf_export.TYPES.get(encodings.text or "bf16")
    if kind is None:
        raise ValueError(f"encode is {encodings.text!r}, expected one of {', '.join(gguf_export.TYPES)} for {target}")
    if isinstance(checkpoint, GgufModel):
        raise ValueError(f"{checkpoint.path} is a GGUF file, expected safetensors files and config.json for {target}")
    steps, errors = iter(loading.shown(found, progress, "layers")), []

    def encoded(number: int) -> dict:
        next(steps)
        tensors, error = _encoded(checkpoint, found[number], encodings, requantise)
        errors.extend([] if error is None else [error])
        return tensors

    gguf_export.write(target, checkpoint, found, kind, encoded)
    return errors


def _write_all(checkpoint: Checkpoint | GgufModel, target, found: list[_Experts], encodings, requantise: bool, progress: bool) -> tuple[dict, list]:
    """Writes the files that are not there. Returns the names in each file, and errors of codes that were made of codes."""
    files, errors, inside = {}, [], {name for experts in found for name in experts.names}
    for number, experts in enumerate(loading.shown(found, progress, "layers"), 1):
        path = target / f"experts-{number:05d}.safetensors"
        if not path.exists():
            tensors, error = _encoded(checkpoint, experts, encodings, requantise)
            errors += [] if error is None else [error]
            safetensors.write(path, tensors)
        files[path.name] = list(Checkpoint(path))
    for number, names in enumerate(_others(checkpoint, inside), 1):
        path = target / f"others-{number:05d}.safetensors"
        if not path.exists():
            kinds = {name: checkpoint.type_of(name) for name in names} if isinstance(checkpoint, Checkpoint) else None
            safetensors.write(path, {name: checkpoint[name] for name in names}, kinds)
            checkpoint.release()
        files[path.name] = names
    return files, errors


def _experts_of(checkpoint: Checkpoint | GgufModel) -> list[_Experts]:
    """The experts of each layer, by names of published models. ValueError: there are none; other sizes."""
    names, numbers, stacks = {}, {}, set()
    for name in checkpoint:
        if (match := _EXPERT.fullmatch(name)) is not None:
            numbers.setdefault(match["prefix"], {}).setdefault(match["name"], set()).add(int(match["number"]))
        elif (match := _STACK.fullmatch(name)) is not None:
            stacks.add(match["prefix"])
        else:
            continue
        names.setdefault(match["prefix"], []).append(name)
    if not names:
        raise ValueError(f"{checkpoint.path} has no experts: expected names such as model.layers.0.mlp.experts.0.gate_proj.weight")
    return [_sizes_of(checkpoint, prefix, own, numbers.get(prefix)) for prefix, own in names.items()]


def _sizes_of(checkpoint: Checkpoint | GgufModel, prefix: str, names: list[str], numbers: dict[str, set] | None) -> _Experts:
    if numbers is None:
        shapes = [_shape_of_stack(checkpoint, f"{prefix}.{name}") for name in _STACKED]
        has_biases = any(f"{prefix}.{name}" in names for name in _STACK_BIASES)
        if all(len(shape) == 3 for shape in shapes) and shapes[0][0] == shapes[1][0]:
            for turn in (1, -1):  # [experts, out, in], or both transposed
                (columns, hidden), (also, intermediate) = (shape[1:][::turn] for shape in shapes)
                if also == hidden and columns in (intermediate, 2 * intermediate):
                    return _Experts(prefix, names, hidden, intermediate, shapes[0][0], columns != intermediate, has_biases)
        raise ValueError(f"{prefix} has stacked experts of {shapes[0]} and {shapes[1]}, expected [experts, 2 I, H] and [experts, H, I], or both transposed")
    count, up = len(set.union(*numbers.values())), next(names[1] for names in sources.LISTED if not set(names).isdisjoint(numbers))
    for name, found in numbers.items():
        if found != set(range(count)):
            raise ValueError(f"{prefix} has {name} of {len(found)} experts, expected all of {count}")
    intermediate, hidden = formats.read(checkpoint, f"{prefix}.0.{up}").shape
    return _Experts(prefix, names, hidden, intermediate, count, len(numbers) == 3)


def _shape_of_stack(checkpoint: Checkpoint | GgufModel, name: str) -> tuple[int, ...]:
    if not formats.is_mxfp4_stack(checkpoint, name):
        return checkpoint.shape_of(name) if name in checkpoint else ()
    sizes = checkpoint.shape_of(name + formats.MXFP4_STACK[0])
    return (*sizes[:2], 2 * math.prod(sizes[2:]))  # two codes per byte


def _begin(target: pathlib.Path, manifest: dict):
    """Makes the folder, or goes on with one of the same conversion. ValueError: something else is there."""
    path = target / _MANIFEST
    if path.exists():
        found = read_object(path.read_bytes(), f"{path}: expected a JSON object")
        if dict(found) != manifest:
            what = "to" if found.get("encode") != manifest["encode"] else "of another state of the source to"
            raise ValueError(f"{target} has a conversion {what} {found.get('encode')}, expected {manifest['encode']}: choose another folder")
        return
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(f"{target} has something else: expected a new or empty folder")
    target.mkdir(parents=True, exist_ok=True)
    with safetensors.replacing(path) as file:
        file.write(json.dumps(manifest).encode())


def _copy_others(source: pathlib.Path, target: pathlib.Path):
    """Copies what is beside the weights of a folder; of a single file config.json alone."""
    beside = source.iterdir() if source.is_dir() else [source.parent / "config.json"]
    for path in beside:
        is_weights = path.suffix in _WEIGHTS or path.name in (INDEX, _MANIFEST) or path.name.endswith(".index.json")
        if path.is_file() and not is_weights and path.stat().st_size <= _BYTES:
            with safetensors.replacing(target / path.name) as file:
                file.write(path.read_bytes())


def _layer_of(experts: _Experts, encodings: Encodings) -> MoE:
    """A layer that runs no step, with undefined weights, which take no memory until they are written."""
    activation = "swiglu" if experts.is_gated else "relu2"  # with a gate or without one: steps would differ, parameters do not
    return MoE(experts.hidden, experts.intermediate, experts.count, 1, activation=activation, encode=encodings, initialise=False, bias=experts.has_biases)


def _encoded(checkpoint: Checkpoint | GgufModel, experts: _Experts, encodings: Encodings, requantise: bool) -> tuple[dict, float | None]:
    """The parameters of a layer, and the error of codes that were made of codes."""
    layer = _layer_of(experts, encodings)
    source = sources.source_of(checkpoint, experts.prefix, layer.shape)
    by_numbers = loading.load_from(source, checkpoint, layer, list(range(experts.count)), requantise=requantise)
    tensors = {f"{experts.prefix}.{name}": each.detach() for name, each in layer.named_parameters()}
    has_codes = any(checkpoint.type_of(name) not in NUMBERS for name in experts.names)
    if not has_codes or not layer.shape.has_codes or not by_numbers:
        return tensors, None
    if not requantise:
        raise ValueError(f"{experts.prefix} has codes, which {encodings} would round a second time; --requantise does it")
    return tensors, max(_error(layer, source, name) for name in by_numbers)


def _error(layer: MoE, source, name: str) -> float:
    """|new - old| / |old| of a weight of the first expert."""
    numbers = [number for number, part in enumerate(loading.parts(layer.shape)) if part[0] == name]
    old = torch.cat([source.matrix(0, number, layer.shape.experts).decoded() for number in numbers]).float()
    stored = layer.shape.stored(name)
    new = codes.numbers_of(stored, *(getattr(layer, each)[:1] for each in (name, *stored.beside(name))))[0].float()
    return float((new - old).norm() / old.norm().clamp(min=1e-30))


def _others(checkpoint: Checkpoint | GgufModel, inside: set[str]) -> list[list[str]]:
    """The names of other tensors, of so many that they take about _BYTES as float32."""
    files, taken = [[]], 0
    of_experts = {checkpoint.in_file(name) for name in inside}
    for name in checkpoint:
        if checkpoint.in_file(name) not in of_experts:
            size = 4 * math.prod(checkpoint.shape_of(name))
            if files[-1] and taken + size > _BYTES:
                files.append([])
                taken = 0
            files[-1].append(name)
            taken += size
    return [names for names in files if names]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m sluice_torch.convert", description="Converts the experts of a checkpoint to an encoding.")
    parser.add_argument("source", help="a safetensors file, a folder with such files, or a GGUF file")
    parser.add_argument("target", help="a new folder; one of the same conversion that was interrupted is completed; or NAME.gguf, with bf16, int4:g32:f16 or mxfp4")
    parser.add_argument("--encode", required=True, help="what weights are stored as: bf16, int8, int4:g32, int4:g64z, mxfp4 and so on")
    parser.add_argument("--requantise", action="store_true", help="round codes of SOURCE to other codes, and print the error")
    given = parser.parse_args(arguments)
    try:
        made = convert(given.source, given.target, given.encode, requantise=given.requantise, progress=sys.stderr.isatty())
    except (ValueError, OSError) as error:
        print(f"convert: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"convert: interrupted; the same command goes on in {given.target}", file=sys.stderr)
        return 130
    print(f"{made.layers} layers of experts: {made.bytes_before / 2**20:.1f} MiB became {made.bytes_after / 2**20:.1f} MiB in {given.target}")
    if made.error is not None:
        print(f"codes were rounded a second time: error {made.error:.4f} of the numbers before, the largest of the layers converted now")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
