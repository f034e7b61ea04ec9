"""GGUF files of whole models: load_model() from files that tests write by names of their own table, and files that convert() writes."""

import json
import pathlib
import struct
import tempfile
import unittest
import unittest.mock

import sluice_torch
import torch
import write_gguf
from decoder import LanguageModel, Qwen3Block
from models.layouts import Qwen2Block
from sluice_torch import convert
from sluice_torch.encodings import codes
from sluice_torch.weights import gguf, safetensors

HIDDEN, INTERMEDIATE, EXPERTS, LAYERS = 64, 96, 4, 2
F32, Q4_0, Q8_0, BF16 = 0, 2, 8, 30
NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "ffn_gate_inp.weight": "mlp.gate.weight",
    "ffn_gate_inp_shexp.weight": "mlp.shared_expert_gate.weight",
    "ffn_gate_shexp.weight": "mlp.shared_expert.gate_proj.weight",
    "ffn_up_shexp.weight": "mlp.shared_expert.up_proj.weight",
    "ffn_down_shexp.weight": "mlp.shared_expert.down_proj.weight",
}


def model_of(seed=0, block=Qwen3Block):
    torch.manual_seed(seed)
    made = LanguageModel(lambda: block(HIDDEN, INTERMEDIATE, EXPERTS, 2), LAYERS, HIDDEN, 4, 64)
    for parameter in made.parameters():  # norms, too, are other numbers than 1
        parameter.data = torch.randn(parameter.shape).bfloat16().float()
    return made


def plain(tensor):
    return struct.pack(f"<{tensor.numel()}f", *tensor.flatten().tolist())


def halves(tensor):
    return b"".join(struct.pack("<f", number)[2:] for number in tensor.flatten().tolist())


def q8_0(tensor):
    made = b""
    for block in tensor.reshape(-1, 32):
        scale = struct.unpack("<e", struct.pack("<e", float(block.abs().max()) / 127))[0]
        made += struct.pack("<e32b", scale, *(round(number / scale) for number in block.tolist()))
    return made


def q4_0(tensor):
    made = b""
    for block in tensor.reshape(-1, 32):
        scale = struct.unpack("<e", struct.pack("<e", float(block.abs().max()) / 7))[0]
        of = [min(15, max(0, round(number / scale) + 8)) for number in block.tolist()]
        made += struct.pack("<e16B", scale, *(of[i] | of[i + 16] << 4 for i in range(16)))
    return made


WRITERS = {F32: plain, BF16: halves, Q8_0: q8_0, Q4_0: q4_0}


def file_of(folder, model, kind=F32, of_experts=F32, metadata=(("general.architecture", "TEXT", "qwen3moe"),), more=(), without=()):
    state, tensors = model.state_dict(), []

    def add(name, tensor, kind):
        if name not in without:
            tensor = tensor.squeeze(0)  # the gate of a shared expert is a row
            own = F32 if tensor.dim() == 1 else kind
            tensors.append((name, tuple(reversed(tensor.shape)), own, WRITERS[own](tensor)))

    for name, other in NAMES.items():
        if other in state:
            add(name, state[other], kind)
    for layer in range(LAYERS):
        for name, other in NAMES.items():
            if f"model.layers.{layer}.{other}" in state:
                add(f"blk.{layer}.{name}", state[f"model.layers.{layer}.{other}"], kind)
        for part in ("gate", "up", "down"):
            every = torch.stack([state[f"model.layers.{layer}.mlp.experts.{e}.{part}_proj.weight"] for e in range(EXPERTS)])
            add(f"blk.{layer}.ffn_{part}_exps.weight", every, of_experts)
    path = pathlib.Path(folder) / "model.gguf"
    write_gguf.write(path, tensors + list(more), metadata)
    return path


class GgufModelsTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name

    def test_every_parameter_is_loaded(self):
        original = model_of()
        for kind in (F32, BF16):
            path = file_of(self.folder, original, kind, kind)
            for replace in (False, True):
                with self.subTest(kind=kind, replace=replace):
                    made = model_of(1).to("meta")
                    if replace:
                        sluice_torch.replace_moe(made)
                    self.assertEqual(sluice_torch.load_model(made, path), ([], [], [], []))
                    found = sluice_torch.state.to_original(made) if replace else made.state_dict()
                    for name, tensor in original.state_dict().items():
                        self.assertTrue(torch.equal(found[name], tensor), name)

    def test_shared_experts_are_loaded_and_families_are_those_of_the_table(self):
        original = model_of(block=Qwen2Block)
        path = file_of(self.folder, original, metadata=(("general.architecture", "TEXT", "qwen2moe"),))
        for replace in (False, True):
            made = model_of(1, Qwen2Block).to("meta")
            if replace:
                rows = sluice_torch.replace_moe(made).families
                self.assertEqual({row.architecture for row in rows.values()}, {"qwen2moe"})
            self.assertEqual(sluice_torch.load_model(made, path), ([], [], [], []))
            found = sluice_torch.state.to_original(made) if replace else made.state_dict()
            for name, tensor in original.state_dict().items():
                self.assertTrue(torch.equal(found[name], tensor), name)

    def test_codes_are_taken_as_they_are_or_become_numbers(self):
        path = file_of(self.folder, model_of(), Q8_0, Q4_0)
        made = model_of(1).to("meta")
        sluice_torch.replace_moe(made, encode="int4:g32")
        found = sluice_torch.load_model(made, path)
        self.assertIn("model.layers.1.self_attn.q_proj.weight", found.decoded)
        self.assertFalse([name for name in found.decoded if ".experts." in name or "norm" in name])
        numbers = model_of(2).to("meta")
        sluice_torch.replace_moe(numbers)
        found = sluice_torch.load_model(numbers, path)
        self.assertIn("model.layers.1.mlp.experts.down_weight", found.decoded)
        for layer in range(LAYERS):
            coded, plain_layer = (each.model.layers[layer].mlp.experts for each in (made, numbers))
            decoded = codes.dequantize(coded.down_weight, coded.down_weight_scales, dtype=torch.float32)
            self.assertTrue(torch.equal(decoded, plain_layer.down_weight))
        expected = model_of().model.layers[0].self_attn.q_proj.weight
        self.assertLess((numbers.model.layers[0].self_attn.q_proj.weight - expected).abs().max(), 0.03)

    def test_a_file_is_converted(self):
        original, target = model_of(), pathlib.Path(self.folder) / "made"
        path = file_of(self.folder, original, Q8_0, Q4_0)
        with self.assertRaisesRegex(ValueError, "quantised twice, which only sluice_torch.convert does, on request"):
            convert.convert(path, target, "int8")
        made = convert.convert(path, target, "int4:g32")
        self.assertEqual((made.layers, made.bytes_before, made.error), (LAYERS, path.stat().st_size, None))
        one, other = model_of(1).to("meta"), model_of(1).to("meta")
        for model, source in ((one, path), (other, target)):
            sluice_torch.replace_moe(model, encode="int4:g32")
            sluice_torch.load_model(model, source)
        for (name, found), expected in zip(other.state_dict().items(), one.state_dict().values()):
            self.assertTrue(torch.equal(found, expected), name)

    def test_what_does_not_fit_is_refused(self):
        original = model_of()

        def refused(expected, model=None, **options):
            made = model_of(1).to("meta") if model is None else model
            with self.assertRaisesRegex(ValueError, expected):
                sluice_torch.load_model(made, file_of(self.folder, original, **options))
            self.assertTrue(all(each.is_meta for each in made.parameters()))

        def replaced():
            made = model_of(1).to("meta")
            sluice_torch.replace_moe(made)
            return made

        refused("general.architecture is 'llama', expected one of qwen2moe, qwen3moe", metadata=(("general.architecture", "TEXT", "llama"),))
        refused("general.architecture is None", metadata=())
        refused("has no lm_head.weight", without=("output.weight",))
        refused("has no blk.1.ffn_up_exps.weight", replaced(), without=("blk.1.ffn_up_exps.weight",))
        refused("has rope_freqs.weight, which the model does not have", replaced(), more=[("rope_freqs.weight", (4,), F32, plain(torch.ones(4)))])
        wrong = [("output.weight", (32, 64), F32, plain(torch.ones(64, 32)))]
        refused(r"lm_head.weight has shape \[64, 32\], expected \[64, 64\]", replaced(), without=("output.weight",), more=wrong)
        made = torch.nn.ModuleDict({"other": replaced().model})
        refused("the model has experts other.layers.0.mlp.experts, expected model.layers.N.mlp.experts", made)


