"""Experts from GGUF files, written here from integers, against the numbers that their codes stand for."""

import pathlib
import random
import struct
import tempfile
import unittest
import unittest.mock

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
import write_gguf
from grouped import grouped
from sluice_torch.encodings import codes
from sluice_torch.weights import gguf

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 256, 512, 2, 1
PREFIX = "blk.3"
SIZES = {"gate": (INTERMEDIATE, HIDDEN), "up": (INTERMEDIATE, HIDDEN), "down": (HIDDEN, INTERMEDIATE)}
TYPES = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14,
    "IQ4_NL": 20, "BF16": 30, "MXFP4": 39,
}  # fmt: skip


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


def q4_1(draw):
    (scale, of_scale), (least, of_least) = half(draw), half(draw)
    own = [draw.randrange(16) for _ in range(32)]
    return of_scale + of_least + bytes(own[i] | own[i + 16] << 4 for i in range(16)), [code * scale + least for code in own]


def fives(draw):
    """32 codes of 5 bits, and their bytes."""
    own = [draw.randrange(32) for _ in range(32)]
    fifths = struct.pack("<I", sum((code >> 4) << i for i, code in enumerate(own)))
    return own, fifths + bytes(own[i] & 15 | (own[i + 16] & 15) << 4 for i in range(16))


def q5_0(draw):
    (scale, of_scale), (own, made) = half(draw), fives(draw)
    return of_scale + made, [(code - 16) * scale for code in own]


def q5_1(draw):
    (scale, of_scale), (least, of_least), (own, made) = half(draw), half(draw), fives(draw)
    return of_scale + of_least + made, [code * scale + least for code in own]


def iq4_nl(draw):
    scale, made = half(draw)
    known = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
    own = [draw.randrange(16) for _ in range(32)]
    return made + bytes(own[i] | own[i + 16] << 4 for i in range(16)), [known[code] * scale for code in own]


def quarters(own):
    """The bytes of the lower two bits of 256 codes."""
    return bytes(sum((own[half + 32 * n + i] & 3) << 2 * n for n in range(4)) for half in (0, 128) for i in range(32))


