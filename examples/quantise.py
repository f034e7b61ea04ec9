#!/usr/bin/python3
"""Compares a trained model in each encoding of its experts with bfloat16, and writes one with 4-bit experts."""
import argparse
import math
import pathlib

import common
import torch
from common import say
from sluice_torch import convert

ENCODINGS = ("bf16", "int8", "int4:g32", "int4:g32:f16", "int4:g32z", "fp8e4m3:128x128", "mxfp4", "nvfp4")
COLUMNS = ("experts, MB", "held-out bits per byte", "KL against bf16, bits", "bytes per second", "bytes per second, decoding")


def measure(folder, encode: str, windows, expected) -> tuple[list, torch.Tensor]:
    """The numbers of COLUMNS, and the log-probabilities of the windows, of which `expected` has those of bf16."""
    model, found = common.load_model(folder, encode=encode), []
    model(windows[:8, :-1])  # compiles and packs
    seconds = common.best_time(lambda: found.append(common.predict(model, windows, encode)), 2)
    decoding = common.best_time(lambda: list(common.generate(model, [windows[0][:8]], 33)), 3)
    expected = found[0] if expected is None else expected
    divergence = (expected.exp() * (expected - found[0])).sum(-1).mean().item() / math.log(2)
    size = sum(each.numel() * each.element_size() for layer in common.experts_of(model).values() for each in layer.parameters())
    rates = [windows[:, :-1].numel() / seconds, 33 / decoding]
    return [size / 1e6, common.bits_per_byte(found[0], windows), divergence, *rates], expected


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="folder that train_lm.py has written")
    parser.add_argument("--out", help="folder for the model with 4-bit experts and quantise.png (default: MODEL-int4)")
    parser.add_argument("--text", default=common.ANARCHISM, help="the text of the training, whose end is held out")
    args = parser.parse_args()
    out, table, expected = pathlib.Path(args.out or args.model.rstrip("/") + "-int4"), {}, None
    _, windows = common.split_text(args.text, common.read_config(args.model)["max_position_embeddings"])
    say(f"{'encoding':16}" + "".join(f"{name:>27}" for name in COLUMNS))
    for encode in ENCODINGS:
        try:
            table[encode], expected = measure(args.model, encode, windows, expected)
        except ValueError as error:
            if expected is None:
                raise
            say(f"{encode:16} does not fit: {error}")
            continue
        say(f"{encode:16}" + "".join(f"{number:27.5g}" for number in table[encode]))
    convert.convert(args.model, out, "int4:g32")
    common.draw(out / "quantise.png", {name: (list(table), [row[at] for row in table.values()]) for at, name in enumerate(COLUMNS)})
    say(f"wrote 4-bit experts to {out}: go on with finetune_lora.py or generate.py; look at {out}/quantise.png")


if __name__ == "__main__":
    common.run(main)
