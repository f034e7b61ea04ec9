"""Experts from checkpoints: formats, written here by other means than they are read; shards, maps and errors."""

import json
import os
import random
import struct
import sys
import types
import unittest
import unittest.mock

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from grouped import grouped
from sluice_torch.encodings import codes
from sluice_torch.weights import formats
from write_formats import Drawn, Folder, awq, gptq, int_quantized, pack_quantized, plain, word
from write_safetensors import packed, write

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 128, 192, 4, 2
PREFIX = "model.layers.3.mlp.experts"
NAMES = ("gate_proj", "up_proj", "down_proj")
SIZES = {"gate_proj": (INTERMEDIATE, HIDDEN), "up_proj": (INTERMEDIATE, HIDDEN), "down_proj": (HIDDEN, INTERMEDIATE)}


def experts(writer, group=32, symmetric=False, bits=4, **options):
    """The tensors of all experts, and what each stands for, by (expert, name); group 0: rows."""
    tensors, drawn = {}, {}
    for expert in range(EXPERTS):
        for number, name in enumerate(NAMES):
            each = Drawn(10 * expert + number, *SIZES[name], group or SIZES[name][1], symmetric, bits)
            tensors.update(writer(f"{PREFIX}.{expert}.{name}", each, **options))
            drawn[expert, name] = each
    return tensors, drawn


