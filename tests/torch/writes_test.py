"""Every way in which Sluice writes into a layer that has run or was prepared: the next steps have the new numbers, whatever the
layer keeps between steps, and each tensor whose bytes changed has another version."""

import contextlib
import copy
import functools
import json
import pathlib
import tempfile
import unittest

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from grouped import grouped
from moe_eager import BOUND, eager, error, route
from sluice_torch import LoRAConfig
from sluice_torch.layers import sharding
from write_safetensors import write

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, TOKENS = 64, 128, 4, 2, 200
PREFIX = "model.layers.0.mlp.experts"
NAMES = ("gate_proj", "up_proj", "down_proj")

# What a layer keeps between steps: packed weights or codes, amaxes, nothing; and how much its result may differ from float32.
CACHES = {
    "packed": ({"pack_frozen": True}, BOUND),
    "packed float32": ({"pack_frozen": True, "dtype": torch.float32}, BOUND),
    "amaxes": ({"encode": "fp8e4m3"}, 0.08),
    "amaxes and packed": ({"encode": "fp8e4m3", "pack_frozen": True}, 0.08),
    "delayed amaxes": ({"encode": "fp8e4m3:delayed"}, 0.08),
    "blocks": ({"encode": "mxfp8", "pack_frozen": True}, 0.08),
    "int8": ({"encode": "int8,rows=int8", "pack_frozen": True}, 0.05),
    "int4": ({"encode": "int4:g32,rows=int8", "pack_frozen": True}, 0.3),
    "int4 by bf16": ({"encode": "int4:g32", "pack_frozen": True}, 0.3),
    "squares": ({"encode": "fp8e4m3:128x128", "pack_frozen": True}, 0.08),
    "powers": ({"encode": "mxfp4", "pack_frozen": True}, 0.3),
    "factors": ({"encode": "nvfp4", "pack_frozen": True}, 0.3),
    "places": ({"spare": 2, "pack_frozen": True}, BOUND),
}


def weights(seed, scale):
    """gate, up [E, I, H] and down [E, H, I], of numbers that bfloat16 has."""
    made = torch.Generator().manual_seed(seed)
    shapes = ((INTERMEDIATE, HIDDEN), (INTERMEDIATE, HIDDEN), (HIDDEN, INTERMEDIATE))
    return [(torch.randn(EXPERTS, *shape, generator=made) * scale).bfloat16().float() for shape in shapes]


# Ten times as large, so that old amaxes cut them.
OLD, NEW = weights(1, 0.05), weights(2, 0.5)


def make(**options):
    layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, **grouped(threads=2, **options))
    set_weights(layer, OLD)
    return layer.requires_grad_(False) if layer.lora is None else layer


def set_weights(layer, matrices):
    for row, expert in enumerate(layer.local_experts):
        sharding.set_expert(layer, row, *(each[expert] for each in matrices))


class Folder:
    """Folders with the new weights, written once, by kind of numbers."""

    @functools.lru_cache(None)
    def __new__(cls, kind):
        self = super().__new__(cls)
        self._folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self._folder.name)
        tensors = {
            f"{PREFIX}.{expert}.{name}.weight": (kind, each.shape[1:], each[expert].flatten().tolist())
            for expert in range(EXPERTS)
            for name, each in zip(NAMES, NEW)
        }
        write(self.path / "model.safetensors", tensors, align=8)
        return self


def loads(kind, among=contextlib.nullcontext, opened=lambda path: path):
    def load(layer):
        with among():
            sluice_torch.load_experts(opened(Folder(kind).path), layer, PREFIX)

    return load


def new_state(layer):
    other = copy.deepcopy(layer)
    set_weights(other, NEW)
    return {name: each for name, each in other.state_dict().items() if name != "_extra_state"}


def load_by_hand(layer):
    """FineTuning.load_weights() of a layer that is there."""
    tuning = sluice_torch.FineTuning(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, steps=sluice_torch.Steps(threads=2))
    tuning.layer = layer
    tuning.load_weights(*NEW)