def q2_k(draw):
    (d, of_d), (least, of_least) = half(draw), half(draw)
    scales, minima = ([draw.randrange(16) for _ in range(16)] for _ in range(2))
    own = [draw.randrange(4) for _ in range(256)]
    numbers = [code * (d * scales[i // 16]) - least * minima[i // 16] for i, code in enumerate(own)]
    return bytes(scale | minimum << 4 for scale, minimum in zip(scales, minima)) + quarters(own) + of_d + of_least, numbers


def q3_k(draw):
    d, of_d = half(draw)
    scales, own = [draw.randrange(64) for _ in range(16)], [draw.randrange(8) for _ in range(256)]
    thirds = bytes(sum((own[32 * n + i] >> 2) << n for n in range(8)) for i in range(32))
    bits = bytes(scales[i] & 15 | (scales[i + 8] & 15) << 4 for i in range(8))
    bits += bytes(sum((scales[i + 4 * n] >> 4) << 2 * n for n in range(4)) for i in range(4))
    numbers = [(code - 4) * (d * (scales[i // 16] - 32)) for i, code in enumerate(own)]
    return thirds + quarters(own) + bits + of_d, numbers


def q4_k(draw, bits_of_code=4):
    (d, of_d), (least, of_least) = half(draw), half(draw)
    scales, minima = ([draw.randrange(64) for _ in range(8)] for _ in range(2))
    own = [draw.randrange(1 << bits_of_code) for _ in range(256)]
    bits = bytearray(12)
    for group in range(4):
        bits[group] = scales[group] | scales[group + 4] >> 4 << 6
        bits[group + 4] = minima[group] | minima[group + 4] >> 4 << 6
        bits[group + 8] = scales[group + 4] & 15 | (minima[group + 4] & 15) << 4
    fifths = bytes(sum((own[32 * group + i] >> 4) << group for group in range(8)) for i in range(32)) if bits_of_code == 5 else b""
    pairs = bytes(own[64 * two + i] & 15 | (own[64 * two + 32 + i] & 15) << 4 for two in range(4) for i in range(32))
    numbers = [code * (d * scales[i // 32]) - least * minima[i // 32] for i, code in enumerate(own)]
    return of_d + of_least + bytes(bits) + fifths + pairs, numbers


def q5_k(draw):
    return q4_k(draw, 5)


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
    "Q4_1": (32, q4_1),
    "Q5_0": (32, q5_0),
    "Q5_1": (32, q5_1),
    "IQ4_NL": (32, iq4_nl),
    "Q2_K": (256, q2_k),
    "Q3_K": (256, q3_k),
    "Q4_K": (256, q4_k),
    "Q5_K": (256, q5_k),
    "Q6_K": (256, q6_k),
    "MXFP4": (32, mxfp4),
}


def drawn(kind, draw, count):
    """`count` numbers in blocks of a kind: their bytes, and the numbers."""
    size, block = BLOCKS[kind]
    made = [block(draw) for _ in range(count // size)]
    return b"".join(each for each, _ in made), [number for _, own in made for number in own]


class File:
    """A file with the experts of a layer in blocks of a kind, that of `down` in those of another one if it has one; `numbers` are those
    of name, [experts, out, in]. If `alone`, each expert has tensors of its own; if `split`, there are three files, and path is that
    of the second."""

    def __init__(
        self, kind, down=None, version=3, alignment=64, cut=0, twice=False, number=None, shorter=0, alone=False, split=False
    ):  # fmt: skip
        self._folder = tempfile.TemporaryDirectory()
        folder, self.numbers = pathlib.Path(self._folder.name), {}
        draw, tensors = random.Random(1), []
        for name, (out, length) in SIZES.items():
            of = down if down and name == "down" else kind
            made, numbers = drawn(of, draw, EXPERTS * out * length)
            self.numbers[name] = torch.tensor(numbers).view(EXPERTS, out, length)
            row = length - shorter, out
            type_of = TYPES[of] if number is None else number
            if alone:
                each = len(made) // EXPERTS
                own = [(f"{PREFIX}.ffn_{name}.{e}.weight", row, type_of, made[e * each : (e + 1) * each]) for e in range(EXPERTS)]
            else:
                own = [(f"{PREFIX}.ffn_{name}_exps.weight", (*row, EXPERTS), type_of, made)]
            tensors += own
        tensors += tensors[:1] if twice else []
        metadata = [
            ("general.name", "TEXT", "some model"),
            ("tokens", "LIST", ("TEXT", ["a", "b"])),
            ("scores", "LIST", ("F32", [1, 2, 3])),
            ("flag", "BOOL", True),
        ]
        options = {"version": version, "alignment": alignment, "cut": cut}
        if split:
            self.path = write_parts(folder, [tensors[n::3] for n in range(3)], metadata, **options)[1]
        else:
            self.path = folder / "model.gguf"
            self.header = write_gguf.write(self.path, tensors, metadata, **options)

    def __del__(self):
        self._folder.cleanup()


def write_parts(folder, parts, metadata=(), change=lambda number, keys: keys, **options):
    """Writes the parts of a model, each a list of tensors; change(number, {name: (type, value)}) may change what one says."""
    paths = []
    for number, tensors in enumerate(parts):
        keys = {"split.no": ("U16", number), "split.count": ("U16", len(parts)), "split.tensors.count": ("I32", sum(map(len, parts)))}
        keys = [(name, *each) for name, each in change(number, keys).items()]
        paths.append(folder / f"model-{number + 1:05}-of-{len(parts):05}.gguf")
        write_gguf.write(paths[-1], tensors, (*(() if number else metadata), *keys), **options)
    return paths


def make(encode="bf16", **options):
    return sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, encode=encode, **grouped(threads=2, **options))


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
        for kind in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "MXFP4"):
            with self.subTest(kind=kind):
                file, layer = File(kind), make(dtype=torch.float32)
                sluice_torch.load_experts(file.path, layer, PREFIX)
                self.check(layer, file)
        sluice_torch.load_experts(file.path, layer, PREFIX, physical_to_logical_map=[1, 0])
        self.check(layer, file, order=[1, 0])

    def test_tensors_have_the_numbers_of_their_blocks(self):
        draw, expected, tensors = random.Random(2), {}, []
        for kind in BLOCKS:
            for shape in ((256,), (3, 512), (2, 3, 256)):
                made, numbers = drawn(kind, draw, torch.Size(shape).numel())
                tensors.append((f"{kind}.{len(shape)}", shape[::-1], TYPES[kind], made))
                expected[tensors[-1][0]] = torch.tensor(numbers).view(shape)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.gguf"
            write_gguf.write(path, tensors)
            file = gguf.Gguf(path)
            self.assertEqual(file.names(), list(expected))
            for decoded in (1, 300, 1 << 20):  # numbers at a time: one row, one row, all
                with unittest.mock.patch.object(gguf, "_DECODED", decoded):
                    for name, numbers in expected.items():
                        found, kind = file.tensor(name), name.split(".")[0]
                        self.assertTrue(torch.equal(found.float(), numbers), name)
                        self.assertEqual((found.shape, file.shape_of(name)), (numbers.shape, tuple(numbers.shape)))
                        dtypes = {"F16": torch.float16, "BF16": torch.bfloat16}
                        self.assertEqual((found.dtype, file.type_of(name)), (dtypes.get(kind, torch.float32), kind))
            file.tensor("F32.1").fill_(7)  # a tensor is a copy
            self.assertTrue(torch.equal(file.tensor("F32.1"), expected["F32.1"]))

    def test_metadata_are_numbers_texts_and_lists(self):
        rows = {
            "u8": ("U8", 200), "i8": ("I8", -100), "u16": ("U16", 60000), "i16": ("I16", -30000), "u32": ("U32", 2**32 - 1),
            "i32": ("I32", -(2**31)), "f32": ("F32", 0.25), "no": ("BOOL", False), "yes": ("BOOL", True), "text": ("TEXT", "größer"),
            "none": ("TEXT", ""), "u64": ("U64", 2**64 - 1), "i64": ("I64", -(2**63)), "f64": ("F64", 0.1),
            "tokens": ("LIST", ("TEXT", ["a", "", "größer"])), "numbers": ("LIST", ("I16", [-1, 2, 3])), "empty": ("LIST", ("F32", [])),
            "flags": ("LIST", ("BOOL", [True, False])), "lists": ("LIST", ("LIST", [("U8", [1, 2]), ("TEXT", ["x"]), ("LIST", [])])),
        }  # fmt: skip

        def as_read(kind, content):
            return [as_read(content[0], each) for each in content[1]] if kind == "LIST" and isinstance(content, tuple) else content

        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.gguf"
            write_gguf.write(path, [], [(name, *each) for name, each in rows.items()])
            found = gguf.Gguf(path).metadata
            expected = {"general.alignment": 64} | {name: as_read(*each) for name, each in rows.items()}
            self.assertEqual((found, list(found)), (expected, list(expected)))
            self.assertIs(found["yes"], True)
            write_gguf.write(path, [], [("tokens", "LIST", ("TEXT", [b"\xff\x00a"])), ("text", "TEXT", b"a\x80")])
            found = gguf.Gguf(path).metadata
            made = [each.encode(errors="surrogateescape") for each in (*found["tokens"], found["text"])]
            self.assertEqual(made, [b"\xff\x00a", b"a\x80"])

    def test_files_in_parts_are_one_model(self):
        file, layer = File("Q8_0", split=True), make(dtype=torch.float32)
        for number in (1, 2, 3):
            path = file.path.with_name(f"model-0000{number}-of-00003.gguf")
            found = gguf.Gguf(path)
            self.assertEqual(found.names(), [f"{PREFIX}.ffn_{name}_exps.weight" for name in SIZES])
            self.assertEqual(found.metadata["general.name"], "some model")  # which only the first part has
            layer = make(dtype=torch.float32)
            sluice_torch.load_experts(path, layer, PREFIX)
            self.check(layer, file)

    def test_parts_that_do_not_belong_together_are_refused(self):
        parts = [[(name, (4,), TYPES["F32"], bytes(16)) for name in names] for names in ("ab", "c", "d")]

        def refused(expected, change=lambda number, keys: keys, of=parts, opened=0, rename=None, drop=None):
            with tempfile.TemporaryDirectory() as folder:
                paths = write_parts(pathlib.Path(folder), of, change=change)
                if drop is not None:
                    paths[drop].unlink()
                if rename is not None:
                    paths[opened] = paths[opened].rename(paths[opened].with_name(rename))
                with self.assertRaisesRegex(ValueError, expected):
                    gguf.Gguf(paths[opened])

        def says(part, **changed):
            changed = {name.replace("_", "."): each for name, each in changed.items()}
            return lambda number, keys: {**keys, **changed} if number == part else keys

        def silent(part, name):
            return lambda number, keys: {key: each for key, each in keys.items() if (number, key) != (part, name)}

        refused("model-00002-of-00003.gguf: cannot read: No such file", drop=1)
        refused("model-00001-of-00003.gguf: cannot read: No such file", opened=2, drop=0)
        refused("model-00002-of-00003.gguf: split.no is 2, expected 1, as the name", says(1, split_no=("U16", 2)))
        refused("model-00003-of-00003.gguf: split.count is 4, expected 3, as the name", says(2, split_count=("U16", 4)))
        refused("model-00001-of-00003.gguf: split.count is 'x', expected 3", says(0, split_count=("TEXT", "x")))
        refused("model-00003-of-00003.gguf: split.tensors.count is 5, expected 4, the tensors of all parts", says(2, split_tensors_count=("I32", 5)))
        for name in ("split.no", "split.count", "split.tensors.count"):
            refused(f"model-00002-of-00003.gguf: {name} is absent, expected", silent(1, name))
        refused("b is in .*00001-of-00003.gguf and in .*00003-of-00003.gguf", of=[*parts[:2], [("b", *parts[2][0][1:])]])
        refused("other.gguf: split.count is 3, expected 1, since the name of the file is not NAME-00001-of-00002.gguf", rename="other.gguf")
        refused("model-00001-of-00002.gguf: split.count is 3, expected 2, as the name", rename="model-00001-of-00002.gguf")
        for name, of in (("model-00004-of-00003.gguf", 4), ("model-00000-of-00003.gguf", 0)):
            refused(f"the name is that of part {of} of 3, expected one of 1 to 3", rename=name)
        file = File("Q8_0", split=True, cut=1)
        with self.assertRaisesRegex(ValueError, "model-00003-of-00003.gguf: expert 1 of blk.3.ffn_down_exps.weight ends at byte"):
            gguf.Gguf(file.path).matrix(PREFIX, 1, "ffn_down_exps", EXPERTS)
        with tempfile.TemporaryDirectory() as folder:
            for name, keys in (("one-00001-of-00001.gguf", []), ("one.gguf", [("split.count", "U16", 1), ("split.no", "U16", 0)])):
                path = pathlib.Path(folder) / name
                write_gguf.write(path, parts[0], keys)
                self.assertEqual(gguf.Gguf(path).names(), ["a", "b"])

    def test_experts_may_have_tensors_of_their_own(self):
        for kind, options in (("Q5_0", {"dtype": torch.float32}), ("Q4_0", {"encode": "int4:g32,rows=int8"})):
            file, layer = File(kind, alone=True), make(**options)
            sluice_torch.load_experts(file.path, layer, PREFIX)
            self.check(layer, file)
        sluice_torch.load_experts(file.path, layer, PREFIX, physical_to_logical_map=[1, 1])
        self.check(layer, file, order=[1, 1])
        more = sluice_torch.MoE(HIDDEN, INTERMEDIATE, 3, TOP_K)
        with self.assertRaisesRegex(ValueError, r"blk.3.ffn_gate.\*.weight has 2 experts, expected 3"):
            sluice_torch.load_experts(file.path, more, PREFIX)
        with self.assertRaisesRegex(ValueError, r"blk.3.ffn_gate.\*.weight has 2 experts, expected 6"):
            sluice_torch.load_experts(file.path, layer, PREFIX, physical_to_logical_map=[0, 5])
        with self.assertRaisesRegex(ValueError, r"has no blk.4.ffn_gate_exps.weight, and no blk.4.ffn_gate.0.weight"):
            sluice_torch.load_experts(file.path, layer, "blk.4")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.gguf"
            write_gguf.write(path, [(f"{PREFIX}.ffn_gate.0.weight", (HIDDEN, INTERMEDIATE, 1), TYPES["F32"], bytes(4 * HIDDEN * INTERMEDIATE))])
            with self.assertRaisesRegex(ValueError, r"blk.3.ffn_gate.0.weight has sizes \[256, 512, 1\], expected \[in, out\]"):
                gguf.Gguf(path).matrix(PREFIX, 0, "ffn_gate_exps", 1)

    def test_codes_of_4_bits_are_taken_as_they_are(self):
        for kind, zeros in (("Q4_0", False), ("Q4_0", True), ("Q4_1", True), ("Q4_K", True)):
            with self.subTest(kind=kind, zeros=zeros):
                file, layer = File(kind, version=2, alignment=32), make("int4:g32z,rows=int8" if zeros else "int4:g32,rows=int8")
                sluice_torch.load_experts(file.path, layer, PREFIX, ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"))
                self.check(layer, file)
        other, halves = File("Q4_0"), make("int4:g32:f16")
        for each in (halves, layer):
            sluice_torch.load_experts(other.path, each, PREFIX)
        self.assertEqual(halves.down_weight_scales.dtype, torch.float16)
        self.assertTrue(torch.equal(halves.down_weight_scales.float(), layer.down_weight_scales))
        other = File("Q4_1")
        with self.assertRaisesRegex(ValueError, "has int4:g32z, but the layer has int4:g32z:f16"):
            sluice_torch.load_experts(other.path, make("int4:g32z:f16"), PREFIX)
        with self.assertRaisesRegex(ValueError, "has int4:g32z, but the layer has int4:g32: they would be quantised twice"):
            sluice_torch.load_experts(file.path, make("int4:g32,rows=int8"), PREFIX)
        with self.assertRaisesRegex(ValueError, "has int4:g32z, but the layer has int4:g64z"):
            sluice_torch.load_experts(file.path, make("int4:g64z,rows=int8"), PREFIX)

    def test_codes_of_mxfp4_are_taken_as_they_are(self):
        file, whole, layer = File("MXFP4"), File("Q4_0"), make("mxfp4")
        sluice_torch.load_experts(file.path, layer, PREFIX)
        self.check(layer, file)
        with self.assertRaisesRegex(ValueError, "has mxfp4, but the layer has int4:g32"):
            sluice_torch.load_experts(file.path, make("int4:g32"), PREFIX)
        with self.assertRaisesRegex(ValueError, "has int4:g32:f16, but the layer has mxfp4"):
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
        with self.assertRaisesRegex(ValueError, "down_exps.weight has int4:g32z, but the layer has int8"):
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
        refused(r"has type 16, expected one of 0 \(F32\)", File("Q8_0", number=16))
        refused("has rows of 240, expected a multiple of the 32 of a block of Q8_0", File("Q8_0", shorter=16))
        whole = good.path.read_bytes()
        for length in (5, 20, 60, 200, good.header - 150):
            good.path.write_bytes(whole[:length])
            refused(f"the header ends within the file's {length} bytes or is damaged", good)

    def test_tensors_that_cannot_be_decoded_are_refused(self):
        tensors = [("four", (1, 1, 1, 1), 0, bytes(4)), ("none", (), 0, bytes(4)), ("empty", (4, 0), 0, b""), ("odd", (1,), 17, b"a")]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.gguf"
            write_gguf.write(path, [*tensors, ("long", (40,), TYPES["Q8_0"], bytes(34)), ("short", (64, 2), TYPES["Q8_0"], bytes(34))])
            file = gguf.Gguf(path)
            self.assertEqual([file.shape_of(name) for name in ("four", "none", "empty")], [(1, 1, 1, 1), (), (0, 4)])
            self.assertEqual(file.type_of("odd"), "type 17")
            rows = {
                "four": r"four has sizes \[1, 1, 1, 1\], expected 1 to 3",
                "none": r"none has sizes \[\], expected 1 to 3",
                "empty": r"empty has sizes \[4, 0\], expected 1 to 3 of them, each from 1 on",
                "odd": "odd has type 17, expected one of .* 20 \\(IQ4_NL\\)",
                "long": "long has rows of 40, expected a multiple of the 32 of a block of Q8_0",
                "short": "model.gguf: short ends at byte .*: the file is truncated",
                "other": "model.gguf has no other",
            }
            for name, expected in rows.items():
                with self.assertRaisesRegex(ValueError, expected):
                    file.tensor(name)
            for call in (file.shape_of, file.type_of):
                with self.assertRaisesRegex(ValueError, "model.gguf has no other"):
                    call("other")
            write_gguf.write(path, [("five", (1,) * 5, 0, bytes(4))])
            with self.assertRaisesRegex(ValueError, "model.gguf: five has 5 dimensions, expected at most 4"):
                gguf.Gguf(path)
            write_gguf.write(path, [], [("a", "U8", 1), ("a", "U8", 1)])
            with self.assertRaisesRegex(ValueError, "model.gguf has a twice"):
                gguf.Gguf(path)
        with self.assertRaisesRegex(ValueError, "model.gguf: cannot read: No such file"):
            gguf.Gguf(path)
        with self.assertRaisesRegex(ValueError, "gguf_test.py: expected a GGUF file"):
            gguf.Gguf(__file__)

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
