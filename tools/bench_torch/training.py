"""Trains a small Qwen3-MoE on bytes of a text, with eager experts and with layers of Sluice in any encodings."""

import os

import torch

from decoder import Decoder, loss_of
from models import layouts

# The variants of training, with options of replace_moe(); None: eager experts.
BOTH = {"eager": None, "sluice": {}}
ENCODINGS = [
    "bf16",
    "fp8e4m3",
    "fp8e4m3,grads=fp8e5m2",
    "fp8e4m3:delayed",
    "fp8e4m3:delayed,grads=fp8e5m2",
    "mxfp8",
    "mxfp8,grads=mxfp8e5m2",
    "mxfp8:32x32",
    "mxfp8:32x32,grads=mxfp8e5m2",
]
ENCODED = {**{text: {"encode": text} for text in ENCODINGS}, "eager": None}

TEXT = os.path.join(os.path.dirname(os.path.abspath(layouts.__file__)), "text", "constitution.txt")


def make_model(layers: int = 4, hidden: int = 128, intermediate: int = 64, experts: int = 8, top_k: int = 2):
    def block():
        return layouts.Qwen3Block(hidden, intermediate, experts, top_k)

    return Decoder(block, layers=layers, hidden=hidden)


def batches(text: bytes, steps: int, batch: int, length: int):
    """Seeded: the same batches for every model."""
    bytes_of = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    generator = torch.Generator().manual_seed(21)
    for _ in range(steps):
        starts = torch.randint(0, len(bytes_of) - length - 1, (batch,), generator=generator)
        yield torch.stack([bytes_of[start : start + length + 1] for start in starts.tolist()])


def train(model, steps: int, batch: int = 8, length: int = 64, rate: float = 3e-3, text: bytes = b"") -> list[float]:
    """The loss of each step."""
    if not text:
        with open(TEXT, "rb") as file:
            text = file.read()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    losses = []
    for tokens in batches(text, steps, batch, length):
        loss = loss_of(model, tokens)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_all(
    variants: dict[str, dict | None], steps: int, dtype: torch.dtype = torch.float32, threads: int = 0, **sizes
) -> dict[str, list[float]]:
    """Losses of the same model, from the same start, in each variant."""
    import sluice_torch

    losses = {}
    for name, options in variants.items():
        torch.manual_seed(20)
        model = make_model(**sizes).to(dtype)
        if options is not None:
            replaced = sluice_torch.replace_moe(model, steps=sluice_torch.Steps(threads=threads), **options)
            if len(replaced) != len(model.layers):
                raise RuntimeError(f"replaced {replaced}, expected a block in each of {len(model.layers)} layers")
        losses[name] = train(model, steps)
    return losses


def smoothed(losses: list[float], window: int) -> list[float]:
    """The mean of the last `window` losses at each step."""
    return [sum(losses[max(0, i - window + 1) : i + 1]) / min(window, i + 1) for i in range(len(losses))]


def draw(losses: dict[str, list[float]], path: str):
    """Draws both curves next to each other, with the same axes, to a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4), sharex=True, sharey=True)
    for place, (name, values) in zip(axes, losses.items()):
        place.plot(values, linewidth=0.8, alpha=0.5, label="step")
        place.plot(smoothed(values, 10), linewidth=1.6, label="mean of 10")
        place.set_title(f"{name}: {smoothed(values, 10)[-1]:.3f} at the end")
        place.set_xlabel("step")
        place.grid(alpha=0.3)
        place.legend()
    axes[0].set_ylabel("loss (nats per byte)")
    figure.tight_layout()
    figure.savefig(path + ".new", dpi=110, format="png")
    pyplot.close(figure)
    os.replace(path + ".new", path)
