#!/usr/bin/python3
"""Continues 1 to 64 prompts at a time in one process: bytes per second, and the time of a step for each of them."""
import argparse
import time

import common
from common import say
from tqdm import tqdm


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="folder that train_lm.py, quantise.py or finetune_lora.py has written")
    parser.add_argument("--text", default=common.ANARCHISM, help="prompts are from its held-out part")
    parser.add_argument("--batches", default="1,2,4,8,16,32,64", help="numbers of prompts (default 1,2,4,8,16,32,64)")
    parser.add_argument("--tokens", type=int, default=64, help="bytes to generate for each prompt (default 64)")
    parser.add_argument("--experts", choices=("sluice", "eager"), default="sluice")
    parser.add_argument("--encode", help="of the experts, such as int8 (default: as the folder has them)")
    args = parser.parse_args()
    batches = [int(each) for each in args.batches.split(",")]
    if min(batches) < 1 or args.tokens < 2:
        raise ValueError(f"--batches is {args.batches} and --tokens {args.tokens}, expected at least 1 and 2")
    _, windows = common.split_text(args.text, 64)
    model = common.load_model(args.model, args.experts, args.encode)
    say(f"{'prompts':>8}{'bytes/s':>10}{'p50 ms':>10}{'p99 ms':>10}{'first ms':>10}")
    for batch in tqdm(batches, desc="batches", leave=False):
        prompts = [windows[number % len(windows)][: 16 + number % 48] for number in range(batch)]
        list(common.generate(model, prompts, 2))  # compiles and packs
        times = [time.perf_counter()]
        for _ in common.generate(model, prompts, args.tokens):
            times.append(time.perf_counter())
        steps = sorted(b - a for a, b in zip(times[1:], times[2:]))
        p50, p99 = (1e3 * steps[int(part * (len(steps) - 1))] for part in (0.5, 0.99))
        rate = batch * len(steps) / sum(steps)
        tqdm.write(f"{batch:8}{rate:10.0f}{p50:10.2f}{p99:10.2f}{1e3 * (times[1] - times[0]):10.1f}")
    say(f"{args.experts} experts, {model.lm_head.weight.dtype} around them: look at how bytes per second grow with the prompts, while p50 stays")


if __name__ == "__main__":
    common.run(main)
