#!/usr/bin/python3
"""Trains a mixture-of-experts language model on the bytes of a text, from scratch: 10 minutes on two cores.

On two ranks: python3 -m torch.distributed.run --nproc_per_node 2 --redirects 1:1 --tee 1:1 examples/train_lm.py --out DIR
"""
import argparse
import math
import signal
import time

import common
import sluice_torch
import torch
import torch.distributed as dist
from common import RANK, RANKS, say
from decoder import loss_of
from tqdm import tqdm

SIZES = {"layers": 4, "hidden": 256, "heads": 4, "num-experts": 16, "top-k": 2, "intermediate": 384, "length": 256, "batch": 8, "seed": 1}


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    parser.add_argument("--out", required=True, help="folder for the model, its training state, log.csv and training.png")
    parser.add_argument("--text", default=common.ANARCHISM, help="file, or folder of files (default: the Debian package anarchism)")
    parser.add_argument("--experts", choices=("sluice", "eager"), default="sluice")
    parser.add_argument("--minutes", type=float, default=10, help="of the whole training (default 10)")
    parser.add_argument("--steps", type=int, help="of the whole training, instead of --minutes")
    parser.add_argument("--stop", type=int, help="end after this step, as Ctrl-C does")
    parser.add_argument("--rate", type=float, default=2e-3, help="largest learning rate (default 0.002)")
    parser.add_argument("--every", type=int, default=100, help="steps between evaluations, which save (default 100)")
    parser.add_argument("--resume", action="store_true", help="go on with --out: the same bits, unless the number of ranks is another")
    return parser.parse_args()


def balance(router_logits: list, top_k: int):
    """The balancing loss, 1 if tokens are spread evenly, and the rows of the busiest expert over the mean: means over layers."""
    scores = torch.stack(router_logits).float().softmax(-1)  # [layers, T, experts]
    rows = torch.zeros_like(scores).scatter_(-1, scores.topk(top_k, dim=-1).indices, 1.0).sum(1)
    common.all_reduce(rows)
    load = rows / rows.mean(-1, keepdim=True)
    return (load * scores.mean(1)).sum(-1).mean(), load.amax(-1).mean()


def train_step(model, optimizer, tokens, top_k: int) -> list[float]:
    router_logits = []
    loss = loss_of(model, tokens, router_logits=router_logits)
    balancing, load = balance(router_logits, top_k)
    optimizer.zero_grad(set_to_none=True)
    (loss + 0.01 * balancing).backward()
    common.average_gradients(model)
    sluice_torch.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return [loss.item(), load.item(), balancing.item()]


def main():
    args, signals = options(), []
    config = common.make_config(args)
    if args.batch % RANKS or min(args.batch, args.minutes) <= 0:
        raise ValueError(f"--batch is {args.batch} and --minutes {args.minutes}, expected a multiple of the ranks, {RANKS}, and some time")
    text, windows = common.split_text(args.text, args.length)
    signal.signal(signal.SIGINT, lambda *_: signals.append(True))
    model = common.new_model(config, args.seed)
    size = sum(each.numel() for each in model.parameters())
    if args.experts == "sluice":
        sluice_torch.replace_moe(model, parallel=sluice_torch.Parallel(dist.group.WORLD if RANKS > 1 else None))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate, betas=(0.9, 0.95), weight_decay=0.1)
    rows = common.load_training(args.out, model, optimizer, config) if args.resume else []
    elapsed, work = rows[-1][1] if rows else 0.0, 3 * common.flops_per_token(config, args.length)
    share = lambda: len(rows) / args.steps if args.steps else elapsed / (60 * args.minutes)  # noqa: E731: how much is done
    if share() >= 1:
        raise ValueError(f"{args.out} has {len(rows)} steps already: give more --steps or --minutes")
    peak = common.all_reduce(torch.tensor(common.peak_flops())).item()
    say(f"{size / 1e6:.1f} M parameters; {len(text) / 1e6:.1f} MB of text; the peak, a product of float32 matrices, is {peak / 1e9:.0f} GFLOP/s")
    bar = tqdm(total=args.steps, initial=len(rows), disable=RANK > 0, unit="step")
    begin, ended = time.perf_counter() - elapsed, False
    while not ended:
        optimizer.param_groups[0]["lr"] = args.rate * min(1, (len(rows) + 1) / 50) * (0.55 + 0.45 * math.cos(math.pi * share()))
        batch, started = common.batch_of(text, len(rows), args.batch, args.length, args.seed)[RANK::RANKS], time.perf_counter()
        found, now = train_step(model, optimizer, batch, args.top_k), time.perf_counter()
        numbers = torch.tensor([*found, now - started, now - begin, len(signals)], dtype=torch.float64)
        loss, load, balancing, seconds, elapsed, interrupted = (common.all_reduce(numbers) / RANKS).tolist()
        speed = args.batch * args.length / seconds
        rows.append([len(rows) + 1, elapsed, loss, speed, work * speed / peak, load, balancing, math.nan])
        ended = interrupted > 0 or len(rows) == args.stop or share() >= 1
        bar.set_postfix(loss=f"{loss:.3f}", bytes_per_second=f"{speed:.0f}", refresh=False)
        bar.update()
        if ended or len(rows) % args.every == 0:
            rows[-1][-1] = common.bits_per_byte(common.predict(model, windows), windows)
            common.save_training(args.out, model, optimizer, config, rows)
    bar.close()
    say(f"{'interrupted' if interrupted else 'ended'} after {len(rows)} steps: {rows[-1][-1]:.3f} held-out bits per byte, "
        f"{len(rows) / sum(1 / row[3] for row in rows):.0f} bytes per second; look at {args.out}/training.png")


if __name__ == "__main__":
    common.run(main)
