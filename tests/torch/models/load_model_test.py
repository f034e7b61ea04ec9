"""load_model() and convert: whole models from files, replaced or not, on meta or not, at one rank and several."""

import contextlib
import io
import os
import pathlib
import tempfile
import unittest
import unittest.mock

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from grouped import grouped
from models import layouts
from decoder import Decoder
from sluice_torch import convert, state
from sluice_torch.encodings import codes
from sluice_torch.weights import safetensors

HIDDEN = INTERMEDIATE = 128
EXPERTS = 8
KINDS = {name: layouts.LAYOUTS[name] for name in ("qwen3", "mixtral", "deepseek", "stacked", "transposed")}
ENCODINGS = ("bf16", "int8", "int4:g32", "int4:g64z", "int4:g32z:f16", "int4:g32:bf16", "fp8e4m3:128x128", "mxfp4", "nvfp4")


def model_of(kind="qwen3", seed=0):
    """A model of numbers that bfloat16 holds."""
    torch.manual_seed(seed)
    made = Decoder(lambda: KINDS[kind](hidden=HIDDEN, intermediate=INTERMEDIATE, experts=EXPERTS), hidden=HIDDEN)
    for parameter in made.parameters():
        parameter.data = parameter.data.bfloat16().float()
    return made


class Folder:
    """A folder with a file of tensors, until the process ends."""

    _every = []

    def __init__(self, tensors, kinds=None):
        self._folder = tempfile.TemporaryDirectory()
        self._every.append(self._folder)
        self.path = pathlib.Path(self._folder.name)
        safetensors.write(self.path / "model.safetensors", tensors, kinds)

    def target(self, name="made"):
        return self.path / "targets" / name


def replaced(kind="qwen3", meta=True, seed=1, **options):
    """A model that is to be loaded."""
    made = model_of(kind, seed)
    made = made.to("meta") if meta else made
    sluice_torch.replace_moe(made, **grouped(**options))
    return made


def assert_same(test, found, expected):
    """The same names, types and bits."""
    test.assertEqual(list(found), list(expected))
    for name, tensor in expected.items():
        if isinstance(tensor, torch.Tensor):
            test.assertEqual((found[name].dtype, found[name].shape), (tensor.dtype, tensor.shape), name)
            test.assertTrue(torch.equal(found[name].view(-1), tensor.view(-1)), name)


def copied(model):
    return {name: each.clone() if isinstance(each, torch.Tensor) else each for name, each in model.state_dict().items()}


def assert_loaded(test, model, original):
    """The model has what it gets by way of its state."""
    found = copied(model)
    model.load_state_dict(state.from_original(model, original))
    assert_same(test, found, model.state_dict())


def stacked_of(original, transposed=False):
    """A state with the experts of a list in stacked tensors."""
    made = {name: tensor for name, tensor in original.items() if ".experts." not in name}
    for place in sorted({name.split(".experts.")[0] for name in original if ".experts." in name}):
        gate, up, down = (
            torch.stack([original[f"{place}.experts.{e}.{name}_proj.weight"] for e in range(EXPERTS)]) for name in ("gate", "up", "down")
        )
        both = {"gate_up_proj": torch.cat((gate, up), 1), "down_proj": down}
        for name, tensor in both.items():
            made[f"{place}.experts.{name}"] = tensor.transpose(1, 2).contiguous() if transposed else tensor
    return made


