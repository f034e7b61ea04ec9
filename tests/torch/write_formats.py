"""Writes matrices in the formats of checkpoints, from lists and integers, without tensors: what tests compare reading with."""

import json
import pathlib
import random
import tempfile

import torch
from write_safetensors import write


def signed(word):
    return word - 2**32 if word >= 2**31 else word


def word(codes, bits=4):
    return signed(sum(code << bits * place for place, code in enumerate(codes)))


class Drawn:
    """Codes, zeros and scales of a matrix [out, in], and the numbers they stand for."""

    def __init__(self, seed, out, length, group, symmetric, bits=4):
        draw = random.Random(seed)
        self.out, self.length, self.group, self.bits, most = out, length, group, bits, 1 << bits
        self.codes = [[draw.randrange(most) for _ in range(length)] for _ in range(out)]
        self.zeros = [[most // 2 if symmetric else draw.randrange(1, most) for _ in range(length // group)] for _ in range(out)]
        # few bits, so that float16 and bfloat16 hold them
        self.scales = [[draw.randrange(64, 128) / 2**12 for _ in range(length // group)] for _ in range(out)]

    def numbers(self):
        return torch.tensor(
            [
                [(code - self.zeros[r][i // self.group]) * self.scales[r][i // self.group] for i, code in enumerate(row)]
                for r, row in enumerate(self.codes)
            ]
        )


def gptq(base, drawn, stored_less=1):
    groups = drawn.length // drawn.group
    words = [word([drawn.codes[o][8 * i + j] for j in range(8)]) for i in range(drawn.length // 8) for o in range(drawn.out)]
    zeros = [word([drawn.zeros[8 * o + j][g] - stored_less for j in range(8)]) for g in range(groups) for o in range(drawn.out // 8)]
    return {
        f"{base}.qweight": ("I32", (drawn.length // 8, drawn.out), words),
        f"{base}.qzeros": ("I32", (groups, drawn.out // 8), zeros),
        f"{base}.scales": ("F16", (groups, drawn.out), [drawn.scales[o][g] for g in range(groups) for o in range(drawn.out)]),
        f"{base}.g_idx": ("I32", (drawn.length,), [i // drawn.group for i in range(drawn.length)]),
    }


def awq(base, drawn):
    order, groups = (0, 2, 4, 6, 1, 3, 5, 7), drawn.length // drawn.group
    words = [word([drawn.codes[8 * o + j][i] for j in order]) for i in range(drawn.length) for o in range(drawn.out // 8)]
    zeros = [word([drawn.zeros[8 * o + j][g] for j in order]) for g in range(groups) for o in range(drawn.out // 8)]
    return {
        f"{base}.qweight": ("I32", (drawn.length, drawn.out // 8), words),
        f"{base}.qzeros": ("I32", (groups, drawn.out // 8), zeros),
        f"{base}.scales": ("F16", (groups, drawn.out), [drawn.scales[o][g] for g in range(groups) for o in range(drawn.out)]),
    }


def pack_quantized(base, drawn, zeros=None):
    """`zeros`: None if they are all in the middle, "words" as files have them now, or "codes" as old ones do."""
    bits, per_word, groups = drawn.bits, 32 // drawn.bits, drawn.length // drawn.group
    words = [word(drawn.codes[o][i : i + per_word], bits) for o in range(drawn.out) for i in range(0, drawn.length, per_word)]
    tensors = {
        f"{base}.weight_packed": ("I32", (drawn.out, drawn.length // per_word), words),
        f"{base}.weight_scale": ("BF16", (drawn.out, groups), sum(drawn.scales, [])),
        f"{base}.weight_shape": ("I64", (2,), [drawn.out, drawn.length]),
    }
    if zeros == "words":
        of = [word([row[g] for row in drawn.zeros[o : o + per_word]], bits) for o in range(0, drawn.out, per_word) for g in range(groups)]
        tensors[f"{base}.weight_zero_point"] = ("I32", (-(-drawn.out // per_word), groups), of)
    elif zeros == "codes":
        of = [zero - (1 << bits - 1) & 255 for zero in sum(drawn.zeros, [])]
        tensors[f"{base}.weight_zero_point"] = ("I8", (drawn.out, groups), of)
    return tensors


def int_quantized(base, drawn, scale=("F32", 2), zeros=False):
    """The codes as numbers around 0; the scale in a type, with so many dimensions: with two or one for each row, with none for all."""
    own = [row[0] for row in drawn.scales]
    shape = {2: (drawn.out, 1), 1: (drawn.out,), 0: ()}[scale[1]]
    if not scale[1]:
        drawn.scales = [own[:1]] * drawn.out
        own = own[:1]
    tensors = {
        f"{base}.weight": ("I8", (drawn.out, drawn.length), [code - 128 & 255 for code in sum(drawn.codes, [])]),
        f"{base}.weight_scale": (scale[0], shape, own),
    }
    if zeros:
        tensors[f"{base}.weight_zero_point"] = ("I8", (drawn.out, 1), [row[0] - 128 & 255 for row in drawn.zeros])
    return tensors


def plain(base, drawn, kind="F32"):
    return {f"{base}.weight": (kind, (drawn.out, drawn.length), drawn.numbers().flatten().tolist())}


class Folder:
    """A folder that has been written with tensors, split over `files` files with an index."""

    def __init__(self, tensors, files=0):
        self._folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self._folder.name)
        if not files:
            write(self.path / "model.safetensors", tensors)
            return
        names = list(tensors)
        shards = {f"model-{n + 1:05}-of-{files:05}.safetensors": names[n::files] for n in range(files)}
        for file, own in shards.items():
            write(self.path / file, {name: tensors[name] for name in own})
        self._write_index(shards)

    def __del__(self):
        self._folder.cleanup()

    def _write_index(self, shards):
        index = {"weight_map": {name: file for file, own in shards.items() for name in own}}
        (self.path / "model.safetensors.index.json").write_text(json.dumps(index))
