"""Adapters in the files of the PEFT library: written here by other means than they are read, and read by others than
they are written."""

import json
import pathlib
import random
import struct
import tempfile
import unittest

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from grouped import grouped
from moe_eager import BOUND, error, route
from sluice_torch.lora import LoRAConfig
from write_safetensors import write

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, RANK, ALPHA = 64, 32, 4, 2, 4, 6
PREFIX = "model.layers.3.mlp.experts"
NAMES = ("gate_proj", "up_proj", "down_proj")
TARGETS = ("gate", "up", "down")
SIZES = {"gate_proj": (INTERMEDIATE, HIDDEN), "up_proj": (INTERMEDIATE, HIDDEN), "down_proj": (HIDDEN, INTERMEDIATE)}
CONFIG = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "base_model_name_or_path": "someone/some-model",
    "r": RANK,
    "lora_alpha": ALPHA,
    "lora_dropout": 0.05,
    "bias": "none",
    "target_modules": ["q_proj", *NAMES],
    "use_rslora": False,
    "use_dora": False,
    "fan_in_fan_out": False,
    "rank_pattern": {},
    "alpha_pattern": {},
    "modules_to_save": None,
    "init_lora_weights": True,
}


# With these changes of the configuration, the file's tensors are the layer's adapters.
ACCEPTED = (
    *({"init_lora_weights": how} for how in (True, False, "gaussian", "eva", "orthogonal")),
    {"eva_config": {"rho": 2.0, "tau": 0.99}, "loftq_config": {}, "corda_config": None, "lora_ga_config": None},
    {"revision": None, "inference_mode": True, "auto_mapping": {"base_model_class": "Qwen3MoeForCausalLM"}, "peft_version": "0.18.0"},
    {"use_qalora": False, "qalora_group_size": 16, "layer_replication": None, "megatron_config": None, "megatron_core": "megatron.core"},
    {"trainable_token_indices": None, "ensure_weight_tying": False, "arrow_config": None, "use_bdlora": None, "velora_config": None},
    {"exclude_modules": None},
    {"exclude_modules": ["q_proj", "shared_experts"]},
    {"exclude_modules": ["proj", "0.gate_pro"]},  # neither a module nor the end of its name after a point
    {"exclude_modules": r".*layers\.1\.mlp.*"},
    {"exclude_modules": "gate_proj"},  # a pattern for the whole name
    {"modules_to_save": ["lm_head", "norm"]},
    {"layers_to_transform": 3},
    {"layers_to_transform": [1, 3], "layers_pattern": None},
    {"layers_to_transform": [3], "layers_pattern": "layers"},
    {"layers_to_transform": [3], "layers_pattern": ["h", "layers"]},
    {"layers_to_transform": [], "layers_pattern": []},
    {"target_modules": "all-linear"},
    {"target_modules": r"(?i).*EXPERTS\.\d\.(GATE|up|down)_proj"},
)
# The same, which PEFT would use otherwise or not at all; and what is said of them.
REFUSED = (
    *(({"init_lora_weights": how}, f"init_lora_weights is '{how}', expected True or False or")
      for how in ("pissa", "pissa_niter_16", "olora", "corda", "loftq", "lora_ga", "mica", "new")),
    ({"init_lora_weights": ["pissa"]}, r"init_lora_weights is \['pissa'\], expected"),
    ({"exclude_modules": ["gate_proj"]}, r"exclude_modules is \['gate_proj'\], which has .*experts.0.gate_proj"),
    ({"exclude_modules": [f"{PREFIX}.3.down_proj"]}, "exclude_modules is .*, which has .*experts.3.down_proj"),
    ({"exclude_modules": r".*\.2\.up_proj"}, "exclude_modules is .*, which has .*experts.2.up_proj"),
    ({"exclude_modules": "("}, r"'\(' is no regular expression"),
    ({"exclude_modules": 3}, "exclude_modules is 3, expected a text or a list of texts"),
    ({"modules_to_save": ["experts"]}, r"modules_to_save is \['experts'\], which has .*0.gate_proj"),
    ({"layers_to_transform": [1, 2]}, r"layers_to_transform is \[1, 2\], but .*experts.0.gate_proj has layer 3"),
    ({"layers_to_transform": 0}, "layers_to_transform is 0, but .* has layer 3"),
    ({"layers_to_transform": [3], "layers_pattern": "experts"}, r"layers_to_transform is \[3\], but .* has layer 0"),
    ({"layers_to_transform": [3], "layers_pattern": ["h", "blocks"]}, "layers_to_transform is .*, but .* has no number of a layer"),
    ({"layers_to_transform": [3], "layers_pattern": "["}, ".* is no regular expression"),
    ({"layers_to_transform": "3"}, "layers_to_transform is '3', expected a whole number or a list of them"),
    ({"layers_to_transform": [True]}, r"layers_to_transform is \[True\], expected a whole number"),
    ({"layers_to_transform": [3], "target_modules": ".*_proj"}, "layers_to_transform is .*, expected none with target_modules that is"),
    ({"layers_pattern": "layers"}, "layers_pattern is 'layers', expected none without layers_to_transform"),
    ({"target_modules": [1]}, r"target_modules is \[1\], expected a text or a list of texts"),
    ({"lora_dropout": -1}, "lora_dropout is -1, expected a number from 0 to 1"),
    ({"lora_dropout": "0.1"}, "lora_dropout is '0.1', expected a number from 0 to 1"),
    ({"use_rslora": "no"}, "use_rslora is 'no', expected True or False"),
    *(({name: value}, f"{name} is .*, expected ") for name, value in (
        ("layer_replication", [[0, 4], [2, 6]]), ("megatron_config", {"tp": 2}), ("loftq_config", {"loftq_bits": 4}),
        ("corda_config", {"corda_method": "kpm"}), ("lora_ga_config", {"scale": "stable"}), ("velora_config", {}),
        ("monteclora_config", {}), ("kasa_config", {}), ("arrow_config", {}), ("use_bdlora", {"nblocks": 2}),
    )),
    *(({name: value}, f"{name} is .*, expected a configuration without this key") for name, value in (
        ("use_new", True), ("use_new", False), ("new_config", None), ("R", 4), ("", 1),
    )),
)  # fmt: skip


