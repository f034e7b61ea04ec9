"""Whole models from files: every parameter, in any format that load_experts() takes."""

import functools
import typing

import torch

from ..base.tensors import in_memory
from ..graphs import BIASES, WEIGHTS
from ..layers import sharding
from ..layers.moe import MoE
from ..state import replaced_layers
from . import formats, loading, sources
from .checkpoint import NUMBERS, Checkpoint
from .gguf import is_gguf
from .gguf_models import GgufModel

_SHOWN = 5  # names in a message
# The beginnings of the names of a layer's parameters without adapters.
_OF_EXPERTS = (*WEIGHTS, *BIASES)


class Loaded(typing.NamedTuple):
    """What load_model() did that the model does not show."""

    decoded: list[str]  # parameters that got the numbers of codes
    mapped: list[str]  # parameters whose memory is the file's
    kept: list[str]  # buffers and adapters that are not in the files
    left_over: list[str]  # tensors of the files that the model does not have


@torch.no_grad()
def load_model(model: torch.nn.Module, path, *, strict: bool = True, progress: bool = False) -> Loaded:
    """Sets every parameter of a model, and each buffer that the files have.

    model     any module. Its blocks may be replaced (replace_moe), in any encoding. Parameters on meta get memory. Parameters keep
              their type; those that are no experts, and experts in an encoding without the codes of the files, get their numbers.
    path      a safetensors file, a folder with such files, or a Checkpoint; or a GGUF file of an architecture of gguf_models.py, whose
              parameters have the names of transformers in the model. Experts have the names that they had before
              replace_moe(), "gate_proj", "up_proj" and "down_proj", "w1", "w3" and "w2" or the stacked "gate_up_proj" and
              "down_proj", also as gpt-oss has them; or the names of the layer's own parameters, in its encoding, as sluice_torch.convert writes them. Then codes
              of a layer on meta are not copied: their memory is the file's, whose pages are read when they are used.
    strict    False: tensors that the model does not have are left over instead of refused
    progress  True: shows a bar (package tqdm)

    Each rank reads its experts and its shard of them. At any time one expert or one other tensor is held beside the model.
    ValueError: a tensor that is missing, left over, damaged, or of another type or shape. What headers of files show is found
    before anything is changed. After any other error parameters that were on meta are there again.
    """
    plan = _Plan(model, open_model(path))
    if strict and plan.loaded.left_over:
        raise ValueError(f"{plan.checkpoint.path} has {_some(plan.loaded.left_over)}, which the model does not have; strict=False leaves them")
    plan.run(progress)
    return plan.loaded


def open_model(path) -> Checkpoint | GgufModel:
    """The tensors of a model's files."""
    if is_gguf(path):
        return GgufModel(path)
    return (path if isinstance(path, Checkpoint) else Checkpoint(path)).reopened()