def squares_of(hidden, intermediate):
    """The tensors of all experts in FP8, and the codes and scales of each, by (expert, name)."""
    draw, tensors, made = random.Random(7), {}, {}
    for expert in range(EXPERTS):
        for name in NAMES:
            out, length = (hidden, intermediate) if name == "down_proj" else (intermediate, hidden)
            shape = (-(-out // 128), -(-length // 128))
            each = [draw.choice((draw.randrange(0x70), 0x80 + draw.randrange(0x70))) for _ in range(out * length)]
            scale = [draw.randrange(1, 9) / 4096 for _ in range(shape[0] * shape[1])]
            base = f"{PREFIX}.{expert}.{name}"
            tensors[f"{base}.weight"] = ("F8_E4M3", (out, length), each)
            tensors[f"{base}.weight_scale_inv"] = ("F32", shape, scale)
            made[expert, name] = torch.tensor(each, dtype=torch.uint8).view(out, length), torch.tensor(scale).view(shape)
    return tensors, made


def make(encode="bf16", sizes=(HIDDEN, INTERMEDIATE), **options):
    return sluice_torch.MoE(*sizes, EXPERTS, TOP_K, encode=encode, **grouped(threads=2, **options))


def numbers_of(layer, name, row):
    """The numbers of a row of a layer, in float32."""
    whole = [getattr(layer, each)[row].detach() for each in (name, *layer.shape.beside(name))]
    return codes.dequantize(*whole, dtype=torch.float32) if layer.shape.has_codes else whole[0].float()


def load(folder, layer, **options):
    sluice_torch.load_experts(folder.path, layer, PREFIX, **options)


class LoadingTest(unittest.TestCase):
    def check(self, layer, drawn, exact=True, order=range(EXPERTS)):
        for row, expert in enumerate(layer.local_experts):
            gate, up, down = (drawn[order[expert], name].numbers() for name in NAMES)
            for name, expected in (("gate_up_weight", torch.cat((gate, up))), ("down_weight", down)):
                found = numbers_of(layer, name, row)
                if exact:
                    self.assertTrue(torch.equal(found, expected), (name, (found - expected).abs().max()))
                else:
                    self.assertLess((found - expected).norm() / expected.norm(), 0.02, name)

    def test_codes_of_4_bits_are_taken_as_they_are(self):
        for writer in (gptq, awq, pack_quantized):
            for group in (32, 64):
                symmetric = writer is pack_quantized
                tensors, drawn = experts(writer, group, symmetric)
                for zeros in (False, True) if symmetric else (True,):
                    with self.subTest(format=writer.__name__, group=group, zeros=zeros):
                        layer = make(f"int4:g{group}{'z' * zeros}")
                        load(Folder(tensors, files=3), layer)
                        self.check(layer, drawn)

    def test_scales_and_zeros_stay_what_they_are_in_the_file(self):
        for writer, scale, options in [(gptq, "f16", {}), (awq, "f16", {})] + [(pack_quantized, "bf16", {"zeros": each}) for each in ("words", "codes")]:
            tensors, drawn = experts(writer, **options)
            layer, wider = make(f"int4:g32z:{scale}"), make("int4:g32z")
            for each in (layer, wider):
                load(Folder(tensors), each)
                self.check(each, drawn)
            for name in ("gate_up_weight", "down_weight"):
                scales, zeros = (getattr(layer, f"{name}_{each}") for each in ("scales", "zeros"))
                self.assertEqual((scales.dtype, zeros.dtype), ({"f16": torch.float16, "bf16": torch.bfloat16}[scale], torch.int8))
            self.assertEqual(layer.gate_up_weight_zeros[1].tolist(), drawn[1, "gate_proj"].zeros + drawn[1, "up_proj"].zeros)
            x, ids, weights = torch.randn(9, HIDDEN).bfloat16(), torch.arange(18).view(9, 2) % EXPERTS, torch.rand(9, TOP_K)
            with torch.no_grad():
                self.assertTrue(torch.equal(layer(x, ids, weights), wider(x, ids, weights)))
            other = {"f16": "bf16", "bf16": "f16"}[scale]
            with self.assertRaisesRegex(ValueError, f"has int4:g32z:{scale}, but the layer has int4:g32z:{other}"):
                load(Folder(tensors), make(f"int4:g32z:{other}"))
            with self.assertRaisesRegex(ValueError, f"has int4:g32z:{scale}, but the layer has int4:g32:{scale}"):
                load(Folder(tensors), make(f"int4:g32:{scale}"))
        tensors, drawn = experts(pack_quantized, symmetric=True)
        for layer in (make("int4:g32:bf16"), make("int4:g32z:bf16")):
            load(Folder(tensors), layer)
            self.check(layer, drawn)
        name = f"{PREFIX}.1.up_proj.weight_zero_point"
        tensors, _ = experts(pack_quantized, zeros="codes")
        broken = {**tensors, name: (*tensors[name][:2], [8, *tensors[name][2][1:]])}
        with self.assertRaisesRegex(ValueError, f"{name} has numbers from -[0-9]+ to 8, expected -8 to 7"):
            load(Folder(broken), layer)

    def test_zero_points_of_pack_quantized_are_taken_as_they_are(self):
        for group, zeros in ((32, "words"), (64, "words"), (32, "codes")):
            with self.subTest(group=group, zeros=zeros):
                tensors, drawn = experts(pack_quantized, group, zeros=zeros)
                layer = make(f"int4:g{group}z")
                load(Folder(tensors), layer)
                self.check(layer, drawn)
                with self.assertRaisesRegex(ValueError, f"has int4:g{group}z:bf16, but the layer has int4:g{group}"):
                    load(Folder(tensors), make(f"int4:g{group}"))
        tensors, drawn = experts(pack_quantized, symmetric=True, zeros="words")  # all in the middle
        layer = make("int4:g32")
        load(Folder(tensors), layer)
        self.check(layer, drawn)

    def test_words_and_zero_points_that_are_not_full(self):
        for bits, out, length in ((4, 12, 32), (4, 3, 32), (8, 6, 32), (8, 3, 32)):
            drawn = Drawn(5, out, length, 16, False, bits)
            folder = Folder(pack_quantized("a", drawn, "words"))
            found = formats.read(sluice_torch.Checkpoint(folder.path), "a")
            self.assertTrue(torch.equal(found.decoded(), drawn.numbers()), (bits, out))
        for bits in (4, 8):
            drawn = Drawn(6, 4, 42, 14, True, bits)  # the last word of a row has room
            rows = [row + [9] * (-len(row) % (32 // bits)) for row in drawn.codes]
            tensors = pack_quantized("a", drawn)
            words = [word(row[i : i + 32 // bits], bits) for row in rows for i in range(0, len(row), 32 // bits)]
            folder = Folder({**tensors, "a.weight_packed": ("I32", (4, len(words) // 4), words)})
            found = formats.read(sluice_torch.Checkpoint(folder.path), "a")
            self.assertTrue(torch.equal(found.decoded(), drawn.numbers()), bits)

    def test_codes_of_8_bits_are_taken_as_numbers(self):
        rows = [(pack_quantized, group, not zeros, {"zeros": zeros}) for group, zeros in ((32, None), (32, "words"), (32, "codes"), (0, "words"))]
        rows += [(int_quantized, 0, True, {"scale": scale}) for scale in (("F32", 2), ("BF16", 2), ("F16", 1), ("F32", 0))]
        rows += [(int_quantized, 0, False, {"zeros": True})]
        for writer, group, symmetric, options in rows:
            with self.subTest(writer=writer.__name__, group=group, **options):
                tensors, drawn = experts(writer, group, symmetric, 8, **options)
                layer = make(dtype=torch.float32)
                load(Folder(tensors), layer)
                self.check(layer, drawn)
        layer = make("int8,rows=int8")
        load(Folder(tensors), layer)  # which quantises them again
        self.check(layer, drawn, exact=False)

    def test_symmetric_codes_of_8_bits_are_taken_as_they_are(self):
        for writer, options in ((pack_quantized, {}), (pack_quantized, {"zeros": "words"}), (int_quantized, {}), (int_quantized, {"scale": ("BF16", 0)})):
            with self.subTest(writer=writer.__name__, **options):
                tensors, drawn = experts(writer, 0, True, 8, **options)
                layer = make("int8")
                load(Folder(tensors), layer)
                self.check(layer, drawn)
                for expert in range(EXPERTS):
                    made = torch.tensor(drawn[expert, "down_proj"].codes) - 128
                    self.assertTrue(torch.equal(layer.down_weight[expert].long(), made))

    def test_codes_with_an_order_of_groups(self):
        """Consecutive numbers and -1 are no order; others are refused."""
        tensors, drawn = experts(pack_quantized, symmetric=True)
        name, layer = f"{PREFIX}.0.gate_proj.weight_g_idx", make("int4:g32,rows=int8")
        for order in ([i // 32 for i in range(HIDDEN)], [-1] * HIDDEN):
            load(Folder({**tensors, name: ("I32", (HIDDEN,), order)}), layer)
            self.check(layer, drawn)
        for order in ([i % 4 for i in range(HIDDEN)], [-1, *(i // 32 for i in range(1, HIDDEN))], [0]):
            with self.assertRaisesRegex(ValueError, "0.gate_proj.weight_g_idx: groups in another order"):
                load(Folder({**tensors, name: ("I32", (len(order),), order)}), layer)

    def test_other_layers_take_the_numbers(self):
        for writer, symmetric in ((gptq, False), (awq, False), (pack_quantized, True), (plain, False)):
            tensors, drawn = experts(writer, 64, symmetric)
            with self.subTest(format=writer.__name__):
                layer = make(dtype=torch.float32)
                load(Folder(tensors), layer)
                self.check(layer, drawn)
        layer = make("int8,rows=int8")
        folder = Folder(tensors)
        sluice_torch.load_experts(folder.path / "model.safetensors", layer, PREFIX)
        self.check(layer, drawn, exact=False)

    def test_plain_numbers_of_each_type(self):
        for kind in ("F32", "F16", "BF16"):
            tensors, drawn = experts(plain, kind=kind)
            folder = Folder(tensors)
            for options in ({"dtype": torch.float32}, {}, {"encode": "int8,rows=int8"}, {"encode": "int4:g32,rows=int8"}):
                with self.subTest(kind=kind, **options):
                    layer = make(**options)
                    load(folder, layer)
                    for row, expert in enumerate(layer.local_experts):
                        gate, up, down = (
                            torch.tensor(packed_floats(tensors[f"{PREFIX}.{expert}.{name}.weight"])).view(SIZES[name])
                            for name in NAMES
                        )
                        for name, numbers in (("gate_up_weight", torch.cat((gate, up))), ("down_weight", down)):
                            made = codes.tensors_of(layer.shape.stored(name), name, numbers)
                            for each, tensor in made.items():
                                found = getattr(layer, each)[row]
                                self.assertTrue(torch.equal(found, tensor.to(found.dtype)), (each, expert))

    def test_the_bar_counts_experts(self):
        tensors, _ = experts(plain)
        layer, shown = make(dtype=torch.float32), []

        def tqdm(experts, desc, unit):
            for expert in experts:
                yield expert
                shown.append((desc, unit, len(experts)))

        with unittest.mock.patch.dict(sys.modules, {"tqdm": types.SimpleNamespace(tqdm=tqdm)}):
            load(Folder(tensors), layer, progress=True)
        self.assertEqual(shown, [("experts", "expert", EXPERTS)] * EXPERTS)
        with unittest.mock.patch.dict(sys.modules, {"tqdm": None}):
            with self.assertRaisesRegex(RuntimeError, "progress=True needs the package tqdm"):
                load(Folder(tensors), layer, progress=True)

    def test_the_second_version_of_gptq_stores_zeros_as_they_are(self):
        tensors, drawn = experts(gptq, stored_less=0)
        folder = Folder(tensors)
        (folder.path / "config.json").write_text('{"quantization_config": {"checkpoint_format": "gptq_v2"}}')
        layer = make("int4:g32z,rows=int8")
        sluice_torch.load_experts(folder.path, layer, PREFIX)
        self.check(layer, drawn)

    def test_fp8_in_blocks_rows_and_matrices(self):
        draw = random.Random(1)

        def number(code):
            exponent, fraction = code >> 3 & 15, code & 7
            size = fraction / 8 * 2.0**-6 if exponent == 0 else (1 + fraction / 8) * 2.0 ** (exponent - 7)
            return -size if code & 128 else size

        for blocks in ("squares", "U8", "F8_E8M0", ("F32", 2), ("BF16", 2), ("F16", 1), ("F32", 0), ("BF16", 0)):
            tensors, expected = {}, {}
            for expert in range(EXPERTS):
                for name in NAMES:
                    (out, length), base = SIZES[name], f"{PREFIX}.{expert}.{name}"
                    made = [draw.choice([c for c in range(256) if c & 127 != 127]) for _ in range(out * length)]
                    tensors[f"{base}.weight"] = ("F8_E4M3", (out, length), made)
                    if blocks == "squares":
                        high, wide = -(-out // 128), -(-length // 128)
                        scale = [draw.randrange(1, 9) / 512 for _ in range(high * wide)]
                        tensors[f"{base}.weight_scale_inv"] = ("F32", (high, wide), scale)
                        of = [scale[o // 128 * wide + i // 128] for o in range(out) for i in range(length)]
                    elif isinstance(blocks, tuple):  # scales of rows, or one
                        kind, dimensions = blocks
                        scale = [draw.randrange(64, 128) / 4096 for _ in range(out if dimensions else 1)]
                        shape = (out, 1)[:dimensions] if dimensions else draw.choice(((), (1,)))
                        tensors[f"{base}.weight_scale"] = (kind, shape, scale)
                        of = [scale[o % len(scale)] for o in range(out) for _ in range(length)]
                    else:
                        scale = [draw.randrange(115, 125) for _ in range(out * length // 32)]
                        tensors[f"{base}.weight_scale"] = (blocks, (out, length // 32), scale)
                        of = [2.0 ** (scale[(o * length + i) // 32] - 127) for o in range(out) for i in range(length)]
                    expected[expert, name] = torch.tensor([number(c) * s for c, s in zip(made, of)]).view(out, length)
            layer = make(dtype=torch.float32)
            load(Folder(tensors, files=2), layer)
            for expert in range(EXPERTS):
                gate, up, down = (expected[expert, name] for name in NAMES)
                self.assertTrue(torch.equal(layer.gate_up_weight[expert], torch.cat((gate, up))), blocks)
                self.assertTrue(torch.equal(layer.down_weight[expert], down), blocks)

    def check_as_they_are(self, layer, plain, made):
        """The layer has the codes and scales `made` by (expert, name), and computes what `plain` does with their numbers."""
        for row in range(EXPERTS):
            for name, parts in (("gate_up_weight", NAMES[:2]), ("down_weight", NAMES[2:])):
                codes, scale = (torch.cat([made[row, part][kind] for part in parts]) for kind in range(2))
                self.assertTrue(torch.equal(getattr(layer, name)[row], codes))
                self.assertTrue(torch.equal(getattr(layer, f"{name}_scales")[row], scale))
        x = torch.randn(50, layer.shape.hidden).bfloat16()
        ids, weights = torch.arange(100).view(50, 2) % EXPERTS, torch.rand(50, 2)
        with torch.no_grad():  # both multiply the same numbers of bfloat16
            self.assertTrue(torch.equal(layer(x, ids.int(), weights), plain(x, ids.int(), weights)))

    def test_fp8_in_squares_is_used_as_it_is(self):
        tensors, made = squares_of(200, 128)
        renamed = {name.replace("_scale_inv", "_scale"): each for name, each in tensors.items()}  # as compressed-tensors has them
        layer = make("fp8e4m3:128x128", (200, 128))
        load(Folder(renamed), layer)
        for expert in range(EXPERTS):
            self.assertTrue(torch.equal(layer.down_weight[expert], made[expert, "down_proj"][0]))
            self.assertTrue(torch.equal(layer.down_weight_scales[expert], made[expert, "down_proj"][1]))
        layer, plain = (make(encode, (200, 128)) for encode in ("fp8e4m3:128x128", "bf16"))
        for each in (layer, plain):
            load(Folder(tensors, files=2), each)
        self.check_as_they_are(layer, plain, made)
        self.assertEqual(sorted(layer.state_dict()), ["down_weight", "down_weight_scales", "gate_up_weight", "gate_up_weight_scales"])
        coded = make("int8,rows=int8", (200, 128))
        load(Folder(tensors), coded)  # numbers, quantised again
        self.assertEqual(coded.gate_up_weight.dtype, torch.int8)
        pairs = {key: each for name in NAMES for key, each in awq(f"{PREFIX}.0.{name}", Drawn(1, 128, 128, 32, False)).items()}
        with self.assertRaisesRegex(ValueError, "has int4:g32z:f16, but the layer has fp8e4m3:128x128"):
            load(Folder(pairs), make("fp8e4m3:128x128", (128, 128)))

    def test_mxfp4_is_used_as_it_is(self):
        draw, tensors, made = random.Random(9), {}, {}
        for expert in range(EXPERTS):
            for name in NAMES:
                (out, length), base = SIZES[name], f"{PREFIX}.{expert}.{name}"
                pairs = [draw.randrange(256) for _ in range(out * length // 2)]
                powers = [draw.randrange(118, 126) for _ in range(out * length // 32)]
                tensors[f"{base}.weight_packed"] = ("U8", (out, length // 2), pairs)
                tensors[f"{base}.weight_scale"] = (draw.choice(("U8", "F8_E8M0")), (out, length // 32), powers)
                made[expert, name] = torch.tensor(pairs, dtype=torch.uint8).view(out, -1), torch.tensor(powers, dtype=torch.uint8).view(out, -1)
        layer, plain = make("mxfp4"), make()
        for each in (layer, plain):
            load(Folder(tensors, files=2), each)
        self.check_as_they_are(layer, plain, made)
        with self.assertRaisesRegex(ValueError, "has mxfp4, but the layer has int4:g32"):
            load(Folder(tensors), make("int4:g32"))

    def test_nvfp4_is_used_as_it_is(self):
        for weight, second in (("weight", "weight_scale_2"), ("weight_packed", "weight_global_scale")):
            draw, tensors, made = random.Random(9), {}, {}
            for expert in range(EXPERTS):
                factors = {"down_proj": 2.0 ** draw.randrange(-12, -8), None: 2.0 ** draw.randrange(-12, -8)}
                for name in NAMES:
                    (out, length), base = SIZES[name], f"{PREFIX}.{expert}.{name}"
                    pairs = [draw.randrange(256) for _ in range(out * length // 2)]
                    scales = [draw.randrange(0x48, 0x78) for _ in range(out * length // 16)]
                    factor = factors.get(name, factors[None])
                    tensors[f"{base}.{weight}"] = ("U8", (out, length // 2), pairs)
                    tensors[f"{base}.weight_scale"] = ("F8_E4M3", (out, length // 16), scales)
                    of_file = ((), factor) if weight == "weight" else ((1,), 1 / factor)
                    tensors[f"{base}.{second}"] = ("F32", of_file[0], [of_file[1]])
                    tensors[f"{base}.input_scale"] = ("F32", (), [1.0])
                    made[expert, name] = *(torch.tensor(each, dtype=torch.uint8).view(out, -1) for each in (pairs, scales)), torch.tensor([factor])
            layer, plain = make("nvfp4"), make()
            for each in (layer, plain):
                load(Folder(tensors, files=2), each)
            for row in range(EXPERTS):
                for name, part in (("gate_up_weight", "up_proj"), ("down_weight", "down_proj")):
                    self.assertTrue(torch.equal(getattr(layer, f"{name}_factor")[row], made[row, part][2]))
            self.check_as_they_are(layer, plain, made)  # factors that are powers of two round nothing
            with self.assertRaisesRegex(ValueError, "has nvfp4, but the layer has mxfp4"):
                load(Folder(tensors), make("mxfp4"))
            tensors[f"{PREFIX}.1.up_proj.{second}"] = ("F32", (), [3.0])
            with self.assertRaisesRegex(ValueError, r"1.gate_proj.weight\S* has the factor .* but .*1.up_proj.weight\S* has the factor .*: expected the same"):
                load(Folder(tensors), make("nvfp4"))
            load(Folder(tensors), make())
            for wrong in (0.0, -1.0, float("inf"), float("nan")):
                tensors[f"{PREFIX}.1.up_proj.{second}"] = ("F32", (), [wrong])
                with self.assertRaisesRegex(ValueError, f"1.up_proj.{second} is .*, expected one positive number"):
                    load(Folder(tensors), make())

    def test_codes_are_made_of_both_matrices(self):
        """The factor of NVFP4 is that of the larger one."""
        tensors, drawn = experts(plain)
        tensors[f"{PREFIX}.0.up_proj.weight"] = (*tensors[f"{PREFIX}.0.up_proj.weight"][:2], [8 * each for each in tensors[f"{PREFIX}.0.up_proj.weight"][2]])
        layer, other = make("nvfp4"), make(dtype=torch.float32)
        for each in (layer, other):
            load(Folder(tensors), each)
        for name in ("gate_up_weight", "down_weight"):
            expected = sluice_torch.quantize_nvfp4(getattr(other, name).detach())
            for each, tensor in zip((name, f"{name}_scales", f"{name}_factor"), expected):
                self.assertTrue(torch.equal(getattr(layer, each), tensor), each)

    def test_experts_in_another_order(self):
        tensors, drawn = experts(plain)
        layer = make(dtype=torch.float32)
        order = [2, 0, 3, 1]
        load(Folder(tensors), layer, physical_to_logical_map=torch.tensor(order))
        self.check(layer, drawn, order=order)
        with self.assertRaisesRegex(ValueError, "physical_to_logical_map has 3 experts, expected 4"):
            load(Folder(tensors), layer, physical_to_logical_map=[0, 1, 2])

    def test_a_loaded_layer_computes_with_the_numbers(self):
        tensors, drawn = experts(awq, 32)
        layer, other = make("int4:g32z"), make()
        load(Folder(tensors), layer)
        load(Folder(tensors), other)
        made = torch.Generator().manual_seed(1)
        x = torch.randn(50, HIDDEN, generator=made).bfloat16()
        ids = torch.stack([torch.randperm(EXPERTS, generator=made)[:TOP_K] for _ in range(50)])
        weights = torch.rand(50, TOP_K, generator=made)
        with torch.no_grad():
            self.assertTrue(torch.equal(layer(x, ids, weights), other(x, ids, weights)))

    def test_a_checkpoint_is_a_mapping(self):
        tensors, _ = experts(plain)
        folder = Folder(tensors, files=2)
        found = sluice_torch.Checkpoint(folder.path)
        self.assertEqual(set(found), set(tensors))
        name = f"{PREFIX}.1.down_proj.weight"
        self.assertEqual(found[name].flatten().tolist(), packed_floats(tensors[name]))
        self.assertEqual((len(found), found.type_of(name)), (len(tensors), "F32"))
        self.assertNotIn("other", found)

    def test_files_are_read_without_changes_of_a_checkpoint(self):
        tensors, drawn = experts(pack_quantized, symmetric=True)
        folder = Folder(tensors)
        write(folder.path / "model.safetensors", tensors, align=8)
        checkpoint = sluice_torch.Checkpoint(folder.path)
        name = f"{PREFIX}.1.up_proj.weight_packed"
        checkpoint[name].fill_(7)
        layer = make("int4:g32,rows=int8")
        sluice_torch.load_experts(checkpoint, layer, PREFIX)
        self.check(layer, drawn)
        self.assertTrue((checkpoint[name] == 7).all())

    def test_a_file_that_became_shorter_is_refused(self):
        tensors, _ = experts(plain)
        folder = Folder(tensors)
        write(folder.path / "model.safetensors", tensors, align=8)
        checkpoint = sluice_torch.Checkpoint(folder.path)
        last = checkpoint[f"{PREFIX}.{EXPERTS - 1}.down_proj.weight"]
        file = folder.path / "model.safetensors"
        os.truncate(file, file.stat().st_size - 4)
        with self.assertRaisesRegex(ValueError, "it was truncated meanwhile"):
            checkpoint.copy_into(torch.empty(last.shape), last)

    def test_what_is_wrong_is_refused(self):
        tensors, _ = experts(gptq, 32)
        packed_tensors, _ = experts(pack_quantized, 32, True)
        layer = make("int4:g32z,rows=int8")

        def refused(expected, change, layer=layer, tensors=tensors):
            folder = Folder(change(dict(tensors)))
            with self.assertRaisesRegex(ValueError, expected):
                sluice_torch.load_experts(folder.path, layer, PREFIX)

        def same(tensors):
            return tensors

        def without(name):
            return lambda tensors: {key: each for key, each in tensors.items() if key != f"{PREFIX}.{name}"}

        refused("has no model.layers.3.mlp.experts.2.up_proj.weight, .qweight or .weight_packed", without("2.up_proj.qweight"))
        refused("has no model.layers.3.mlp.experts.1.up_proj.scales", without("1.up_proj.scales"))
        refused("has no model.layers.3.mlp.experts.0.down_proj.qzeros", without("0.down_proj.qzeros"))
        refused("has int4:g32z:f16, but the layer has int4:g64", same, make("int4:g64,rows=int8"))
        refused("has int4:g32z:f16, but the layer has int8: they would be", same, make("int8,rows=int8"))
        refused("has int4:g32z:f16, but the layer has int4:g32: they would be", same, make("int4:g32,rows=int8"))
        order = {f"{PREFIX}.0.gate_proj.g_idx": ("I32", (HIDDEN,), [i % 4 for i in range(HIDDEN)])}
        refused("g_idx: groups in another order", lambda tensors: {**tensors, **order})
        small = sluice_torch.MoE(HIDDEN, 64, EXPERTS, TOP_K, encode="int4:g32z,rows=int8")
        refused(r"is a matrix of \[192, 128\], expected \[64, 128\]", same, small)
        for part, words in (("weight_scale", "weight_scale"), ("weight_shape", "weight_shape")):
            refused(f"has no model.layers.3.mlp.experts.1.up_proj.{words}", without(f"1.up_proj.{part}"), tensors=packed_tensors)
        scales = {f"{PREFIX}.0.up_proj.weight_scale": ("BF16", (INTERMEDIATE, 3), [0.5] * 3 * INTERMEDIATE)}
        refused(r"weight_scale is torch.bfloat16 \[192, 3\], expected even groups of \[192, 128\]", lambda t: {**t, **scales}, tensors=packed_tensors)
        fp8 = {f"{PREFIX}.{e}.{n}.weight": ("F8_E4M3", SIZES[n], [0] * (HIDDEN * INTERMEDIATE)) for e in range(EXPERTS) for n in NAMES}
        refused("weight is F8_E4M3 without .weight_scale_inv or .weight_scale", same, tensors=fp8)
        squares = {f"{PREFIX}.0.gate_proj.weight_scale_inv": ("F32", (1, 1), [1.0])}
        refused(r"weight_scale_inv has shape \[1, 1\], expected \[2, 1\]", lambda t: {**t, **squares}, tensors=fp8)
        whole = {f"{PREFIX}.0.gate_proj.weight": ("I32", (2, 2), [0] * 4)}
        refused("weight has type I32, expected a floating type", lambda _: whole)

        def with_part(tensors, part, kind, shape, value=1):
            count = torch.Size(shape).numel()
            return lambda _: {**tensors, f"{PREFIX}.0.gate_proj.{part}": (kind, shape, [value] * count)}

        shape = r"\[192, 128\]"
        for rows, columns in ((64, 64), (64, 128), (1, 128), (192, 64)):
            blocks = 192 // rows, 128 // columns
            if columns < 128:
                refused(
                    rf"weight_scale_inv has shape \[{blocks[0]}, {blocks[1]}\], expected \[2, 1\] for blocks of 128 x 128 of {shape}, found "
                    f"blocks of {rows} x {columns}$", with_part(fp8, "weight_scale_inv", "F32", blocks)
                )  # fmt: skip
            if rows > 1:
                refused(f"found blocks of {rows} x {columns}$", with_part(fp8, "weight_scale", "BF16", blocks))
        refused(r"0.gate_proj.weight_scale has shape \[5, 3\], expected one number, one for each row, or \[2, 1\] for blocks of 128 x 128 of "
                rf"{shape}$", with_part(fp8, "weight_scale", "BF16", (5, 3)))  # fmt: skip
        refused("weight_scale has type I32, expected F16 or BF16 or F32 or U8 or F8_E8M0", with_part(fp8, "weight_scale", "I32", (192, 1)))
        of_rows = with_part(fp8, "weight_scale", "F32", ())(None)
        refused("weight_zero_point has other numbers than 0, expected none", with_part(of_rows, "weight_zero_point", "F8_E4M3", (192, 1)))
        refused("0.up_proj.weight is F8_E4M3 without", with_part(of_rows, "weight_zero_point", "F8_E4M3", (192, 1), 0))  # these are 0
        int8, _ = experts(int_quantized, 0, True, 8)
        refused("0.up_proj.weight is I8 without .weight_scale", without("0.up_proj.weight_scale"), tensors=int8)
        refused(r"weight_scale has shape \[192, 4\], expected one number, or one for each of the 192 rows", with_part(int8, "weight_scale", "F32", (192, 4)))
        refused("weight_scale has type I32, expected F16 or BF16 or F32", with_part(int8, "weight_scale", "I32", (192, 1)))
        refused("weight_zero_point has type I32, expected I8", with_part(int8, "weight_zero_point", "I32", (192, 1)))
        refused(r"weight_zero_point has shape \[1\], expected \[24, 4\]", with_part(packed_tensors, "weight_zero_point", "I32", (1,)))
        refused(r"weight_zero_point has shape \[24, 4\], expected \[192, 4\]", with_part(packed_tensors, "weight_zero_point", "I8", (24, 4)))
        refused("weight_zero_point has type F32, expected I32 or I8", with_part(packed_tensors, "weight_zero_point", "F32", (24, 4)))
        eight, _ = experts(pack_quantized, 32, True, 8)
        refused(r"weight_zero_point has shape \[24, 4\], expected \[48, 4\]", with_part(eight, "weight_zero_point", "I32", (24, 4)))
        refused("expected I32 with 8 or 4 codes per word", with_part(eight, "weight_packed", "I32", (192, 8)))
        few = {**eight, f"{PREFIX}.0.gate_proj.weight_shape": ("I64", (2,), [192, 4])}  # one word, with codes of 4 bits or of 8
        refused("expected I32 with 8 or 4 codes per word", with_part(few, "weight_packed", "I32", (192, 1)))

    def test_broken_files_are_refused(self):
        tensors, _ = experts(plain)
        layer = make(dtype=torch.float32)

        def refused(expected, path):
            with self.assertRaisesRegex(ValueError, expected):
                sluice_torch.load_experts(path, layer, PREFIX)

        folder = Folder(tensors)
        file = folder.path / "model.safetensors"
        whole = file.read_bytes()
        file.write_bytes(whole[:-100])
        refused("is in bytes .* the file is truncated", folder.path)
        file.write_bytes(whole[:50])
        refused("a header of .* bytes in a file of 50: truncated, or no safetensors file", folder.path)
        file.write_bytes(b"abc")
        refused("3 bytes, expected a safetensors file", file)
        file.write_bytes(b"GGUF" + bytes(100))
        with self.assertRaisesRegex(ValueError, "a GGUF file, expected a safetensors file"):
            sluice_torch.Checkpoint(file)
        file.write_bytes(struct.pack("<Q", 4) + b"nope")
        refused("the header is not that of a safetensors file", file)
        refused("other: cannot read: No such file", folder.path / "other")
        for change in ({"dtype": "F7"}, {"shape": [3, -1]}, {"data_offsets": [0]}, {"shape": [5, 5]}):
            length = struct.unpack("<Q", whole[:8])[0]
            header = json.loads(whole[8 : 8 + length])
            header[f"{PREFIX}.0.gate_proj.weight"].update(change)
            text = json.dumps(header).encode()
            file.write_bytes(struct.pack("<Q", len(text)) + text + whole[8 + length :])
            refused("has type 'F7'|does not describe|is F32 .* bytes, expected 100", folder.path)
        text = whole[8 : 8 + length].replace(b".1.up_proj.", b".0.up_proj.")
        file.write_bytes(struct.pack("<Q", len(text)) + text + whole[8 + length :])
        refused("the header describes model.layers.3.mlp.experts.0.up_proj.weight twice", folder.path)
        file.unlink()
        refused("has neither model.safetensors.index.json nor", folder.path)
        for name in ("a", "b"):
            write(folder.path / f"{name}.safetensors", tensors)
        refused("is in .*a.safetensors and in .*b.safetensors", folder.path)
        indexed = Folder(tensors, files=2)
        index = indexed.path / "model.safetensors.index.json"
        said = index.read_text()
        name = f"{PREFIX}.0.gate_proj.weight"
        index.write_text(said.replace('"weight_map": {', f'"weight_map": {{"{name}": "model-00002-of-00002.safetensors", '))
        refused(f"index.json: {name} is there twice", indexed.path)
        index.write_text(said.replace("model-00001", "model-00002"))
        refused(f"model-00002-of-00002.safetensors: the header does not describe {name}", indexed.path)
        index.write_text(said)
        (indexed.path / "model-00002-of-00002.safetensors").unlink()
        refused("00002-of-00002.safetensors: cannot read", indexed.path)
        (indexed.path / "model.safetensors.index.json").write_text("[]")
        refused("no index of safetensors files", indexed.path)

    def test_each_rank_reads_its_part(self):
        for size in (2, 4):
            with self.subTest(ranks=size):
                core_jobs.run_ranks(self, "ranks", size)


def packed_floats(tensor):
    """The numbers that a file has for a tensor of F32, F16 or BF16."""
    kind, _, values = tensor
    made = packed(kind, values)
    if kind == "BF16":
        made = b"".join(b"\0\0" + made[i : i + 2] for i in range(0, len(made), 2))
    return list(struct.unpack(f"<{len(values)}{'e' if kind == 'F16' else 'f'}", made))


def ranks(rank, size):
    for writer, options in ((awq, {"encode": "int4:g32z,rows=int8"}), (plain, {"dtype": torch.float32}), (int_quantized, {"encode": "int8"})):
        tensors, drawn = experts(writer) if writer is not int_quantized else experts(writer, 0, True, 8)
        folder = Folder(tensors)
        for mesh in ({}, {"tp": 2}, {"spare": size}):
            layer = make(ep_group=dist.group.WORLD, timeout=20, **options, **mesh)
            sluice_torch.load_experts(folder.path, layer, PREFIX)
            part = layer.shape.part
            own = slice(layer.shard * part, (layer.shard + 1) * part)
            for row, expert in enumerate(layer.local_experts):
                gate, up, down = (drawn[expert, name].numbers() for name in NAMES)
                assert torch.equal(numbers_of(layer, "gate_up_weight", row), torch.cat((gate[own], up[own]))), (mesh, row)
                assert torch.equal(numbers_of(layer, "down_weight", row), down[:, own]), (mesh, row)
    tensors, made = squares_of(128, 256)
    folder, results = Folder(tensors), []
    x = torch.randn(20 + 3 * rank, 128, generator=torch.Generator().manual_seed(rank)).bfloat16()
    ids = torch.arange(2 * len(x), dtype=torch.int32).view(-1, 2) % EXPERTS
    for encode in ("fp8e4m3:128x128", "bf16"):
        layer = make(encode, (128, 256), ep_group=dist.group.WORLD, tp=2, timeout=20)
        sluice_torch.load_experts(folder.path, layer, PREFIX)
        own, of_scales = (slice(layer.shard * each, (layer.shard + 1) * each) for each in (128, 1))
        for row, expert in enumerate(layer.local_experts):
            (gate, gate_scale), (up, up_scale), (down, down_scale) = (made[expert, name] for name in NAMES)
            expected = [torch.cat((gate[own], up[own])), torch.cat((gate_scale[of_scales], up_scale[of_scales])), down[:, own], down_scale[:, of_scales]]
            found = [getattr(layer, f"{name}{more}")[row] for name in ("gate_up_weight", "down_weight") for more in ("", "_scales")[: 1 + layer.shape.has_codes]]
            if not layer.shape.has_codes:
                expected = [codes.dequantize_fp8(*expected[at : at + 2]) for at in (0, 2)]
            assert all(map(torch.equal, found, expected)), (encode, row)
        with torch.no_grad():
            results.append(layer(x, ids, torch.ones(ids.shape)))
    assert torch.equal(*results), "codes give other bits than their numbers"


if __name__ == "__main__" and not core_jobs.main({"ranks": ranks}):
    unittest.main()