class LoadModelTest(unittest.TestCase):
    def test_every_layout_in_every_encoding(self):
        for kind in KINDS:
            original = model_of(kind).state_dict()
            folder = Folder(original)
            for encode in ENCODINGS if kind == "qwen3" else ("bf16", "int4:g32"):
                for meta in (True, False):
                    with self.subTest(kind=kind, encode=encode, meta=meta):
                        made = replaced(kind, meta, encode=encode)
                        found = sluice_torch.load_model(made, folder.path)
                        assert_loaded(self, made, original)
                        self.assertEqual(found, ([], [], [], []))

    def test_a_model_that_is_not_replaced(self):
        original = model_of().state_dict()
        made = model_of(seed=1).to("meta")
        sluice_torch.load_model(made, Folder(original).path)
        assert_same(self, made.state_dict(), original)
        self.assertTrue(all(each.requires_grad for each in made.parameters()))

    def test_files_of_another_form(self):
        original = model_of().state_dict()
        for transposed in (False, True):
            with self.subTest("a list from stacked tensors", transposed=transposed):
                made = replaced()
                sluice_torch.load_model(made, Folder(stacked_of(original, transposed)).path)
                assert_loaded(self, made, original)
        with self.subTest("stacked experts from a list"):
            made = replaced("stacked")
            sluice_torch.load_model(made, Folder(original).path)
            assert_loaded(self, made, stacked_of(original))
        with self.subTest("Mixtral's names"):
            renamed = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
            given = {}
            for name, tensor in original.items():
                for old, new in renamed.items():
                    name = name.replace(old, new)
                given[name] = tensor
            made = replaced()
            sluice_torch.load_model(made, Folder(given).path)
            assert_loaded(self, made, original)

    def test_codes_of_other_parameters_become_numbers(self):
        original = model_of().state_dict()
        given, kinds = dict(original), {}
        base = "layers.1.self_attn.o_proj"
        given[f"{base}.weight"], given[f"{base}.weight_scale_inv"] = codes.quantize_fp8(original[f"{base}.weight"])
        kinds[f"{base}.weight"] = "F8_E4M3"
        made = replaced()
        found = sluice_torch.load_model(made, Folder(given, kinds).path)
        self.assertEqual(found.decoded, [f"{base}.weight"])
        numbers = codes.dequantize_fp8(given[f"{base}.weight"], given[f"{base}.weight_scale_inv"], torch.float32)
        self.assertTrue(torch.equal(made.layers[1].self_attn.o_proj.weight, numbers))

    def test_codes_of_experts_that_a_layer_does_not_have_become_numbers(self):
        original = model_of().state_dict()
        given, kinds = dict(original), {}
        for expert in range(EXPERTS):
            for part in ("gate", "up", "down"):
                base = f"layers.0.mlp.experts.{expert}.{part}_proj"
                given[f"{base}.weight"], given[f"{base}.weight_scale_inv"] = codes.quantize_fp8(original[f"{base}.weight"])
                kinds[f"{base}.weight"] = "F8_E4M3"
        folder = Folder(given, kinds)
        found = sluice_torch.load_model(replaced(), folder.path)
        self.assertEqual(found.decoded, [f"layers.0.mlp.experts.{name}_weight" for name in ("down", "gate_up")])
        made = replaced(encode="fp8e4m3:128x128")
        self.assertEqual(sluice_torch.load_model(made, folder.path).decoded, [])
        self.assertTrue(torch.equal(made.layers[0].mlp.experts.down_weight[1], given["layers.0.mlp.experts.1.down_proj.weight"]))

    def test_parameters_with_several_places_stay_one(self):
        for has in ("both", "embed_tokens", "lm_head"):
            with self.subTest(has=has):
                original = model_of().state_dict()
                original["lm_head.weight"] = original["embed_tokens.weight"]
                left_out = {"embed_tokens": "lm_head", "lm_head": "embed_tokens"}.get(has)
                folder = Folder({name: each for name, each in original.items() if name != f"{left_out}.weight"})
                made = model_of(seed=1)
                made.lm_head.weight = made.embed_tokens.weight
                made = made.to("meta")
                made.lm_head.weight = made.embed_tokens.weight
                sluice_torch.load_model(made, folder.path)
                self.assertIs(made.lm_head.weight, made.embed_tokens.weight)
                self.assertTrue(torch.equal(made.lm_head.weight, original["embed_tokens.weight"]))

    def test_what_no_file_has(self):
        original = model_of().state_dict()
        made = replaced(lora=sluice_torch.LoRAConfig(rank=4, alpha=8))
        made.register_buffer("frequencies", torch.ones(3))
        made.register_buffer("hidden", torch.ones(3), persistent=False)
        layer = made.layers[0].mlp.experts
        before = layer.gate_lora_a.detach().clone()
        found = sluice_torch.load_model(made, Folder(original).path)
        self.assertIn("frequencies", found.kept)
        self.assertIn("layers.0.mlp.experts.gate_lora_a", found.kept)
        self.assertNotIn("hidden", found.kept)
        self.assertTrue(torch.equal(layer.gate_lora_a, before))
        self.assertFalse(layer.gate_up_weight.requires_grad)
        made = replaced()
        made.register_buffer("hidden", torch.ones(3, device="meta"), persistent=False)
        with self.assertRaisesRegex(ValueError, "hidden is on meta and in no file"):
            sluice_torch.load_model(made, Folder(original).path)

    def test_errors_leave_a_model_as_it_was(self):
        original = model_of().state_dict()
        name, last = "layers.0.mlp.experts.2.up_proj.weight", "layers.1.mlp.experts.3.down_proj.weight"

        def without(*names):
            return {each: tensor for each, tensor in original.items() if each not in names}

        cases = {
            f"has no {name[:-7]}.weight": without(name),
            "has no norm.weight": without("norm.weight"),
            "has more, another, which the model does not have; strict=False leaves them": {
                **original, "more": torch.ones(1), "another": torch.ones(2)
            },
            r"up_proj.weight is a matrix of \[128, 64\], expected \[128, 128\]": {**original, name: original[name][:, :64]},
            r"lm_head.weight has shape \[3, 128\], expected \[256, 128\]": {**original, "lm_head.weight": torch.ones(3, 128)},
        }  # fmt: skip
        for expected, given in cases.items():
            for meta in (True, False):
                with self.subTest(expected, meta=meta):
                    made = replaced(meta=meta)
                    before = {each: (id(tensor), tensor if meta else tensor.clone()) for each, tensor in state_of(made)}
                    with self.assertRaisesRegex(ValueError, expected):
                        sluice_torch.load_model(made, Folder(given).path)
                    for each, tensor in state_of(made):
                        self.assertEqual(id(tensor), before[each][0], each)
                        self.assertTrue(meta or torch.equal(tensor, before[each][1]), each)
        found = sluice_torch.load_model(replaced(), Folder({**original, "more": torch.ones(1)}).path, strict=False)
        self.assertEqual(found.left_over, ["more"])
        with self.subTest("what is found while it loads"):
            given = {**original, last: original[last].clone()}
            folder = Folder(given)
            made = replaced(encode="int8")
            before = {each: id(tensor) for each, tensor in state_of(made)}
            given[last][0, 0] = float("nan")
            safetensors.write(folder.path / "model.safetensors", given)
            with self.assertRaisesRegex(ValueError, "NaN or infinity has no codes"):
                sluice_torch.load_model(made, folder.path)
            self.assertEqual({each: id(tensor) for each, tensor in state_of(made)}, before)
        with self.subTest("a file that ends early"):
            folder = Folder(original)
            path = folder.path / "model.safetensors"
            path.write_bytes(path.read_bytes()[:-1000])
            with self.assertRaisesRegex(ValueError, "the file is truncated"):
                sluice_torch.load_model(replaced(), folder.path)

    def test_a_layer_on_meta_takes_no_step(self):
        layer = replaced().layers[0].mlp.experts
        arguments = torch.zeros(2, HIDDEN), torch.tensor([[0, 1], [2, 3]]), torch.ones(2, 2)
        with self.assertRaisesRegex(ValueError, "the layer's weights are on meta: sluice_torch.load_model"):
            layer(*arguments)
        with self.assertRaisesRegex(ValueError, "the layer's weights are on meta"):
            layer.prepare()
        folder = Folder({name: each for name, each in model_of().state_dict().items()})
        sluice_torch.load_experts(folder.path, layer, "layers.0.mlp.experts")
        layer(*arguments)
        other = replaced().layers[0].mlp.experts
        with self.assertRaisesRegex(ValueError, "has no nowhere.0.gate_proj.weight"):
            sluice_torch.load_experts(folder.path, other, "nowhere")
        self.assertTrue(other.gate_up_weight.is_meta)


