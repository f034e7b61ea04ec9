#!/usr/bin/python3
"""Continues a prompt, byte by byte with kept keys and values, and says what prefill and decoding take."""
import argparse
import codecs
import sys
import time

import common
import torch
from common import say
from tqdm import tqdm


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="folder that train_lm.py, quantise.py or finetune_lora.py has written")
    parser.add_argument("--prompt", default="The state is ")
    parser.add_argument("--tokens", type=int, default=256, help="bytes to generate (default 256)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0, the default: the likeliest byte each time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--experts", choices=("sluice", "eager"), default="sluice")
    parser.add_argument("--encode", help="of the experts, such as int8 (default: as the folder has them)")
    args = parser.parse_args()
    if not args.prompt or args.tokens < 2:
        raise ValueError(f"--prompt is {args.prompt!r} and --tokens {args.tokens}, expected at least 1 byte and 2 tokens")
    model = common.load_model(args.model, args.experts, args.encode)
    prompt, decode = torch.tensor(list(args.prompt.encode())), codecs.getincrementaldecoder("utf-8")("replace").decode
    generator, greedy = torch.Generator().manual_seed(args.seed), args.temperature <= 0
    sample = lambda logits: torch.multinomial((logits / args.temperature).softmax(-1), 1, generator=generator)[:, 0]  # noqa: E731
    list(common.generate(model, [prompt], 3))  # compiles and packs
    print(args.prompt, end="", flush=True)
    times, bar = [time.perf_counter()], tqdm(total=args.tokens, disable=sys.stdout.isatty() or None, unit="byte")
    for token in common.generate(model, [prompt], args.tokens, *([] if greedy else [sample])):
        times.append(time.perf_counter())
        print(decode(bytes(token.tolist())), end="", flush=True)
        bar.update()
    bar.close()
    first, rate = times[1] - times[0], (args.tokens - 1) / (times[-1] - times[1])
    read, reads = common.size_of(model, active=True), common.read_bandwidth()
    say(f"\nprefill: {len(prompt)} bytes, first token after {1e3 * first:.1f} ms ({len(prompt) / first:.0f} bytes per second)")
    say(f"decoding: {rate:.1f} bytes per second, each reads {read / 1e6:.2f} MB of weights: {read * rate / 1e9:.2f} GB/s")
    say(f"look at the share of what this machine reads ({reads / 1e9:.1f} GB/s, a sum of float32): {100 * read * rate / reads:.0f}%")


if __name__ == "__main__":
    common.run(main)