def key(expert, name, side, prefix=PREFIX):
    return f"base_model.model.{prefix}.{expert}.{name}.lora_{side}.weight"


def drawn(names=NAMES, prefix=PREFIX, rank=RANK, kind="F32", seed=1):
    """The tensors of all experts, of numbers that bfloat16 has."""
    draw, made = random.Random(seed), {}
    for expert in range(EXPERTS):
        for name, (out, length) in zip(names, SIZES.values()):
            for side, shape in (("A", (rank, length)), ("B", (out, rank))):
                numbers = [draw.randrange(-64, 64) / 256 for _ in range(shape[0] * shape[1])]
                made[key(expert, name, side, prefix)] = (kind, shape, numbers)
    return made


class Folder:
    """A folder of PEFT with these tensors; `changes` are of its configuration."""

    def __init__(self, tensors, **changes):
        self._folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self._folder.name)
        write(self.path / "adapter_model.safetensors", tensors)
        (self.path / "adapter_config.json").write_text(json.dumps({**CONFIG, **changes}))

    def __del__(self):
        self._folder.cleanup()


def load(folder, layers, *names):
    return sluice_torch.load_adapters(folder.path, layers, *names)


def make(lora=LoRAConfig(RANK, ALPHA), seed=0, **options):
    torch.manual_seed(seed)
    return sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, lora=lora, **grouped(threads=2, **options))


def matrix(tensors, expert, name, side, prefix=PREFIX):
    _, shape, numbers = tensors[key(expert, name, side, prefix)]
    return torch.tensor(numbers).view(shape)