class _Plan:
    """What each parameter of a model gets from which tensors, checked as far as headers of files go."""

    def __init__(self, model: torch.nn.Module, checkpoint: Checkpoint | GgufModel):
        self.checkpoint, self.loaded = checkpoint, Loaded([], [], [], [])
        self._steps = []  # functions without arguments
        self._used = set()  # names in the files
        every, inside = _places(model).values(), set()
        self._before = [(module, name, tensor) for tensor, places in every if tensor.is_meta for _, module, name in places]
        for layer in _layers(model):
            own = {name: each for name, each in layer.module.named_parameters(recurse=False) if name.startswith(_OF_EXPERTS)}
            inside.update(id(each) for each in (*own.values(), *layer.module.buffers(recurse=False)))
            prefix = next((each for each in (layer.prefix, f"{layer.original}.") if each + WEIGHTS[0] in checkpoint), None)
            if prefix is None:
                self._add_experts(layer)
            else:
                self._add_own(layer.module, prefix, own)
        for tensor, places in every:
            if id(tensor) not in inside:
                self._add_tensor(tensor, places)
        self.loaded.left_over.extend({name: None for name in map(checkpoint.in_file, checkpoint) if name not in self._used})

    def run(self, progress: bool):
        try:
            for step in loading.shown(self._steps, progress, "tensors"):
                step()
                self.checkpoint.release()
        except BaseException:
            for module, name, tensor in self._before:
                setattr(module, name, tensor)
            raise

    def _use(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, if its header is right."""
        self._used.add(self.checkpoint.in_file(name))
        return self.checkpoint.shape_of(name)

    def _add_experts(self, layer: "_Layer"):
        module, shape, checkpoint = layer.module, layer.module.shape, self.checkpoint
        source = sources.source_of(checkpoint, layer.original, shape, listed=layer.listed, stacked=layer.stacked)
        has_codes = False
        for base, part in source.bases(shape.experts):
            names = [name for name in (base, *_parts_of(base)) if name in checkpoint]
            if not names:
                raise ValueError(f"{checkpoint.path} has no {base}.weight, .qweight or .weight_packed")
            for name in names:
                sizes, is_plain = self._use(name), checkpoint.type_of(name) in NUMBERS
                has_codes |= not is_plain
                if part is not None and is_plain and name == f"{base}.weight":
                    loading.check_shape(shape, name, sizes, loading.parts(shape)[part])

        def step():
            by_numbers = loading.load_from(source, checkpoint, module, list(range(shape.experts)))
            self.loaded.decoded.extend(layer.prefix + name for name in by_numbers if has_codes)

        self._steps.append(step)

    def _add_own(self, layer: MoE, prefix: str, own: dict[str, torch.nn.Parameter]):
        """Experts as the layer has them, under `prefix`."""
        shape = layer.shape
        given = {name for name in sharding.OF_EXPERTS if name.startswith(_OF_EXPERTS) and prefix + name in self.checkpoint}
        if given != set(own):
            found, expected = (", ".join(sorted(names)) for names in (given, own))
            raise ValueError(f"{prefix.rstrip('.')} has {found} in the files, expected {expected} of {shape.encodings}")
        for name, parameter in own.items():
            self._use(prefix + name)
            whole, sizes = self.checkpoint[prefix + name], sharding.sizes_of_all(name, layer)
            are_numbers = name in _OF_EXPERTS and whole.is_floating_point() and parameter.is_floating_point()
            if tuple(whole.shape) != sizes or not (are_numbers or whole.dtype == parameter.dtype):
                found = f"{whole.dtype} {list(whole.shape)}"
                raise ValueError(f"{prefix}{name} is {found}, expected {parameter.dtype} {list(sizes)} of {shape.encodings}")
            self._steps.append(functools.partial(self._take_own, layer, name, whole, prefix))

    def _take_own(self, layer: MoE, name: str, whole: torch.Tensor, prefix: str):
        experts = layer.local_experts
        first, end = (experts[0], experts[0] + len(experts)) if experts else (0, 0)
        rows = whole[first:end] if experts == [*range(first, end)] else whole[experts]
        part, parameter = sharding.take(name, rows, layer.shard, layer.shape.tp, layer.shape.inputs), getattr(layer, name)
        may_be_mapped = parameter.is_meta and not parameter.requires_grad and part.dtype == parameter.dtype
        if may_be_mapped and self.checkpoint.has_memory(part):
            setattr(layer, name, torch.nn.Parameter(part, requires_grad=False))
            self.loaded.mapped.append(prefix + name)
            return
        if parameter.is_meta:
            setattr(layer, name, in_memory(parameter))
        self.checkpoint.copy_into(getattr(layer, name), part)
        layer.forget_amaxes()

    def _add_tensor(self, tensor: torch.Tensor, places: list[tuple[str, torch.nn.Module, str]]):
        """A parameter or buffer, which has several places if parts of the model share it."""
        checkpoint, names = self.checkpoint, [name for name, *_ in places]
        plain = next((each for each in names if each in checkpoint and checkpoint.has_numbers(each) == tensor.is_floating_point()), None)
        coded = next((name for name in names if name.endswith(".weight") and any(each in checkpoint for each in _parts_of(name[:-7]))), None)
        if plain is None and coded is None:
            owner = places[0][1]
            if tensor.is_meta or not (isinstance(owner, MoE) or places[0][2] in owner._buffers):
                raise ValueError(f"{checkpoint.path} has no {' or '.join(names)}, expected {list(tensor.shape)}")
            self.loaded.kept.append(names[0])  # a buffer, or an adapter
            return
        for name in names:  # a tensor that is shared may be there several times
            for each in (name, *(_parts_of(name[:-7]) if name.endswith(".weight") else ())):
                if each in checkpoint:
                    self._use(each)
        if plain is not None and checkpoint.shape_of(plain) != tuple(tensor.shape):
            raise ValueError(f"{plain} has shape {list(checkpoint.shape_of(plain))}, expected {list(tensor.shape)}")

        def step():
            given = checkpoint[plain] if plain is not None else formats.read(checkpoint, coded[:-7]).decoded()
            if given.shape != tensor.shape:
                raise ValueError(f"{coded} has shape {list(given.shape)}, expected {list(tensor.shape)}")
            target = tensor
            if tensor.is_meta:
                target = in_memory(tensor)
                for _, module, name in places:
                    setattr(module, name, target)
            checkpoint.copy_into(target.view(-1) if target.dim() == 0 else target, given.view(-1) if given.dim() == 0 else given)
            if plain is None or checkpoint.type_of(plain) not in NUMBERS and tensor.is_floating_point():
                self.loaded.decoded.append(names[0])

        self._steps.append(step)


class _Layer(typing.NamedTuple):
    """A layer of experts in a model."""

    prefix: str  # the names of its parameters begin with it
    module: MoE
    original: str  # the names of experts in files begin with it and a dot
    listed: tuple  # candidates for the names of matrices, as sources.source_of() takes them
    stacked: tuple


def _layers(model: torch.nn.Module) -> list[_Layer]:
    found = {}
    for place, prefix, layout, layer in replaced_layers(model):
        if layout.stacked:
            own = sources.StackedNames((layout.gate, layout.down), layout.biases, layout.in_turn)
            made = _Layer(prefix, layer, place[:-1], sources.LISTED, (own, *sources.STACKED))
        else:
            own = tuple(part.removesuffix(".weight") for part in layout.parts)
            made = _Layer(prefix, layer, f"{place}{layout.experts}", (own, *sources.LISTED), sources.STACKED)
        found.setdefault(id(layer), made)
    for path, module in model.named_modules():
        if isinstance(module, MoE):
            made = _Layer(f"{path}." if path else "", module, path, sources.LISTED, sources.STACKED)
            found.setdefault(id(module), made)
    return list(found.values())


def _places(model: torch.nn.Module) -> dict[int, tuple]:
    """Each parameter and buffer of the state_dict() with its places. ValueError: another buffer that is on meta."""
    found = {}
    for path, module in model.named_modules(remove_duplicate=False):
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is None:
                continue
            full = f"{path}.{name}" if path else name
            if name not in module._non_persistent_buffers_set:
                found.setdefault(id(tensor), (tensor, []))[1].append((full, module, name))
            elif tensor.is_meta:
                raise ValueError(f"{full} is on meta and in no file (persistent=False): expected its numbers")
    return found


def _parts_of(base: str) -> list[str]:
    return [f"{base}.{part}" for part in formats.PARTS]


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