CONFIG = {
    "model_type": "qwen3_moe", "num_hidden_layers": LAYERS, "max_position_embeddings": 512, "hidden_size": HIDDEN, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "num_experts": EXPERTS, "num_experts_per_tok": 2, "moe_intermediate_size": INTERMEDIATE,
    "rms_norm_eps": 1e-5, "rope_theta": 1e6, "norm_topk_prob": True,
}  # fmt: skip


class ExportTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder, self.source = pathlib.Path(holder.name), pathlib.Path(holder.name) / "source"
        self.source.mkdir()
        self.write(model_of().state_dict())

    def write(self, state, **changes):
        config = {name: value for name, value in {**CONFIG, **changes}.items() if value is not None}
        safetensors.write(self.source / "model.safetensors", {name: each.bfloat16() for name, each in state.items()})
        (self.source / "config.json").write_text(json.dumps(config))

    def loaded(self, path, encode):
        made = model_of(1).to("meta")
        sluice_torch.replace_moe(made, encode=encode)
        return made, sluice_torch.load_model(made, path)

    def test_a_file_has_the_numbers_or_the_codes_of_a_converted_folder(self):
        for encode, kind in (("bf16", BF16), ("int4:g32:f16", Q4_0), ("mxfp4", 39)):
            with self.subTest(encode):
                path = self.folder / "made.gguf"
                made = convert.convert(self.source, path, encode)
                self.assertEqual((made.layers, made.bytes_after, made.error), (LAYERS, path.stat().st_size, None))
                convert.convert(self.source, self.folder / encode, encode)
                (found, loaded), (expected, _) = self.loaded(path, encode), self.loaded(self.folder / encode, encode)
                self.assertEqual((loaded.decoded, loaded.left_over), ([], []))
                for (name, a), b in zip(found.state_dict().items(), expected.state_dict().values()):
                    self.assertTrue(torch.equal(a, b), name)
                file = gguf.Gguf(path)
                self.assertEqual({file.type_of(f"blk.1.ffn_{part}_exps.weight") for part in ("gate", "up", "down")}, {gguf.KINDS[kind].name})
                self.assertEqual({file.type_of(name) for name in file.names() if "norm" in name or "gate_inp" in name}, {"F32"})
                self.assertEqual(file.type_of("blk.0.attn_q.weight"), "BF16")

    def test_shared_experts_are_written(self):
        state = model_of(block=Qwen2Block).state_dict()
        self.write(state, model_type="qwen2_moe", norm_topk_prob=False, shared_expert_intermediate_size=INTERMEDIATE)
        convert.convert(self.source, self.folder / "made.gguf", "bf16")
        made = model_of(1, Qwen2Block).to("meta")
        self.assertEqual(sluice_torch.load_model(made, self.folder / "made.gguf"), ([], [], [], []))
        for name, tensor in made.state_dict().items():
            self.assertTrue(torch.equal(tensor, state[name]), name)
        file = gguf.Gguf(self.folder / "made.gguf")
        self.assertEqual((file.shape_of("blk.1.ffn_gate_inp_shexp.weight"), file.shape_of("blk.1.ffn_gate_inp.weight")), ((HIDDEN,), (EXPERTS, HIDDEN)))
        self.assertEqual(file.metadata["qwen2moe.expert_shared_feed_forward_length"], INTERMEDIATE)

    def test_codes_are_blocks_as_the_format_has_them(self):
        state = model_of().state_dict()
        convert.convert(self.source, self.folder / "made.gguf", "int4:g32:f16")
        own = gguf.Gguf(self.folder / "made.gguf")
        for part in ("gate", "up", "down"):
            expected = torch.stack([state[f"model.layers.1.mlp.experts.{e}.{part}_proj.weight"] for e in range(EXPERTS)])
            kind, blocks = own._rows(f"blk.1.ffn_{part}_exps.weight", "", 0, expected.shape[0] * expected.shape[1])
            self.assertEqual(blocks.numpy().tobytes(), q4_0(expected), part)

    def test_metadata_are_those_of_the_configuration(self):
        convert.convert(self.source, self.folder / "made.gguf", "bf16")
        found = gguf.Gguf(self.folder / "made.gguf").metadata
        expected = {
            "block_count": LAYERS, "context_length": 512, "embedding_length": HIDDEN, "attention.head_count": 4, "attention.head_count_kv": 2,
            "attention.key_length": 16, "attention.value_length": 16, "expert_count": EXPERTS, "expert_used_count": 2,
            "expert_feed_forward_length": INTERMEDIATE, "rope.freq_base": 1e6,
        }  # fmt: skip
        self.assertEqual({name: found[f"qwen3moe.{name}"] for name in expected}, expected)
        self.assertAlmostEqual(found["qwen3moe.attention.layer_norm_rms_epsilon"], 1e-5)
        self.assertEqual(sorted(set(found) - {f"qwen3moe.{name}" for name in expected})[:2], ["general.alignment", "general.architecture"])
        self.assertNotIn("qwen3moe.feed_forward_length", found)

    def test_what_the_format_does_not_have_is_refused(self):
        state, path = model_of().state_dict(), self.folder / "made.gguf"

        def refused(expected, encode="bf16", source=None, **changes):
            with self.assertRaisesRegex(ValueError, expected):
                convert.convert(source or self.source, path, encode)
            self.assertFalse(path.exists())

        refused("encode is 'int4:g32', expected one of bf16, int4:g32:f16, mxfp4 for .*made.gguf", "int4:g32")
        for changes, expected in (
            ({"model_type": "mixtral"}, "config.json has model_type 'mixtral', expected one of qwen2_moe, qwen3_moe"),
            ({"model_type": None}, "config.json has model_type None"),
            ({"norm_topk_prob": False}, "config.json has norm_topk_prob False, expected True, as readers take it for qwen3moe"),
            ({"num_experts": None}, "config.json has num_experts None, expected a number"),
            ({"hidden_size": -3}, "config.json has hidden_size -3, expected a number"),
            ({"rope_theta": "x"}, "config.json has rope_theta 'x', expected a number"),
        ):
            self.write(state, **changes)
            refused(expected)
        self.write({**state, "model.layers.0.self_attn.rotary": torch.ones(3)})
        refused("model.layers.0.self_attn.rotary has no name in GGUF files")
        self.write({name.replace("model.layers.0.mlp", "other"): each for name, each in state.items()})
        refused("the model has experts other.experts, expected model.layers.N.mlp.experts, as transformers has them")
        refused("is a GGUF file, expected safetensors files and config.json", source=file_of(self.folder, model_of()))
        self.write(state)
        path.write_bytes(b"before")
        with unittest.mock.patch.object(convert, "_encoded", side_effect=OSError("disk full")), self.assertRaisesRegex(OSError, "disk full"):
            convert.convert(self.source, path, "bf16")
        self.assertEqual(path.read_bytes(), b"before")
        self.assertEqual([each.name for each in self.folder.iterdir() if each.name.startswith(".")], [])


if __name__ == "__main__":
    unittest.main()