def read(path):
    """name -> (type, shape, numbers) of a safetensors file, whose tensors must fill it without gaps."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, at, found = json.loads(data[8 : 8 + length]), 8 + length, {}
    header.pop("__metadata__")
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = entry["data_offsets"]
        assert first + 8 + length == at, name
        at = 8 + length + last
        own = data[8 + length + first : at]
        if entry["dtype"] == "BF16":
            numbers = [struct.unpack("<f", b"\0\0" + own[i : i + 2])[0] for i in range(0, len(own), 2)]
        else:
            numbers = list(struct.unpack(f"<{len(own) // 4}f", own))
        found[name] = (entry["dtype"], tuple(entry["shape"]), numbers)
    assert at == len(data)
    return found


class Linear(torch.nn.Module):
    """A linear layer with an adapter, as PEFT computes it."""

    def __init__(self, weight, a, b, scaling):
        super().__init__()
        self.weight, self.a, self.b, self.scaling = weight, a, b, scaling

    def forward(self, x):
        linear = torch.nn.functional.linear
        return linear(x, self.weight) + self.scaling * linear(linear(x, self.a), self.b)


def plain(layer, tensors, scaling, x, ids, weights):
    """y of a loop over experts with the adapters of `tensors`, in float32."""
    y = torch.zeros(x.shape)
    for expert in range(EXPERTS):
        matrices = (*layer.gate_up_weight[expert].float().chunk(2), layer.down_weight[expert].float())
        gate, up, down = (
            Linear(each, matrix(tensors, expert, name, "A"), matrix(tensors, expert, name, "B"), scaling)
            for name, each in zip(NAMES, matrices)
        )
        token, k = (ids == expert).nonzero(as_tuple=True)
        rows = x[token].float()
        y.index_add_(0, token, down(torch.nn.functional.silu(gate(rows)) * up(rows)) * weights[token, k][:, None])
    return y


class AdaptersTest(unittest.TestCase):
    def check(self, layer, tensors, names=NAMES, prefix=PREFIX):
        for row, expert in enumerate(layer.local_experts):
            for target in layer.lora.targets:
                for side in "ab":
                    expected = matrix(tensors, expert, names[TARGETS.index(target)], side.upper(), prefix)
                    self.assertTrue(torch.equal(getattr(layer, f"{target}_lora_{side}")[row].float(), expected), (expert, target))

    def test_a_loaded_layer_computes_what_plain_pytorch_does(self):
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(50, HIDDEN, generator=generator).bfloat16()
        ids, weights = route(50, EXPERTS, TOP_K, 1)
        for changes, scaling in (({}, ALPHA / RANK), ({"use_rslora": True}, ALPHA / RANK**0.5)):
            tensors = drawn()
            folder = Folder(tensors, **changes)
            config = sluice_torch.adapter_config(folder.path, PREFIX)
            self.assertEqual((config.rank, config.scaling, config.targets), (RANK, scaling, TARGETS))
            layer = make(config).eval()
            before = layer(x, ids, weights)
            self.assertEqual(sluice_torch.load_adapters(folder.path, {PREFIX: layer}), [])
            self.check(layer, tensors)
            with torch.no_grad():
                y = plain(layer, tensors, scaling, x, ids, weights)
                self.assertLess(error(layer(x, ids, weights), y), BOUND)
                self.assertGreater(error(before, y), 10 * BOUND)

    def test_training_with_dropout_of_adapters_is_refused(self):
        x, (ids, weights) = torch.randn(50, HIDDEN).bfloat16(), route(50, EXPERTS, TOP_K, 1)
        steps = {
            "forward": lambda layer: layer(x, ids, weights),
            "forward_sorted": lambda layer: layer.forward_sorted(x[:4], torch.tensor([1, 1, 2, 0])),
            "prepare": lambda layer: layer.prepare_backward(),
        }
        for dropout, trains in ((0.05, False), (1, False), (1e-9, False), (0.0, True), (0, True), (None, True)):
            layer = make()
            load(Folder(drawn(), lora_dropout=dropout), {PREFIX: layer})
            for name, step in steps.items():
                with self.subTest(dropout=dropout, step=name):
                    layer.train()
                    if not trains:
                        with self.assertRaisesRegex(RuntimeError, f"lora_dropout is {float(dropout)}, which a layer in training mode"):
                            step(layer)
                        with torch.no_grad(), self.assertRaisesRegex(RuntimeError, "lora_dropout"):
                            step(layer)
                        layer.eval()
                    step(layer)
            with tempfile.TemporaryDirectory() as folder:
                sluice_torch.save_adapters(folder, {PREFIX: layer})
                written = json.loads((pathlib.Path(folder) / "adapter_config.json").read_text())
            self.assertEqual(written["lora_dropout"], dropout or 0)
            layer.lora_dropout = 0.0  # as the message says
            steps["forward"](layer.train())

    def test_configurations_that_are_known_are_accepted_and_all_others_refused_by_name(self):
        tensors, layer = drawn(), make()
        for changes in ACCEPTED:
            with self.subTest(**changes):
                folder = Folder(tensors, **changes)
                self.assertEqual(sluice_torch.adapter_config(folder.path, PREFIX).rank, RANK)
                load(folder, {PREFIX: layer})
        before = {name: each.clone() for name, each in layer.state_dict().items()}
        for changes, expected in REFUSED:
            with self.subTest(**changes):
                with self.assertRaisesRegex(ValueError, f"adapter_config.json: {expected}"):
                    load(Folder(tensors, **changes), {PREFIX: layer})
        for name, each in layer.state_dict().items():
            self.assertTrue(torch.equal(each, before[name]), name)

    def test_types_names_and_weights_of_codes(self):
        for kind in ("F32", "F16", "BF16"):
            tensors = drawn(kind=kind)
            for options in ({"dtype": torch.float32}, {}, {"encode": "int8,rows=int8"}, {"encode": "int4:g32,rows=int8"}):
                with self.subTest(kind=kind, **options):
                    layer = make(**options)
                    load(Folder(tensors), {PREFIX: layer})
                    self.check(layer, tensors)
        names, prefix = ("w1", "w3", "w2"), "model.layers.0.block_sparse_moe.experts"
        tensors = drawn(names, prefix)
        layer = make()
        load(Folder(tensors, target_modules=r".*\.w\d"), {prefix: layer}, names)
        self.check(layer, tensors, names, prefix)

    def test_layers_of_a_model_and_what_belongs_to_none(self):
        prefixes = [f"model.layers.{n}.mlp.experts" for n in (1, 11)]
        parts = [drawn(prefix=prefix, seed=seed) for seed, prefix in enumerate(prefixes)]
        attention = {"base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight": ("F32", (2, 3), [0.5] * 6)}
        folder = Folder({**parts[0], **parts[1], **attention})
        layers = {prefix: make() for prefix in prefixes}
        self.assertEqual(sluice_torch.load_adapters(folder.path, layers), list(attention))
        for prefix, tensors in zip(prefixes, parts):
            self.check(layers[prefix], tensors, prefix=prefix)
        left = sluice_torch.load_adapters(folder.path, {prefixes[0]: layers[prefixes[0]]})
        self.assertEqual(set(left), {*parts[1], *attention})

    def test_patterns_give_experts_another_rank(self):
        tensors = drawn(NAMES[:2], rank=8)
        lora = LoRAConfig(8, 4, ("gate", "up"))
        patterns = {"rank_pattern": {r"layers\.3\.mlp\.experts\.\d+\.(gate|up)_proj": 8}, "alpha_pattern": {"gate_proj": 4, "up_proj": 4}}
        folder = Folder(tensors, **patterns)
        self.assertEqual(sluice_torch.adapter_config(folder.path, PREFIX), lora)
        layer = make(lora)
        sluice_torch.load_adapters(folder.path, {PREFIX: layer})
        self.check(layer, tensors)
        patterns["rank_pattern"] = {r"experts\.2\.up_proj": 8}
        with self.assertRaisesRegex(ValueError, r"experts.2.up_proj has r=8, scaling 0.5, but earlier experts have r=4, scaling 1"):
            load(Folder(tensors, **patterns), {PREFIX: layer})

    def test_saved_files_have_the_names_and_numbers_of_peft(self):
        tensors = drawn()
        for kind, dtype in (("F32", torch.float32), ("BF16", torch.bfloat16)):
            layer = make(dtype=dtype)
            load(Folder(tensors), {PREFIX: layer})
            with tempfile.TemporaryDirectory() as parent:
                path = pathlib.Path(parent) / "new" / "folder"
                sluice_torch.save_adapters(path, {PREFIX: layer}, base_model="someone/some-model", task_type="CAUSAL_LM")
                self.assertEqual(sorted(each.name for each in path.iterdir()), ["adapter_config.json", "adapter_model.safetensors"])
                found = read(path / "adapter_model.safetensors")
                self.assertEqual(found, {name: (kind, *each[1:]) for name, each in tensors.items()})
                config = json.loads((path / "adapter_config.json").read_text())
                for name in ("peft_type", "task_type", "base_model_name_or_path", "r", "lora_alpha", "bias", "use_rslora"):
                    self.assertEqual(config[name], CONFIG[name], name)
                self.assertRegex(f"{PREFIX}.3.down_proj", f"^{config['target_modules']}$")
                self.assertNotRegex("model.layers.3.mlp.shared_experts.down_proj", f"^{config['target_modules']}$")
                self.assertEqual(sluice_torch.adapter_config(path, PREFIX), layer.lora)
                other = make(dtype=dtype, seed=1)
                self.assertEqual(sluice_torch.load_adapters(path, {PREFIX: other}), [])
                self.check(other, tensors)
                self.assertEqual((path / "adapter_config.json").stat().st_mode & 0o777, (path.stat().st_mode & 0o666))

    def test_a_failed_save_leaves_what_was_there(self):
        layer = make()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            sluice_torch.save_adapters(path, {PREFIX: layer})
            before = (path / "adapter_config.json").read_bytes()
            (path / "adapter_model.safetensors").unlink()
            (path / "adapter_model.safetensors").mkdir()  # cannot be replaced by a file
            with self.assertRaisesRegex(RuntimeError, "cannot write adapters: Is a directory"):
                sluice_torch.save_adapters(path, {PREFIX: layer}, base_model="another")
            self.assertEqual((path / "adapter_config.json").read_bytes(), before)
            self.assertEqual(len(list(path.iterdir())), 2)
        with self.assertRaisesRegex(ValueError, "no layers are given"):
            sluice_torch.save_adapters("unused", {})
        with self.assertRaisesRegex(ValueError, "layers have adapters .*rank=4.*rank=2.*expected the same ones"):
            sluice_torch.save_adapters("unused", {PREFIX: layer, "other": make(LoRAConfig(2))})

    def test_what_is_wrong_is_refused_and_changes_no_layer(self):
        tensors = drawn()
        layer = make(seed=5)
        before = {name: each.clone() for name, each in layer.state_dict().items()}

        def refused(expected, layer=layer, tensors=tensors, **changes):
            folder = Folder(tensors, **changes)
            with self.assertRaisesRegex(ValueError, expected):
                sluice_torch.load_adapters(folder.path, {PREFIX: layer})

        def without(name):
            return {each: value for each, value in tensors.items() if each != name}

        last = key(3, "down_proj", "B")
        refused(f"adapter_model.safetensors has no {last}", tensors=without(last))
        refused("has no base_model.model.*E.NAME.lora_A.weight", tensors=drawn(prefix="other"))
        refused(r"lora_B.weight is F32 \[4, 64\], expected \[64, 4\]", tensors={**tensors, last: ("F32", (4, 64), [0] * 256)})
        refused(r"lora_B.weight is I32 \[64, 4\], expected \[64, 4\] of F32", tensors={**tensors, last: ("I32", (64, 4), [0] * 256)})
        refused("have rank 8, but the layer's have 4: make it with lora=LoRAConfig", r=8)
        refused("have scaling 2, but the layer's have 1.5", lora_alpha=8)
        refused("have scaling 3, but the layer's have 1.5", use_rslora=True)
        refused("r gives .*_proj r=0, expected a whole number", r=0)
        refused("lora_alpha gives .*_proj lora_alpha=None, expected a positive", lora_alpha=None)
        refused("target_modules is .*'q_proj', 'up_proj'.*, which does not have .*0.gate_proj", target_modules=["q_proj", "up_proj"])
        refused("target_modules is '.*q_proj', which does not have", target_modules=r".*q_proj")
        refused(r"'\(' is no regular expression", target_modules="(")
        refused("4.gate_proj.lora_A.weight, but the layer has 4 experts", tensors={**tensors, key(4, "gate_proj", "A"): ("F32", (4, 64), [0] * 256)})
        for unknown in (key(0, "out_proj", "A"), key(0, "gate_proj", "A").replace("lora_A", "lora_magnitude_vector")):
            refused(f"has {unknown}, expected E.NAME.lora_A", tensors={**tensors, unknown: ("F32", (4, 64), [0] * 256)})
        refused("are at .*'gate', 'up', 'down'.*, but the layer's at", make(LoRAConfig(RANK, ALPHA, ("up",))))
        refused("has no adapters: make it with lora=", make(lora=None))
        refused("is of type Linear, expected sluice_torch.MoE", torch.nn.Linear(1, 1))
        small = sluice_torch.MoE(HIDDEN, 16, EXPERTS, TOP_K, lora=LoRAConfig(RANK, ALPHA))
        refused(r"gate_proj.lora_B.weight is F32 \[32, 4\], expected \[16, 4\]", small)
        for name, value in (
            ("peft_type", "LOHA"),
            ("use_dora", True),
            ("lora_bias", True),
            ("bias", "all"),
            ("fan_in_fan_out", True),
            ("target_parameters", ["mlp.experts.gate_up_proj"]),
            ("rank_pattern", [1]),
        ):
            refused(f"adapter_config.json: {name} is ", **{name: value})
        for name, each in layer.state_dict().items():
            self.assertTrue(torch.equal(each, before[name]), name)

    def test_broken_files_are_refused(self):
        folder, layer = Folder(drawn()), make()
        model, config = folder.path / "adapter_model.safetensors", folder.path / "adapter_config.json"

        def refused(expected):
            with self.assertRaisesRegex(ValueError, expected):
                sluice_torch.load_adapters(folder.path, {PREFIX: layer})

        whole = model.read_bytes()
        model.write_bytes(whole[:-4])
        refused("the file is truncated")
        model.unlink()
        refused("has no adapter_model.safetensors")
        config.write_text("[1]")
        refused("adapter_config.json: expected a JSON object")
        config.write_text("{")
        refused("adapter_config.json: expected a JSON object")
        config.unlink()
        refused("adapter_config.json: cannot read: No such file")
        with self.assertRaisesRegex(ValueError, "names are .*expected three different ones"):
            sluice_torch.load_adapters(folder.path, {PREFIX: layer}, ("a", "b"))

    def test_ranks_read_their_parts_and_write_one_file(self):
        for size in (2, 4):
            with self.subTest(ranks=size):
                core_jobs.run_ranks(self, "ranks", size)


def ranks(rank, size):
    tensors = drawn()
    folder = Folder(tensors)
    for mesh in ({}, {"tp": 2}, {"spare": 4}):
        layer = make(ep_group=dist.group.WORLD, timeout=20, **mesh)
        sluice_torch.load_adapters(folder.path, {PREFIX: layer})
        columns = slice(layer.shard * layer.shape.part, (layer.shard + 1) * layer.shape.part)
        for row, expert in enumerate(layer.local_experts):
            for target, name in zip(TARGETS, NAMES):
                a, b = (matrix(tensors, expert, name, side) for side in "AB")
                a, b = (a[:, columns], b) if target == "down" else (a, b[columns])
                assert torch.equal(getattr(layer, f"{target}_lora_a")[row].float(), a), (mesh, expert, name)
                assert torch.equal(getattr(layer, f"{target}_lora_b")[row].float(), b), (mesh, expert, name)
        saved = [folder.path / f"saved-{len(mesh)}{next(iter(mesh), '')}"]
        dist.broadcast_object_list(saved)
        sluice_torch.save_adapters(saved[0], {PREFIX: layer})
        if rank == 0:
            found = read(saved[0] / "adapter_model.safetensors")
            assert found == {name: ("BF16", *each[1:]) for name, each in tensors.items()}, mesh
            (saved[0] / "adapter_model.safetensors").unlink()
            (saved[0] / "adapter_model.safetensors").mkdir()
        dist.barrier()
        try:
            sluice_torch.save_adapters(saved[0], {PREFIX: layer})
        except RuntimeError as error:
            assert ("" if rank == 0 else "rank 0: ") in str(error) and "cannot write adapters" in str(error), error
        else:
            raise AssertionError("a failed save is one at all ranks")


if __name__ == "__main__" and not core_jobs.main({"ranks": ranks}):
    unittest.main()
