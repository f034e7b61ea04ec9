"""gpt-oss: experts with biases, gate and up in turn, and a limit, replaced by layers and loaded from files of both forms."""

import copy
import json
import pathlib
import struct
import tempfile
import unittest

import torch
import torch.distributed as dist
from torch import nn

import core_jobs
import sluice_torch
import write_gguf
from decoder import Decoder
from grouped import grouped
from models import layouts
from moe_eager import BOUND, error
from sluice_torch import convert, state
from sluice_torch.graphs import BIASES, WEIGHTS
from sluice_torch.layers import sharding
from sluice_torch.replacing.structure import Unsupported
from sluice_torch.weights import safetensors

BLOCKS = {"gpt-oss": layouts.OldOssBlock, "gpt-oss (transformers 5)": layouts.OssBlock}
NAMES = ("gate_up_proj", "down_proj", "gate_up_proj_bias", "down_proj_bias")
HIDDEN, INTERMEDIATE, EXPERTS = 64, 128, 4
PLACE = "layers.1.mlp.experts"
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]


def in_layout(layer, values):
    """Tensors of the layer's parameters, in the order of NAMES, as the original block has them."""
    for value in values[::2]:
        gate, up = value.chunk(2, 1)
        value.copy_(torch.stack((gate, up), 2).flatten(1, 2))
    return [each.transpose(1, 2) if each.dim() == 3 else each for each in values]


def model_of(seed=0):
    """A model of numbers that bfloat16 holds."""
    torch.manual_seed(seed)
    made = Decoder(lambda: layouts.OssBlock(hidden=HIDDEN, intermediate=INTERMEDIATE, experts=EXPERTS), hidden=HIDDEN)
    for parameter in made.parameters():
        parameter.data = parameter.data.bfloat16().float()
    return made


def replaced(**options):
    made = model_of(1).to("meta")
    sluice_torch.replace_moe(made, **grouped(threads=1, **options))
    return made


def layer_of(**options):
    return sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, 2, activation="swiglu_oai:7", **options)