def merge(layer):
    """merge_adapters() with adapters that make the new weights of the old ones."""
    config = LoRAConfig(HIDDEN)
    parameters = {}
    for target, old, new in zip(("gate", "up", "down"), OLD, NEW):
        wide = target == "down"
        change, one = new - old, torch.eye(HIDDEN).expand(EXPERTS, -1, -1)
        parameters[f"{target}_lora_a"] = change if wide else one
        parameters[f"{target}_lora_b"] = one if wide else change
    sluice_torch.lora.merge_adapters(config, parameters, layer.gate_up_weight, layer.down_weight)


def move(layer):
    """place() and back, with new weights between: copies are in other rows afterwards."""
    set_weights(layer, NEW)
    layer.place([*range(EXPERTS - 1, -1, -1), 0, 1])


def initialise(layer):
    set_weights(layer, NEW)
    before = seen(layer)
    layer.reset_parameters()
    check_versions(before, layer)
    set_weights(layer, NEW)


PLAIN, CODES = {"packed", "packed float32", "amaxes", "amaxes and packed", "delayed amaxes", "blocks"}, {"int8", "int4", "int4 by bf16", "squares", "powers", "factors"}
ALL = PLAIN | CODES | {"places"}
DELAYED = {"delayed amaxes"}  # scales of rows are for those of earlier steps, unless the way says that weights are others
# Each way, and the caches that a layer can have with it.
WAYS = {
    "load_experts of the layer's own type": (loads("BF16"), ALL),
    "load_experts of a wider type": (loads("F32"), ALL),
    "load_experts of another type": (loads("F16"), ALL),
    "load_experts in inference mode": (loads("BF16", torch.inference_mode), ALL),
    "load_experts of an open checkpoint": (loads("BF16", opened=sluice_torch.Checkpoint), PLAIN),
    "load_state_dict": (lambda layer: layer.load_state_dict(new_state(layer)), ALL),
    "set_expert": (lambda layer: set_weights(layer, NEW), ALL - DELAYED),
    "load_weights": (load_by_hand, PLAIN | CODES),
    "merge_adapters": (merge, PLAIN - DELAYED),
    "reset_parameters": (initialise, ALL),
    "place": (move, {"places"}),
}


class Batch:
    """A step's tensors."""

    def __init__(self, tokens=TOKENS, seed=3):
        made = torch.Generator().manual_seed(seed)
        self.x = torch.randn(tokens, HIDDEN, generator=made).bfloat16()
        self.dy = torch.randn(tokens, HIDDEN, generator=made).bfloat16()
        self.ids, self.weights = route(tokens, EXPERTS, TOP_K, seed)


BATCH = Batch()


def steps(layer):
    """y of a step without gradients; y and the gradients of x and the weights of tokens with gradients."""
    with torch.no_grad():
        found = [layer(BATCH.x, BATCH.ids, BATCH.weights)]
    x, given = BATCH.x.clone().requires_grad_(), BATCH.weights.clone().requires_grad_()
    y = layer(x, BATCH.ids, given)
    return [*found, y.detach(), *torch.autograd.grad(y, (x, given), BATCH.dy)]


def plain_steps(matrices):
    """The same in plain PyTorch, in float32."""
    x, given = BATCH.x.float().requires_grad_(), BATCH.weights.clone().requires_grad_()
    y = eager(x, BATCH.ids, given, torch.cat(matrices[:2], 1), matrices[2])
    return [y.detach(), y.detach(), *torch.autograd.grad(y, (x, given), BATCH.dy.float())]


def tensors_of(layer):
    return {name: each for name, each in layer.state_dict(keep_vars=True).items() if name != "_extra_state"}


def seen(layer):
    return {name: (each, each._version, each.detach().clone()) for name, each in tensors_of(layer).items()}


def check_versions(before, layer):
    """Bytes that changed are in another tensor, or have another version."""
    for name, each in tensors_of(layer).items():
        old, version, numbers = before[name]
        if not torch.equal(each, numbers):
            assert each is not old or each._version > version, f"{name} has changed, but not its version"


