"""Damaged and odd checkpoints and adapters: each is a ValueError that names the file or the tensor, or is right; no other error,
whatever JSON has in place of what is expected, and whatever type and shape a part of a format has."""

import contextlib
import itertools
import json
import pathlib
import struct
import tempfile
import unittest

import sluice_torch
import write_gguf
from sluice_torch.weights import formats
from sluice_torch.weights.gguf import Gguf
from sluice_torch.weights.gguf_blocks import KINDS
from write_safetensors import write

HIDDEN, INTERMEDIATE = 64, 96
PREFIX, NAMES = "experts", ("gate_proj", "up_proj", "down_proj")
SIZES = ((INTERMEDIATE, HIDDEN), (INTERMEDIATE, HIDDEN), (HIDDEN, INTERMEDIATE))
DEEP = 100_000
# What JSON may have anywhere.
VALUES = (None, True, False, 0, -1, 1.5, 1e400, 2**63, 2**64, "", "x", "\0", "\ud800", [], [[]], ["F32"], [1, 2, 3], {}, {"a": 1}, [True, 1], [None])
DEEP_TEXTS = ("[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP, '{"weight_map":' + "[" * DEEP + "]" * DEEP + "}")
NO_OBJECTS = ("", "[]", "[1]", "3", "null", '"x"', "{", "{]", "\0", "\xff", "NaN", *DEEP_TEXTS)


def layer(**options):
    return sluice_torch.MoE(HIDDEN, INTERMEDIATE, 1, 1, **options)


@contextlib.contextmanager
def folder(tensors):
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name)
        write(path / "model.safetensors", tensors)
        yield path


def parts(suffix, of):
    """The tensors `suffix` of all three matrices; of(out, length) -> (type, shape)."""
    return {f"{PREFIX}.0.{name}.{suffix}": of(*size) for name, size in zip(NAMES, SIZES)}