def numbers_of(blocks, scales):
    """[experts, out, in]: what bytes of two codes, the lower half first, and powers of two stand for."""
    known, (experts, rows, groups, _) = torch.tensor(E2M1), blocks.shape
    pairs = torch.stack((known[(blocks % 16).long()], known[(blocks // 16).long()]), -1).flatten(3)
    return (pairs * 2.0 ** (scales.float() - 127).unsqueeze(-1)).view(experts, rows, 32 * groups)


def in_mxfp4(original):
    """The state with drawn codes of experts, and the state with the numbers that they stand for."""
    made, numbers, draw = dict(original), dict(original), torch.Generator().manual_seed(3)
    for name in [name for name in original if name.endswith(NAMES[:2])]:
        experts, columns, rows = original[name].shape
        blocks = made[f"{name}_blocks"] = torch.randint(0, 256, (experts, rows, columns // 32, 16), generator=draw, dtype=torch.uint8)
        scales = made[f"{name}_scales"] = torch.randint(118, 124, (experts, rows, columns // 32), generator=draw, dtype=torch.uint8)
        numbers[name] = numbers_of(blocks, scales).transpose(1, 2).contiguous()
        del made[name]
    return made, numbers


class Folder:
    """A folder with a file of tensors, and a config.json, until the process ends."""

    _every = []

    def __init__(self, tensors, kinds=None):
        self._every.append(tempfile.TemporaryDirectory())
        self.path = pathlib.Path(self._every[-1].name)
        safetensors.write(self.path / "model.safetensors", tensors, kinds)
        (self.path / "config.json").write_text(json.dumps({"model_type": "gpt_oss"}))


def assert_loaded(test, model, original):
    """The model has what it gets by way of its state."""
    found = {name: each.clone() for name, each in model.state_dict().items()}
    model.load_state_dict(state.from_original(model, original))
    for name, tensor in model.state_dict().items():
        test.assertEqual((found[name].dtype, found[name].shape), (tensor.dtype, tensor.shape), name)
        test.assertTrue(torch.equal(found[name], tensor), name)


class GptOssTest(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        torch.manual_seed(4)

    def test_a_replaced_block_gives_the_same_and_its_experts_get_the_same_gradients(self):
        for family, make in BLOCKS.items():
            block = make()
            model = nn.Sequential(copy.deepcopy(block))
            found = sluice_torch.replace_moe(model, steps=sluice_torch.Steps(threads=1))
            self.assertEqual([row.models for row in found.families.values()], [family])
            layer, results = model[0].experts.layer, []
            x, dy = torch.randn(2, 3, 20, 64)
            for each in (model[0], block):
                rows = x.clone().requires_grad_()
                y, scores = each(rows)
                y.backward(dy)
                results.append([y, scores, rows.grad, each.router.weight.grad, each.router.bias.grad])
            results[0] += in_layout(layer, [getattr(layer, name).grad for name in (*WEIGHTS, *BIASES)])
            results[1] += [getattr(block.experts, name).grad for name in NAMES]
            for number, (one, other) in enumerate(zip(*results)):
                self.assertEqual(one.shape, other.shape)
                self.assertLess(error(one, other), 1.5 * BOUND, (family, number))

    def test_a_state_has_the_order_of_the_original(self):
        block = layouts.OssBlock()
        original = {f"0.{name}": each.clone() for name, each in block.state_dict().items()}
        model = nn.Sequential(block)
        sluice_torch.replace_moe(model)
        layer = model[0].experts.layer
        gate_up, bias = (original[f"0.experts.{name}"] for name in NAMES[::2])
        self.assertTrue(torch.equal(layer.gate_up_weight[3, 2], gate_up[3, :, 4]))  # row 2 of the gate
        self.assertTrue(torch.equal(layer.gate_up_bias[3, 48 + 5], bias[3, 11]))  # number 5 of up
        found = state.to_original(model)
        self.assertEqual(set(found), set(original))
        for name, tensor in original.items():
            self.assertTrue(torch.equal(found[name], tensor), name)
        other = nn.Sequential(layouts.OssBlock())
        sluice_torch.replace_moe(other)
        other.load_state_dict(state.from_original(other, original))
        for name, tensor in model.state_dict().items():
            self.assertTrue(torch.equal(other.state_dict()[name], tensor), name)

    def test_parameters_are_trained_as_they_were(self):
        for frozen in ((), ("gate_up_proj",), ("down_proj_bias",), NAMES):
            block = layouts.OssBlock()
            for name in frozen:
                getattr(block.experts, name).requires_grad_(False)
            model = nn.Sequential(block)
            sluice_torch.replace_moe(model)
            layer = model[0].experts.layer
            own = dict(zip(NAMES, (getattr(layer, name) for name in (*WEIGHTS, *BIASES))))
            self.assertEqual([name for name in NAMES if not own[name].requires_grad], list(frozen))
        for options in ({"encode": "int8"}, {"lora": sluice_torch.LoRAConfig(2)}):
            model = nn.Sequential(layouts.OssBlock())
            sluice_torch.replace_moe(model, **options)
            layer = model[0].experts.layer
            self.assertFalse(any(getattr(layer, name).requires_grad for name in (*WEIGHTS, *BIASES)))

    def test_experts_of_another_form_are_refused(self):
        def without(name):
            return lambda experts: delattr(experts, name)

        def of_shape(name, *shape):
            return lambda experts: setattr(experts, name, nn.Parameter(torch.zeros(shape)))

        class Halved(layouts.OssExperts):
            def one(self, expert):
                apply = super().one(expert)
                return lambda rows: apply(rows) - self.down_proj_bias[expert] / 2

        cases = {
            r"experts have gate_up_proj_bias of shape \[8, 96\], expected nothing but two stacked tensors, and two biases or none": without("down_proj_bias"),
            r"gate_up_proj_bias \[8, 48\], .* compute none of": of_shape("gate_up_proj_bias", 8, 48),
            r"down_proj_bias \[7, 64\] .* compute none of": of_shape("down_proj_bias", 7, 64),
            r"compute none of swiglu, geglu, .* with the gate before up, or both in turn": without("limit"),
            r"compute none of swiglu": lambda experts: setattr(experts, "__class__", Halved),
        }
        for message, change in cases.items():
            block = layouts.OssBlock()
            change(block.experts)
            with self.subTest(message), self.assertRaisesRegex(Unsupported, f"^block '0' .*{message}"):
                sluice_torch.replace_moe(nn.Sequential(block))

    def test_a_model_is_loaded_from_numbers(self):
        original = model_of().state_dict()
        folder = Folder(original)
        for encode in (None, "int8", "int4:g32", "mxfp4"):
            with self.subTest(encode):
                made = replaced(encode=encode)
                self.assertEqual(sluice_torch.load_model(made, folder.path), ([], [], [], []))
                assert_loaded(self, made, original)
        layer = layer_of(bias=True)
        sluice_torch.load_experts(folder.path, layer, PLACE)
        for name, tensor in made.layers[1].mlp.experts.layer.named_parameters():
            if name in BIASES:
                self.assertTrue(torch.equal(getattr(layer, name).float(), tensor), name)
        self.assertTrue(torch.equal(layer.gate_up_weight[2, INTERMEDIATE + 3].float(), original[f"{PLACE}.gate_up_proj"][2, :, 7]))

    def test_codes_of_mxfp4_are_taken_as_they_are_and_decoded_for_others(self):
        given, numbers = in_mxfp4(model_of().state_dict())
        folder = Folder(given)
        made = replaced(encode="mxfp4")
        self.assertEqual(sluice_torch.load_model(made, folder.path), ([], [], [], []))
        layer = made.layers[1].mlp.experts.layer
        for name, original in zip(WEIGHTS, NAMES):
            codes, scales = given[f"{PLACE}.{original}_blocks"].flatten(2), given[f"{PLACE}.{original}_scales"]
            for found, expected in ((getattr(layer, name), codes), (getattr(layer, f"{name}_scales"), scales)):
                if original == "gate_up_proj":
                    expected = torch.cat((expected[:, ::2], expected[:, 1::2]), 1)
                self.assertTrue(torch.equal(found, expected), name)
        plain = replaced()
        found = sluice_torch.load_model(plain, folder.path)
        self.assertEqual(found.decoded, [f"layers.{n}.mlp.experts.layer.{name}" for n in (0, 1) for name in sorted(WEIGHTS)])
        assert_loaded(self, plain, numbers)
        x = torch.randn(2, 9, HIDDEN)
        self.assertLess(error(made.layers[1].mlp(x)[0], plain.layers[1].mlp(x)[0]), BOUND)
        with self.assertRaisesRegex(ValueError, "gate_up_proj has mxfp4, but the layer has int4:g32: they would be quantised twice"):
            sluice_torch.load_model(replaced(encode="int4:g32"), folder.path)

    def test_files_are_converted(self):
        original = model_of().state_dict()
        given, numbers = in_mxfp4(original)
        for tensors, expected in ((original, original), (given, numbers)):
            for encode in ("bf16", "mxfp4", "int8"):
                with self.subTest(encode, codes=tensors is given):
                    folder = Folder(tensors)
                    requantise = tensors is given and encode == "int8"
                    made = convert.convert(folder.path, folder.path / "made", encode, requantise=requantise)
                    self.assertEqual((made.layers, made.error is None), (2, not requantise))
                    converted = replaced(encode=encode)
                    sluice_torch.load_model(converted, folder.path / "made")
                    if not (tensors is given and encode == "mxfp4"):
                        assert_loaded(self, converted, expected)
                        continue
                    direct = replaced(encode=encode)
                    sluice_torch.load_model(direct, folder.path)
                    for name, tensor in direct.state_dict().items():
                        self.assertTrue(torch.equal(converted.state_dict()[name], tensor), name)
        folder = Folder(original)
        with self.assertRaisesRegex(ValueError, "config.json has model_type 'gpt_oss', expected one of"):
            convert.convert(folder.path, folder.path / "made.gguf", "mxfp4")
        sizes = ("num_hidden_layers", "max_position_embeddings", "hidden_size", "num_attention_heads", "num_experts", "num_experts_per_tok", "moe_intermediate_size")
        (folder.path / "config.json").write_text(json.dumps({"model_type": "qwen3_moe", **dict.fromkeys(sizes, 2)}))
        with self.assertRaisesRegex(ValueError, "layers.0.mlp.experts has biases, expected none: qwen3moe"):
            convert.convert(folder.path, folder.path / "made.gguf", "mxfp4")
        self.assertFalse((folder.path / "made.gguf").exists())

    def test_files_that_do_not_fit_are_refused_by_name(self):
        original = model_of().state_dict()
        given, _ = in_mxfp4(original)
        name = f"{PLACE}.gate_up_proj"

        def without(tensors, *names):
            return {each: tensor for each, tensor in tensors.items() if each not in names}

        bias = original[f"{name}_bias"]
        cases = [
            (without(original, f"{name}_bias"), {}, f"has no {name}_bias"),
            (without(original, f"{PLACE}.down_proj_bias"), {}, f"has no {PLACE}.down_proj_bias"),
            ({**original, f"{name}_bias": bias[:, :-2]}, {}, rf"{name}_bias has shape \[127\] for one matrix, expected \[128\]"),
            ({**original, f"{name}_bias": bias[:3]}, {}, rf"{name}_bias has shape \[3, 256\], expected biases of 4 experts"),
            ({**original, f"{name}_bias": torch.cat((bias, bias))}, {}, rf"{name}_bias has shape \[8, 256\], expected biases of 4 experts"),
            ({**original, f"{name}_bias": bias.int()}, {}, f"{name}_bias has type I32, expected F16 or BF16 or F32"),
            ({**original, name: original[name][:, :, :-2]}, {}, rf"{name} has shape .* expected \[experts, 256, 64\], or both transposed"),
            (without(given, f"{name}_scales"), {}, f"has no {name}_scales"),
            (without(given, f"{name}_blocks"), {}, "has no layers.1.mlp.experts.0.gate_proj.weight"),
            ({**given, f"{name}_blocks": given[f"{name}_blocks"][:, :-1]}, {}, rf"{name}_blocks has shape .* expected \[experts, 256, 2, 16\] for \[256, 64\]"),
            ({**given, f"{name}_scales": given[f"{name}_scales"][:-1]}, {}, rf"{name}_scales has shape \[3, 256, 2\], expected"),
            ({**given, f"{name}_scales": given[f"{name}_scales"].short()}, {}, f"{name}_scales has type I16, expected U8 or F8_E8M0"),
        ]
        for tensors, kinds, message in cases:
            with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                sluice_torch.load_experts(Folder(tensors, kinds).path, layer_of(bias=True), PLACE)
        for tensors in (original, given):
            with self.assertRaisesRegex(ValueError, f"has {name}_bias, but the layer has no biases: expected one with bias=True"):
                sluice_torch.load_experts(Folder(tensors).path, layer_of(), PLACE)

    def test_biases_come_from_lists_of_experts_and_from_gguf_files_too(self):
        draw, shapes = torch.Generator().manual_seed(6), {"gate": (INTERMEDIATE, HIDDEN), "up": (INTERMEDIATE, HIDDEN), "down": (HIDDEN, INTERMEDIATE)}
        weights = {part: torch.randn(EXPERTS, *shape, generator=draw) for part, shape in shapes.items()}
        biases = {part: torch.randn(EXPERTS, shape[0], generator=draw) for part, shape in shapes.items()}
        tensors, in_file = {}, []
        for part in shapes:
            for last, of in (("weight", weights), ("bias", biases)):
                tensors.update({f"experts.{e}.{part}_proj.{last}": of[part][e] for e in range(EXPERTS)})
                values = of[part].flatten().tolist()
                in_file.append((f"blk.3.ffn_{part}_exps.{last}", of[part].shape[::-1], 0, struct.pack(f"<{len(values)}f", *values)))
        folder = Folder(tensors)
        write_gguf.write(folder.path / "model.gguf", in_file)
        for path, prefix in ((folder.path, "experts"), (folder.path / "model.gguf", "blk.3")):
            layer = layer_of(bias=True, dtype=torch.float32)
            sluice_torch.load_experts(path, layer, prefix)
            self.assertTrue(torch.equal(layer.gate_up_weight, torch.cat((weights["gate"], weights["up"]), 1)))
            self.assertTrue(torch.equal(layer.gate_up_bias, torch.cat((biases["gate"], biases["up"]), 1)))
            self.assertTrue(torch.equal(layer.down_bias, biases["down"]))
        with self.assertRaisesRegex(ValueError, "has blk.3.ffn_gate_exps.bias, but the layer has no biases"):
            sluice_torch.load_experts(folder.path / "model.gguf", layer_of(), "blk.3")
        with self.assertRaisesRegex(ValueError, "has no experts.0.gate_proj.bias"):
            sluice_torch.load_experts(Folder({name: each for name, each in tensors.items() if "bias" not in name}).path, layer_of(bias=True), "experts")

    def test_each_rank_reads_its_part(self):
        core_jobs.run_ranks(self, "ranks", 2)


def ranks(rank, size):
    original = model_of().state_dict()
    given, numbers = in_mxfp4(original)
    for tensors, expected in ((original, original), (given, numbers)):
        folder = Folder(tensors)
        for mesh in ({}, {"tp": 2}, {"spare": 2}):
            made = replaced(ep_group=dist.group.WORLD, timeout=20, **mesh)
            sluice_torch.load_model(made, folder.path)
            assert_loaded(unittest.TestCase(), made, expected)
    made, whole = replaced(ep_group=dist.group.WORLD, timeout=20, encode="mxfp4"), replaced(encode="mxfp4")
    for each in (made, whole):
        sluice_torch.load_model(each, folder.path)
    layer = made.layers[0].mlp.experts.layer
    for name, tensor in whole.layers[0].mlp.experts.layer.named_parameters():
        own = sharding.take(name, tensor[layer.local_experts], layer.shard, layer.shape.tp)
        assert torch.equal(getattr(layer, name), own), name


if __name__ == "__main__" and not core_jobs.main({"ranks": ranks}):
    unittest.main()