class ConvertTest(unittest.TestCase):
    def test_every_layout_in_every_encoding_is_mapped(self):
        for kind in ("qwen3", "stacked", "transposed"):
            original = model_of(kind).state_dict()
            folder = Folder(original)
            (folder.path / "config.json").write_text('{"vocab_size": 256}')
            (folder.path / "tokenizer.model").write_text("words")
            (folder.path / "pytorch_model.bin").write_text("other weights")
            for encode in ENCODINGS if kind == "qwen3" else ("bf16", "int4:g64z", "nvfp4"):
                with self.subTest(kind=kind, encode=encode):
                    target = folder.target(encode)
                    self.assertEqual(convert.convert(folder.path, target, encode).layers, 2)
                    self.assertEqual((target / "config.json").read_text(), '{"vocab_size": 256}')
                    self.assertEqual((target / "tokenizer.model").read_text(), "words")
                    self.assertFalse((target / "pytorch_model.bin").exists())
                    made = replaced(kind, encode=encode)
                    found = sluice_torch.load_model(made, target)
                    assert_loaded(self, made, original)
                    of_codes = [name for name, each in made.named_parameters() if not each.requires_grad]
                    self.assertEqual(sorted(each.split(".")[-1] for each in found.mapped), sorted(each.split(".")[-1] for each in of_codes))
                    self.assertEqual(found[2:], ([], []))
                    with torch.no_grad():
                        self.assertTrue(made(torch.zeros(1, 5, dtype=torch.long)).isfinite().all())

    def test_the_files_of_a_mapped_layer_are_its_memory(self):
        folder = Folder(model_of().state_dict())
        convert.convert(folder.path, folder.target(), "int8")
        made = replaced(encode="int8")
        sluice_torch.load_model(made, folder.target())
        addresses = [(int(begin, 16), int(end, 16)) for begin, end in (line.split()[0].split("-") for line in mapped_lines("experts-0"))]
        for layer in made.layers:
            at = layer.mlp.experts.gate_up_weight.data_ptr()
            self.assertTrue(any(begin <= at < end for begin, end in addresses))
            self.assertEqual(at % 64, 0)

    def test_other_layers_refuse_converted_files(self):
        folder = Folder(model_of().state_dict())
        convert.convert(folder.path, folder.target(), "int4:g32")
        for encode in ("int4:g32z", "int8", "mxfp4", "int4:g64", "int4:g32:f16"):
            with self.subTest(encode), self.assertRaisesRegex(ValueError, f"of encode='{encode}'"):
                sluice_torch.load_model(replaced(encode=encode), folder.target())

    def test_it_goes_on_after_a_full_disk(self):
        folder, target = Folder(model_of().state_dict()), None
        target, written, write = folder.target(), [], safetensors.write

        def full(path, *others):
            if len(written) == 1:
                raise OSError(28, "No space left on device")
            written.append(path)
            write(path, *others)

        with unittest.mock.patch.object(safetensors, "write", full), self.assertRaises(OSError):
            convert.convert(folder.path, target, "int8")
        first = target / "experts-00001.safetensors"
        self.assertEqual([each.name for each in target.glob("*.safetensors")], [first.name])
        with self.assertRaisesRegex(ValueError, "has no layers.1.mlp"):
            sluice_torch.load_model(replaced(encode="int8"), target)
        with self.assertRaisesRegex(ValueError, "has a conversion to int8, expected mxfp4: choose another folder"):
            convert.convert(folder.path, target, "mxfp4")
        before = first.stat().st_mtime_ns
        convert.convert(folder.path, target, "int8")
        self.assertEqual(first.stat().st_mtime_ns, before)
        sluice_torch.load_model(replaced(encode="int8"), target)
        source = folder.path / "model.safetensors"
        os.utime(source, ns=(0, source.stat().st_mtime_ns + 1))
        with self.assertRaisesRegex(ValueError, "has a conversion of another state of the source to int8"):
            convert.convert(folder.path, target, "int8")

    def test_codes_are_rounded_again_on_request_only(self):
        original = model_of().state_dict()
        folder = Folder(original)
        convert.convert(folder.path, folder.target("fp8"), "bf16")
        given, kinds = {}, {}
        for name, tensor in original.items():
            if ".experts." in name:
                given[name], given[f"{name}_scale_inv"] = codes.quantize_fp8(tensor)
                kinds[name] = "F8_E4M3"
            else:
                given[name] = tensor
        folder = Folder(given, kinds)
        with self.assertRaisesRegex(ValueError, "layers.0.mlp.experts has codes, which .*int4:g32.* second time; --requantise"):
            convert.convert(folder.path, folder.target(), "int4:g32")
        self.assertFalse(folder.target().exists())
        folder.target("own").mkdir()
        (folder.target("own") / "notes").write_text("mine")
        with self.assertRaisesRegex(ValueError, "has something else: expected a new or empty folder"):
            convert.convert(folder.path, folder.target("own"), "int8")
        self.assertEqual([each.name for each in folder.target("own").iterdir()], ["notes"])
        made = convert.convert(folder.path, folder.target(), "int4:g32", requantise=True)
        self.assertGreater(made.error, 0.03)
        self.assertLess(made.error, 0.2)
        self.assertIsNone(convert.convert(folder.path, folder.target("same"), "fp8e4m3:128x128").error)
        self.assertIsNone(convert.convert(folder.path, folder.target("plain"), "bf16").error)

    def test_the_command(self):
        folder = Folder(model_of().state_dict())

        def run(*arguments):
            said = io.StringIO()
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                try:
                    return convert.main([str(each) for each in arguments]), said.getvalue()
                except SystemExit as end:
                    return end.code, said.getvalue()

        status, said = run(folder.path, folder.target(), "--encode", "int8")
        self.assertEqual(status, 0, said)
        self.assertRegex(said, r"^2 layers of experts: 3\.8 MiB became 1\.5 MiB in ")
        cases = {
            (folder.path / "none", folder.target("a"), "--encode", "int8"): "none: cannot read: No such file or directory",
            (folder.path, folder.target("b"), "--encode", "int5"): "int5",
            (folder.path, folder.target("c"), "--encode", "mxfp8"): "expected what weights are stored as",
            (folder.path, folder.path, "--encode", "int8"): "has something else: expected a new or empty folder",
            (folder.path, folder.target("d"), "--encode", "int4:g48"): "g48",
        }
        for arguments, expected in cases.items():
            with self.subTest(expected):
                status, said = run(*arguments)
                self.assertEqual(status, 1, said)
                self.assertIn(expected, said)
                self.assertEqual(said.count("\n"), 1)
        self.assertEqual(sorted(each.name for each in folder.target().parent.iterdir()), ["made"])
        self.assertEqual(run()[0], 2)
        with unittest.mock.patch.object(convert, "convert", side_effect=KeyboardInterrupt):
            self.assertEqual(run(folder.path, folder.target("e"), "--encode", "int8")[0], 130)
        plain = Folder({"weight": torch.ones(2)})
        self.assertIn("has no experts", run(plain.path, plain.target(), "--encode", "int8")[1])

    def test_each_rank_reads_its_part(self):
        core_jobs.run_ranks(self, "ranks", 2)


def state_of(model):
    return [*model.named_parameters(), *model.named_buffers()]


def mapped_lines(name):
    with open("/proc/self/maps") as file:
        return [line for line in file if name in line]


def ranks(rank, size):
    original = model_of().state_dict()
    folder = Folder(original)
    for encode in ("bf16", "int4:g32"):
        convert.convert(folder.path, folder.target(encode), encode)
        for mesh in ({}, {"tp": 2}, {"spare": 2}):
            for path in (folder.path, folder.target(encode)):
                options = {"ep_group": dist.group.WORLD, "timeout": 20, "encode": encode, **mesh}
                made = replaced(**options)
                sluice_torch.load_model(made, path)
                assert_loaded(unittest.TestCase(), made, original)


if __name__ == "__main__" and not core_jobs.main({"ranks": ranks}):
    unittest.main()