# format -> its parts as (type, shape), whose numbers are all 1.
FORMATS = {
    "plain": parts("weight", lambda out, length: ("F32", (out, length))),
    "squares": parts("weight", lambda out, length: ("F8_E4M3", (out, length)))
    | parts("weight_scale_inv", lambda out, length: ("F32", (1, 1))),
    "squares of compressed-tensors": parts("weight", lambda out, length: ("F8_E4M3", (out, length)))
    | parts("weight_scale", lambda out, length: ("BF16", (1, 1))),
    "fp8 in rows": parts("weight", lambda out, length: ("F8_E4M3", (out, length)))
    | parts("weight_scale", lambda out, length: ("BF16", (out, 1))),
    "int8": parts("weight", lambda out, length: ("I8", (out, length)))
    | parts("weight_scale", lambda out, length: ("F32", (out, 1)))
    | parts("weight_zero_point", lambda out, length: ("I8", (out, 1))),
    "mxfp8": parts("weight", lambda out, length: ("F8_E4M3", (out, length)))
    | parts("weight_scale", lambda out, length: ("U8", (out, length // 32))),
    "mxfp4": parts("weight_packed", lambda out, length: ("U8", (out, length // 2)))
    | parts("weight_scale", lambda out, length: ("U8", (out, length // 32))),
    "nvfp4": parts("weight", lambda out, length: ("U8", (out, length // 2)))
    | parts("weight_scale", lambda out, length: ("F8_E4M3", (out, length // 16)))
    | parts("weight_scale_2", lambda out, length: ("F32", ())),
    "gptq": parts("qweight", lambda out, length: ("I32", (length // 8, out)))
    | parts("qzeros", lambda out, length: ("I32", (length // 32, out // 8)))
    | parts("scales", lambda out, length: ("F16", (length // 32, out)))
    | parts("g_idx", lambda out, length: ("I32", (length,))),
    "awq": parts("qweight", lambda out, length: ("I32", (length, out // 8)))
    | parts("qzeros", lambda out, length: ("I32", (length // 32, out // 8)))
    | parts("scales", lambda out, length: ("F16", (length // 32, out))),
    "pack-quantized": parts("weight_packed", lambda out, length: ("I32", (out, length // 8)))
    | parts("weight_scale", lambda out, length: ("BF16", (out, length // 32)))
    | parts("weight_shape", lambda out, length: ("I64", (2,))),
    "pack-quantized with zero points": parts("weight_packed", lambda out, length: ("I32", (out, length // 8)))
    | parts("weight_scale", lambda out, length: ("BF16", (out, length // 32)))
    | parts("weight_zero_point", lambda out, length: ("I32", (out // 8, length // 32)))
    | parts("weight_g_idx", lambda out, length: ("I32", (length,)))
    | parts("weight_shape", lambda out, length: ("I64", (2,))),
    "pack-quantized, 8 bits": parts("weight_packed", lambda out, length: ("I32", (out, length // 4)))
    | parts("weight_scale", lambda out, length: ("F16", (out, 1)))
    | parts("weight_zero_point", lambda out, length: ("I8", (out, 1)))
    | parts("weight_shape", lambda out, length: ("I64", (2,))),
}
SHAPES = ((), (0,), (1,), (2,), (3,), (0, 0), (1, 1), (1, 8), (8, 1), (8, 8), (1, 96), (64, 0), (0, 96), (96, 64), (64, 96), (2, 2, 2), (96, 33), (96, 60))
TYPES = ("F32", "F16", "I64", "I32", "U8", "I8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "I16")


def filled(name, kind, shape):
    count = 1
    for size in shape:
        count *= size
    if name.endswith("weight_shape") and shape == (2,):
        return kind, shape, list(SIZES[NAMES.index(name.split(".")[2])])
    if name.endswith("g_idx"):
        return kind, shape, [i // 32 % 128 for i in range(count)]
    width = {"I16": 2, "F64": 8}.get(kind)  # which the writer writes as bytes
    return (kind, shape, [1] * count) if width is None else (kind, shape, [1] * count * width)


def whole(parts):
    return {name: filled(name, *part) for name, part in parts.items()}


def gguf(metadata):
    """A file with one piece of metadata, and no tensors."""
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"a" + metadata


class DamagedTest(unittest.TestCase):
    def refused(self, call, named, row, accepts=False):
        """An error of call() that has one of the names, or with `accepts` none."""
        try:
            call()
        except ValueError as error:
            self.assertTrue(any(str(name) in str(error) for name in named), (row, str(error)[:300]))
        except Exception as error:  # whatever it is, it is no answer
            self.fail(f"{row}: {type(error).__name__}: {str(error)[:300]}")
        else:
            self.assertTrue(accepts, (row, "is not refused"))

    def test_headers_of_safetensors(self):
        tensors = whole(FORMATS["plain"])
        name = next(iter(tensors))
        with folder(tensors) as path:
            file, made = path / "model.safetensors", layer()
            content = file.read_bytes()
            (length,) = struct.unpack("<Q", content[:8])
            header, data = json.loads(content[8 : 8 + length]), content[8 + length :]

            def load():
                sluice_torch.load_experts(path, made, PREFIX)

            def put(text):
                file.write_bytes(struct.pack("<Q", len(text)) + text + data)

            load()
            for text in NO_OBJECTS:
                put(text.encode("latin1"))
                self.refused(load, [file, name], text[:20])
            for value in VALUES:
                changes = [{**header, name: value}, {**header, "__metadata__": value}]
                changes += [{**header, name: {**header[name], key: value}} for key in ("dtype", "shape", "data_offsets")]
                changes += [{**header, name: {**header[name], key: header[name][key][:1] + [value]}} for key in ("shape", "data_offsets")]
                changes += [{**header, name: {**header[name], "shape": [value] * 40 + [0], "data_offsets": [0, 0]}}]
                for number, change in enumerate(changes):
                    put(json.dumps(change).encode())
                    self.refused(load, [file, name], (value, number), accepts=number == 1)

    def test_indices_and_configurations(self):
        with folder(whole(FORMATS["gptq"])) as path:
            index, config, made = path / "model.safetensors.index.json", path / "config.json", layer()
            name = next(iter(FORMATS["gptq"]))

            def load():
                sluice_torch.load_experts(path, made, PREFIX)

            for text in NO_OBJECTS:
                index.write_bytes(text.encode("latin1"))
                self.refused(load, [index], text[:20])
                index.unlink()
                config.write_bytes(text.encode("latin1"))
                self.refused(load, [config], text[:20])
                config.unlink()
            good = {each: "model.safetensors" for each in FORMATS["gptq"]}
            for value in VALUES:
                for each in ({"weight_map": value}, {"weight_map": {**good, name: value}}, {"weight_map": {name: "model.safetensors", "x": value}}):
                    index.write_text(json.dumps(each))
                    self.refused(load, [index, path, name], value, accepts=True)  # a name may be that of no file that is read
                index.unlink()
                for each, key in (({"quantization_config": value}, "config.json"), ({"quantization_config": {"checkpoint_format": value}}, "")):
                    config.write_text(json.dumps(each))
                    self.refused(load, [key], value, accepts=isinstance(value, dict) or value is None or not key)
                config.unlink()

    def test_parts_of_formats(self):
        """Each part in another type and shape, and all matrices of sizes that do not fit blocks and words."""
        made = layer()
        for form, tensors in FORMATS.items():
            with folder(whole(tensors)) as path:
                sluice_torch.load_experts(path, made, PREFIX)
                for name, (kind, shape) in tensors.items():
                    if ".up_proj." in name:
                        continue  # like gate_proj
                    changes = [(kind, each) for each in SHAPES] + [(each, shape) for each in TYPES]
                    for change in changes:
                        write(path / "model.safetensors", {**whole(tensors), name: filled(name, *change)})
                        row = (form, name, change)
                        self.refused(lambda: sluice_torch.load_experts(path, made, PREFIX), [name, name.rsplit(".", 1)[0], path], row, accepts=True)

    def test_matrices_of_few_rows_and_columns(self):
        for out, length in itertools.product((1, 7, 8, 16, 33), (8, 16, 24, 33, 64)):
            for form in ("gptq", "awq", "pack-quantized", "eights", "int8", "rows", "mxfp8", "mxfp4", "nvfp4", "squares"):
                groups, words = 1, (max(1, length // 8), out)
                tensors = {
                    "gptq": {"qweight": ("I32", words), "qzeros": ("I32", (groups, max(1, out // 8))), "scales": ("F16", (groups, out))},
                    "awq": {"qweight": ("I32", (length, max(1, out // 8))), "qzeros": ("I32", (groups, max(1, out // 8))), "scales": ("F16", (groups, out))},
                    "pack-quantized": {"weight_packed": ("I32", (out, max(1, length // 8))), "weight_scale": ("F16", (out, 1)), "weight_shape": ("I64", (2,))},
                    "eights": {
                        "weight_packed": ("I32", (out, max(1, length // 4))),
                        "weight_scale": ("F16", (out, 1)),
                        "weight_zero_point": ("I32", (max(1, out // 4), 1)),
                        "weight_shape": ("I64", (2,)),
                    },
                    "int8": {"weight": ("I8", (out, length)), "weight_scale": ("F32", (1,)), "weight_zero_point": ("I8", (out,))},
                    "rows": {"weight": ("F8_E4M3", (out, length)), "weight_scale": ("F32", (out,))},
                    "mxfp8": {"weight": ("F8_E4M3", (out, length)), "weight_scale": ("U8", (out, length // 32))},
                    "mxfp4": {"weight_packed": ("U8", (out, length // 2)), "weight_scale": ("U8", (out, length // 32))},
                    "nvfp4": {
                        "weight_packed": ("U8", (out, length // 2)),
                        "weight_scale": ("F8_E4M3", (out, length // 16)),
                        "weight_global_scale": ("F32", (1,)),
                    },
                    "squares": {"weight": ("F8_E4M3", (out, length)), "weight_scale_inv": ("F32", (1, 1))},
                }[form]
                own = {f"{PREFIX}.0.up_proj.{key}": filled(f"{PREFIX}.0.up_proj.{key}", *part) for key, part in tensors.items()}
                if "weight_shape" in tensors:
                    own[f"{PREFIX}.0.up_proj.weight_shape"] = ("I64", (2,), [out, length])
                with folder(own) as path:

                    def read():
                        matrix = formats.read(sluice_torch.Checkpoint(path), f"{PREFIX}.0.up_proj")
                        self.assertEqual(matrix.decoded().shape, matrix.shape)

                    self.refused(read, [f"{PREFIX}.0.up_proj"], (form, out, length), accepts=True)

    def test_metadata_of_gguf(self):
        with tempfile.TemporaryDirectory() as name:
            file, made = pathlib.Path(name) / "model.gguf", layer()
            nested = struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * DEEP
            number = struct.pack("<I", 4) + struct.pack("<I", 3)
            rows = {
                "arrays in arrays": gguf(nested + struct.pack("<IQ", 4, 0)),
                "arrays in arrays that end": gguf(nested),
                "more entries than there are": b"GGUF" + struct.pack("<IQQ", 3, 0, 2**62) + struct.pack("<Q", 1) + b"a" + number,
                "more tensors than there are": b"GGUF" + struct.pack("<IQQ", 3, 2**63, 0),
                "a text beyond the file": gguf(struct.pack("<IQ", 8, 2**64 - 1)),
                "an array beyond the file": gguf(struct.pack("<IIQ", 9, 12, 2**61)),
                "an array of many arrays": gguf(struct.pack("<IIQ", 9, 9, 30) + struct.pack("<IQ", 9, 2) * 3),
                "another type": gguf(struct.pack("<I", 99)),
                "an array of another type": gguf(struct.pack("<IIQ", 9, 99, 1)),
                "a name that is no text": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"\xff" + number,
                "no tensors": gguf(number),
                "a tensor of many dimensions": b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", 1) + b"a" + struct.pack("<I", 2**32 - 1),
            }
            for kind, value in ((5, struct.pack("<i", -1)), (4, struct.pack("<I", 0)), (6, struct.pack("<f", 32)), (12, struct.pack("<d", float("nan"))), (7, b"\0")):
                entry = struct.pack("<Q", 17) + b"general.alignment" + struct.pack("<I", kind) + value
                rows[f"alignment of type {kind}"] = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + entry
            for row, content in rows.items():
                file.write_bytes(content)
                self.refused(lambda: sluice_torch.load_experts(file, made, "blk.3"), [file], row)

    def test_files_of_gguf_with_other_bytes(self):
        """A file with a tensor of each type, cut at each length, and with each byte of its header changed."""
        metadata = [("tokens", "LIST", ("TEXT", ["a", "b"])), ("numbers", "LIST", ("F32", [1, 2])), ("split.count", "U16", 1)]
        kinds = list(KINDS.items())
        with tempfile.TemporaryDirectory() as name:
            file = pathlib.Path(name) / "model.gguf"
            for some in (kinds[at : at + 5] for at in range(0, len(kinds), 5)):
                tensors = [(f"tensor{number}", (each.numbers, 1), number, bytes(each.size)) for number, each in some]
                header = write_gguf.write(file, tensors, metadata, alignment=8)
                names = [file, *(tensor[0] for tensor in tensors)]
                content = file.read_bytes()

                def read():
                    found = Gguf(file)
                    for each in found.names():
                        found.type_of(each), found.shape_of(each)
                        found.tensor(each)

                read()
                for length in {*range(header), *range(header, len(content) - 8, 5)}:
                    file.write_bytes(content[:length])
                    self.refused(read, [*names, "tensor"], length)
                for place, flip in itertools.product(range(header), (1, 2, 16, 128)):
                    file.write_bytes(content[:place] + bytes([content[place] ^ flip]) + content[place + 1 :])
                    self.refused(read, names, (place, flip), accepts=True)

    def test_parts_of_gguf_with_other_bytes(self):
        with tempfile.TemporaryDirectory() as name:
            paths = [pathlib.Path(name) / f"m-0000{number}-of-00002.gguf" for number in (1, 2)]
            for number, path in enumerate(paths):
                keys = [("split.no", "U16", number), ("split.count", "U16", 2), ("split.tensors.count", "I32", 2)]
                header = write_gguf.write(path, [(f"tensor{number}", (1,), 0, bytes(4))], keys, alignment=8)
            content = paths[1].read_bytes()

            def read():
                found = Gguf(paths[0])
                self.assertEqual(len([found.tensor(each) for each in found.names()]), 2)

            read()
            for length in range(header):
                paths[1].write_bytes(content[:length])
                self.refused(read, [paths[1]], length)
            for place, flip in itertools.product(range(header), (1, 2, 4, 128)):
                paths[1].write_bytes(content[:place] + bytes([content[place] ^ flip]) + content[place + 1 :])
                self.refused(read, [paths[1], "tensor"], (place, flip), accepts=True)

    def test_configurations_of_adapters(self):
        rank = 2
        tensors = {}
        for name, (out, length) in zip(NAMES, SIZES):
            for side, shape in (("A", (rank, length)), ("B", (out, rank))):
                tensors[f"base_model.model.{PREFIX}.0.{name}.lora_{side}.weight"] = ("F32", shape, [1] * (shape[0] * shape[1]))
        good = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": list(NAMES)}
        with folder(tensors) as path:
            (path / "model.safetensors").rename(path / "adapter_model.safetensors")
            file, made = path / "adapter_config.json", layer(lora=sluice_torch.LoRAConfig(rank))

            def load():
                sluice_torch.load_adapters(path, {PREFIX: made})

            file.write_text(json.dumps(good))
            load()
            for text in (*NO_OBJECTS, '{"r": 2, ' + json.dumps(good)[1:]):
                file.write_bytes(text.encode("latin1"))
                self.refused(load, [file], text[:20])
            keys = (
                *good, "rank_pattern", "alpha_pattern", "exclude_modules", "layers_to_transform", "layers_pattern", "modules_to_save",
                "use_rslora", "lora_dropout", "bias", "init_lora_weights", "loftq_config", "layer_replication", "unknown",
            )  # fmt: skip
            for key, value in itertools.product(keys, VALUES):
                file.write_text(json.dumps({**good, key: value}))
                self.refused(load, [file, path], (key, value), accepts=True)
            for pattern, value in itertools.product(("(", "gate_proj", "", "(" * 5000, "(?P<a"), VALUES):
                for key in ("rank_pattern", "alpha_pattern"):
                    file.write_text(json.dumps({**good, key: {pattern: value}}))
                    self.refused(load, [file, path], (key, pattern[:9], value), accepts=True)
            for name, kind, shape in itertools.product(list(tensors)[:2], TYPES, SHAPES):
                file.write_text(json.dumps(good))
                write(path / "adapter_model.safetensors", {**tensors, name: filled(name, kind, shape)})
                self.refused(load, [name], (name, kind, shape))

    def test_experts_in_an_impossible_order(self):
        with folder(whole(FORMATS["plain"])) as path:
            for value in VALUES:
                for order in (value, [value], [0, value]):
                    load = lambda: sluice_torch.load_experts(path, layer(), PREFIX, physical_to_logical_map=order)
                    is_good = order is None or type(order) is int and order == 0 or order == [0] and type(value) is int
                    self.refused(load, ["physical_to_logical_map"], order, accepts=is_good)


if __name__ == "__main__":
    unittest.main()
