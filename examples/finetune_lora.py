#!/usr/bin/python3
"""Trains low-rank adapters of a model's experts, as its folder has them (4 bits), on another text; saves them for PEFT, and merged."""
import argparse
import pathlib
import time

import common
import sluice_torch
import torch
from common import say
from decoder import loss_of
from sluice_torch import convert, state
from torch import nn
from tqdm import tqdm


class Adapted(nn.Module):
    """A frozen linear layer with an adapter, for eager experts."""

    def __init__(self, base: nn.Linear, rank: int):
        super().__init__()
        self.base, (out, length) = base, base.weight.shape
        self.a = nn.Parameter(torch.empty(rank, length, dtype=base.weight.dtype).uniform_(-(length**-0.5), length**-0.5))
        self.b = nn.Parameter(torch.zeros(out, rank, dtype=base.weight.dtype))

    def forward(self, x):
        return self.base(x) + 2 * (x @ self.a.t()) @ self.b.t()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="folder that quantise.py has written")
    parser.add_argument("--out", help="folder for the merged model, with adapters in adapter/ (default: MODEL-tuned)")
    parser.add_argument("--text", default="/usr/share/common-licenses", help="file, or folder of files (default: /usr/share/common-licenses)")
    parser.add_argument("--experts", choices=("sluice", "eager"), default="sluice", help="eager: measures only, writes nothing")
    for name, default in (("steps", 60), ("batch", 8), ("rank", 8)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    args = parser.parse_args()
    config, out = common.read_config(args.model), pathlib.Path(args.out or args.model.rstrip("/") + "-tuned")
    length = config["max_position_embeddings"]
    text, windows = common.split_text(args.text, length)
    lora = sluice_torch.LoRAConfig(args.rank, 2 * args.rank)
    model = common.load_model(args.model, args.experts, lora=lora if args.experts == "sluice" else None)
    for expert in (each for layer in model.model.layers for each in layer.mlp.experts) if args.experts == "eager" else ():
        for name in ("gate_proj", "up_proj", "down_proj"):
            setattr(expert, name, Adapted(getattr(expert, name), args.rank))
    trained = [each for each in model.parameters() if each.requires_grad]
    size, bits = common.size_of(model), common.bits_per_byte(common.predict(model, windows), windows)
    say(f"{size / 1e6:.1f} MB of parameters in {args.experts} {trained[0].dtype}; before: {bits:.3f} held-out bits per byte")
    optimizer, seconds, before = torch.optim.AdamW(trained, lr=2e-3, weight_decay=0.0), [], common.memory(forget_peak=True)
    for step in tqdm(range(args.steps), desc="adapters", unit="step"):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss_of(model, common.batch_of(text, step, args.batch, length)).backward()
        sluice_torch.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    peak, bits = common.memory() - before, common.bits_per_byte(common.predict(model, windows), windows)
    say(f"after {args.steps} steps: {bits:.3f} held-out bits per byte; {1e3 * sorted(seconds)[len(seconds) // 2]:.0f} ms per step (median), "
        f"{peak / 1e6:.0f} MB more than the model")
    if args.experts == "eager":
        return say("measured eager experts; nothing is written")
    sluice_torch.save_adapters(out / "adapter", common.experts_of(model), base_model=str(args.model), task_type="CAUSAL_LM")
    merged = {name: each.bfloat16() for name, each in state.to_original(model, merge=True).items()}
    common.write_model(out, merged, config)
    convert.convert(out, out / "model.gguf", "int4:g32:f16")
    models = common.load_model(out), common.load_model(out, encode="int4:g32:f16", weights=out / "model.gguf")
    bits = [common.bits_per_byte(common.predict(each, windows), windows) for each in models]
    say(f"merged in bfloat16: {bits[0]:.3f} held-out bits per byte; with 4-bit experts again, in {out}/model.gguf (Q4_0): {bits[1]:.3f}")
    say(f"look at {out}/adapter (for PEFT), go on with generate.py {out}")


if __name__ == "__main__":
    common.run(main)
