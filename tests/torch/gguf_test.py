"""Experts from GGUF files, written here from integers, against the numbers that their codes stand for."""

import pathlib
import random
import struct
import tempfile
import unittest

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from sluice_torch import codes

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 256, 512, 2, 1
PREFIX = "blk.3"
SIZES = {"gate": (INTERMEDIATE, HIDDEN), "up": (INTERMEDIATE, HIDDEN), "down": (HIDDEN, INTERMEDIATE)}
TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "Q4_K": 12, "Q6_K": 14, "BF16": 30, "MXFP4": 39}


# --- Writers: bytes and the numbers they stand for -------------------------------------------------------------------


def half(draw):
    """A scale of few bits, and its bytes."""
    value = draw.choice((-1, 1)) * draw.randrange(1, 64) / 1024
    return value, struct.pack("<e", value)


def plain(code, draw):
    value = draw.randrange(-128, 128) / 64
    made = struct.pack("<e" if code == "e" else "<f", value)
    return (made[2:] if code == "B" else made), [value]


def q8_0(draw):
    scale, made = half(draw)
    own = [draw.randrange(-128, 128) for _ in range(32)]
    return made + struct.pack("<32b", *own), [code * scale for code in own]


def q4_0(draw):
    scale, made = half(draw)
    own = [draw.randrange(16) for _ in range(32)]
    return made + bytes(own[i] | own[i + 16] << 4 for i in range(16)), [(code - 8) * scale for code in own]