class WritesTest(unittest.TestCase):
    def test_the_next_steps_have_the_new_numbers(self):
        expected, unwanted = plain_steps(NEW), plain_steps(OLD)
        for cache, (options, bound) in CACHES.items():
            for way, (change, caches) in WAYS.items():
                if cache not in caches:
                    continue
                with self.subTest(cache=cache, way=way):
                    layer = make(**options)
                    if not layer.shape.encodings.facts.has_scales:
                        layer.prepare()
                    found = steps(layer)
                    self.assertLess(max(map(error, found, unwanted)), bound, "before")
                    before = seen(layer)
                    change(layer)
                    check_versions(before, layer)
                    found = steps(layer)
                    self.assertLess(max(map(error, found, expected)), bound)

    def test_adapters_that_are_loaded_are_those_of_the_next_step(self):
        for targets in (("gate", "up", "down"), ("down",), ("up", "down")):
            drawn = adapters(targets)
            expected = plain_steps([old + drawn.get(target, 0) for target, old in zip(("gate", "up", "down"), OLD)])
            for cache in sorted(PLAIN - DELAYED):
                options, bound = CACHES[cache]
                with self.subTest(targets=targets, cache=cache):
                    layer = make(lora=LoRAConfig(RANK, targets=targets), **{**options, "dtype": torch.float32})
                    self.assertGreater(max(map(error, steps(layer), expected)), 0.3, "before")
                    before = seen(layer)
                    with tempfile.TemporaryDirectory() as folder:
                        write_adapters(pathlib.Path(folder), drawn)
                        sluice_torch.load_adapters(folder, {PREFIX: layer})
                    check_versions(before, layer)
                    self.assertLess(max(map(error, steps(layer), expected)), 1.5 * bound)

    def test_ranks_that_exchange_weights_have_the_new_ones(self):
        core_jobs.run_ranks(self, "exchanges", 2)


RANK = 32


def adapters(targets):
    """By target: what A and B are, and under the target's name B A, [E, out, in]."""
    made, found = torch.Generator().manual_seed(9), {}
    for target, name, old in zip(("gate", "up", "down"), NAMES, OLD):
        if target in targets:
            a, b = (torch.randn(EXPERTS, *shape, generator=made) / 10 for shape in ((RANK, old.shape[2]), (old.shape[1], RANK)))
            found[target], found[f"{name} A"], found[f"{name} B"] = b.bfloat16().float() @ a.bfloat16().float(), a, b
    return found


def write_adapters(folder, drawn):
    tensors = {
        f"base_model.model.{PREFIX}.{expert}.{key[:-2]}.lora_{key[-1]}.weight": (
            "F32", each.shape[1:], each[expert].flatten().tolist(),
        )
        for key, each in drawn.items()
        if key[-2] == " "
        for expert in range(EXPERTS)
    }  # fmt: skip
    write(folder / "adapter_model.safetensors", tensors)
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": list(NAMES)}
    (folder / "adapter_config.json").write_text(json.dumps(config))


def exchanges(rank, size):
    """Ways that are collective, at two ranks with places: copies get weights of other ranks."""
    expected = plain_steps(NEW)
    ways = {
        "load_experts": loads("BF16"),
        "reset_parameters": initialise,
        "place": lambda layer: (set_weights(layer, NEW), layer.place([3, 2, 1, 0, 3, 1])),
        "balance": lambda layer: (set_weights(layer, NEW), sluice_torch.balance(layer)),
    }
    for cache in ("packed", "amaxes and packed"):
        options, bound = CACHES[cache]
        for way, change in ways.items():
            layer = make(ep_group=dist.group.WORLD, spare=2, **options)
            steps(layer)
            before = seen(layer)
            change(layer)
            check_versions(before, layer)
            worst = max(map(error, steps(layer), expected))
            assert worst < bound, (cache, way, worst)


if __name__ == "__main__":
    if not core_jobs.main({"exchanges": exchanges}):
        unittest.main()