def q4_k(draw):
    (d, of_d), (least, of_least) = half(draw), half(draw)
    scales, minima = ([draw.randrange(64) for _ in range(8)] for _ in range(2))
    own = [draw.randrange(16) for _ in range(256)]
    bits = bytearray(12)
    for group in range(4):
        bits[group] = scales[group] | scales[group + 4] >> 4 << 6
        bits[group + 4] = minima[group] | minima[group + 4] >> 4 << 6
        bits[group + 8] = scales[group + 4] & 15 | (minima[group + 4] & 15) << 4
    pairs = bytes(own[64 * two + i] | own[64 * two + 32 + i] << 4 for two in range(4) for i in range(32))
    numbers = [code * (d * scales[i // 32]) - least * minima[i // 32] for i, code in enumerate(own)]
    return of_d + of_least + bytes(bits) + pairs, numbers


def q6_k(draw):
    d, of_d = half(draw)
    scales, own = [draw.randrange(-128, 128) for _ in range(16)], [draw.randrange(64) for _ in range(256)]
    lower = bytes(own[begin + i] & 15 | (own[begin + i + 64] & 15) << 4 for begin in (0, 128) for i in range(64))
    upper = bytes(sum((own[begin + i + 32 * n] >> 4) << 2 * n for n in range(4)) for begin in (0, 128) for i in range(32))
    numbers = [(code - 32) * (d * scales[i // 16]) for i, code in enumerate(own)]
    return lower + upper + struct.pack("<16b", *scales) + of_d, numbers


def mxfp4(draw):
    power = draw.randrange(100, 130)
    own = [draw.randrange(16) for _ in range(32)]
    sizes = (0, 0.5, 1, 1.5, 2, 3, 4, 6)
    numbers = [sizes[code % 8] * (1 if code < 8 else -1) * 2.0 ** (power - 127) for code in own]
    return bytes([power]) + bytes(own[i] | own[i + 16] << 4 for i in range(16)), numbers


BLOCKS = {
    "F32": (1, lambda draw: plain("f", draw)),
    "F16": (1, lambda draw: plain("e", draw)),
    "BF16": (1, lambda draw: plain("B", draw)),
    "Q8_0": (32, q8_0),
    "Q4_0": (32, q4_0),
    "Q4_K": (256, q4_k),
    "Q6_K": (256, q6_k),
    "MXFP4": (32, mxfp4),
}


def text(words):
    return struct.pack("<Q", len(words)) + words.encode()


class File:
    """A file with the experts of a layer in blocks of a kind, that of `down` in those of another one if it has one; `numbers` are those
    of name, [experts, out, in]."""

    def __init__(self, kind, down=None, version=3, alignment=64, experts=EXPERTS, cut=0, twice=False, number=None, shorter=0):
        self._folder = tempfile.TemporaryDirectory()
        self.path, self.numbers = pathlib.Path(self._folder.name) / "model.gguf", {}
        draw, infos, data = random.Random(1), [], b""
        for name, (out, length) in SIZES.items():
            of = down if down and name == "down" else kind
            size, block = BLOCKS[of]
            drawn = [block(draw) for _ in range(experts * out * length // size)]
            self.numbers[name] = torch.tensor([x for _, own in drawn for x in own]).view(experts, out, length)
            full = text(f"{PREFIX}.ffn_{name}_exps.weight")
            infos.append(full + struct.pack("<IQQQIQ", 3, length - shorter, out, experts, TYPES[of] if number is None else number, len(data)))
            data += b"".join(made for made, _ in drawn)
            data += bytes(-len(data) % alignment)
        infos += infos[:1] if twice else []
        metadata = [
            text("general.alignment") + struct.pack("<II", 4, alignment),
            text("general.name") + struct.pack("<I", 8) + text("some model"),
            text("tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b"),
            text("scores") + struct.pack("<IIQ3f", 9, 6, 3, 1, 2, 3),
            text("flag") + struct.pack("<I?", 7, True),
        ]
        head = b"GGUF" + struct.pack("<IQQ", version, len(infos), len(metadata)) + b"".join(metadata) + b"".join(infos)
        head += bytes(-len(head) % alignment)
        self.header = len(head)
        self.path.write_bytes((head + data)[: len(head) + len(data) - cut])

    def __del__(self):
        self._folder.cleanup()


def make(encode="bf16", **options):
    return sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, encode=encode, threads=2, **options)


def numbers_of(layer, name, row):
    whole = [getattr(layer, each)[row].detach() for each in (name, *layer.shape.beside(name))]
    if layer.shape.stored(name).scale == "F8_E8M0":
        return codes.dequantize_mxfp4(*whole, dtype=torch.float32)
    return codes.dequantize(*whole, dtype=torch.float32) if layer.shape.has_codes else whole[0].float()


class GgufTest(unittest.TestCase):
    def check(self, layer, file, order=range(EXPERTS)):
        for row, expert in enumerate(layer.local_experts):
            gate, up, down = (file.numbers[name][order[expert]] for name in SIZES)
            self.assertTrue(torch.equal(numbers_of(layer, "gate_up_weight", row), torch.cat((gate, up))))
            self.assertTrue(torch.equal(numbers_of(layer, "down_weight", row), down))

    def test_layers_get_the_numbers_of_each_type(self):
        for kind in BLOCKS:
            with self.subTest(kind=kind):
                file, layer = File(kind), make(dtype=torch.float32)
                sluice_torch.load_experts(file.path, layer, PREFIX)
                self.check(layer, file)
        sluice_torch.load_experts(file.path, layer, PREFIX, physical_to_logical_map=[1, 0])
        self.check(layer, file, order=[1, 0])

    def test_codes_of_4_bits_are_taken_as_they_are(self):
        for kind, zeros in (("Q4_0", False), ("Q4_0", True), ("Q4_K", True)):
            with self.subTest(kind=kind, zeros=zeros):
                file, layer = File(kind, version=2, alignment=32), make("int4:g32z,rows=int8" if zeros else "int4:g32,rows=int8")
                sluice_torch.load_experts(file.path, layer, PREFIX, ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"))
                self.check(layer, file)
        with self.assertRaisesRegex(ValueError, "has zeros, but the layer has none: expected one of int4:z, int4:g32z"):
            sluice_torch.load_experts(file.path, make("int4:g32,rows=int8"), PREFIX)
        with self.assertRaisesRegex(ValueError, "has 4-bit codes in groups of 32, but the layer has int4:g64z"):
            sluice_torch.load_experts(file.path, make("int4:g64z,rows=int8"), PREFIX)

    def test_codes_of_mxfp4_are_taken_as_they_are(self):
        file, whole, layer = File("MXFP4"), File("Q4_0"), make("mxfp4")
        sluice_torch.load_experts(file.path, layer, PREFIX)
        self.check(layer, file)
        with self.assertRaisesRegex(ValueError, "has 4-bit floats in groups of 32, but the layer has int4:g32"):
            sluice_torch.load_experts(file.path, make("int4:g32"), PREFIX)
        with self.assertRaisesRegex(ValueError, "has 4-bit codes in groups of 32, but the layer has mxfp4"):
            sluice_torch.load_experts(whole.path, make("mxfp4"), PREFIX)

    def test_weights_of_two_types_go_into_a_layer_that_has_both(self):
        """As in most files of Q4_K_M: gate and up are Q4_K, down is Q6_K, whose numbers the layer quantises."""
        file, whole, layer = File("Q4_K", down="Q6_K"), File("Q4_K"), make("int4:g32z,weights.down_weight=int8")
        sluice_torch.load_experts(file.path, layer, PREFIX)
        for row in range(EXPERTS):
            gate, up, down = (file.numbers[name][row] for name in SIZES)
            self.assertTrue(torch.equal(numbers_of(layer, "gate_up_weight", row), torch.cat((gate, up))))
            found, scale = layer.down_weight[row], layer.down_weight_scale[row]
            self.assertLessEqual((found * scale - down).abs().sub(0.5001 * scale).max(), 0)
        with self.assertRaisesRegex(ValueError, "down_exps.weight has 4-bit codes in groups of 32, but the layer has int8"):
            sluice_torch.load_experts(whole.path, layer, PREFIX)
        layer = make("int4:g32z,weights.down_weight=bf16")
        sluice_torch.load_experts(file.path, layer, PREFIX)
        self.assertTrue(torch.equal(layer.down_weight[1], file.numbers["down"][1].bfloat16()))

    def test_what_is_wrong_is_refused(self):
        layer = make(dtype=torch.float32)

        def refused(expected, file, prefix=PREFIX, layer=layer, **options):
            with self.assertRaisesRegex(ValueError, expected):
                sluice_torch.load_experts(file.path, layer, prefix, **options)

        good = File("Q8_0")
        refused("has no blk.4.ffn_gate_exps.weight", good, "blk.4")
        refused("has 2 experts, expected 3", good, layer=sluice_torch.MoE(HIDDEN, INTERMEDIATE, 3, TOP_K))
        refused("has 2 experts, expected 6", good, physical_to_logical_map=[0, 5])
        refused(r"is a matrix of \[512, 256\], expected \[64, 256\]", good, layer=sluice_torch.MoE(HIDDEN, 64, EXPERTS, TOP_K))
        refused("expert 1 of blk.3.ffn_down_exps.weight ends at byte .*: the file is truncated", File("Q8_0", cut=1))
        refused("has blk.3.ffn_gate_exps.weight twice", File("Q8_0", twice=True))
        refused("GGUF of version 1, expected 2 or 3", File("Q8_0", version=1))
        refused(r"has type 11, expected one of 0 \(F32\)", File("Q8_0", number=11))
        refused("has rows of 240, expected a multiple of the 32 of a block of Q8_0", File("Q8_0", shorter=16))
        whole = good.path.read_bytes()
        for length in (5, 20, 60, 200, good.header - 150):
            good.path.write_bytes(whole[:length])
            refused(f"the header ends within the file's {length} bytes or is damaged", good)

    def test_each_rank_reads_its_part(self):
        core_jobs.run_ranks(self, "ranks", 2)


def ranks(rank, size):
    file = File("Q4_K")
    for mesh in ({}, {"tp": 2}):
        for options in ({"dtype": torch.float32}, {"encode": "int4:g32z,rows=int8"}):
            layer = make(ep_group=dist.group.WORLD, timeout=20, **options, **mesh)
            sluice_torch.load_experts(file.path, layer, PREFIX)
            own = slice(layer.shard * layer.shape.part, (layer.shard + 1) * layer.shape.part)
            for row, expert in enumerate(layer.local_experts):
                gate, up, down = (file.numbers[name][expert] for name in SIZES)
                assert torch.equal(numbers_of(layer, "gate_up_weight", row), torch.cat((gate[own], up[own]))), (mesh, row)
                assert torch.equal(numbers_of(layer, "down_weight", row), down[:, own]), (mesh, row)


if __name__ == "__main__" and not core_jobs.main({"ranks": ranks}):
    unittest.main()
