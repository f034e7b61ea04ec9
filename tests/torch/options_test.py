"""All pairs of options of a layer: it is refused when it is made, or its steps with gradients run."""

import itertools
import unittest

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from grouped import grouped
from moe_eager import route
from sluice_torch import Steps
from sluice_torch.callers.finetune import FineTuning
from sluice_torch.recipe import Float8CurrentScaling

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 64, 64, 4, 2
LORA = sluice_torch.LoRAConfig
# Values of each option besides its default.
VALUES = {
    "encode": [
        "int8,rows=int8",
        "int4,rows=int8",
        "int8",
        "int4",
        "int8,grads=int8",
        "fp8e4m3",
        "fp8e4m3:delayed",
        "mxfp8",
        "mxfp8:32x32",
        "mxfp8,sent=mxfp8",
        Float8CurrentScaling(),
    ],
    "lora": [LORA(32, 8.0), LORA(32, 8.0, ("gate", "up")), LORA(32, 8.0, ("down",))],
    "keep": ["minimal"],
    "activation": ["geglu", "relu2"],
    "dtype": [torch.float32],
    "pack_frozen": [True],
    "spare": [1],
}
MESHES = [{}, {"tp": 2}, {"tp": 2, "tokens": "same"}]
EXCHANGED = {"encode", "spare"}  # what ranks without shards do together


def train(**options):
    """Whether a layer with these options is made; then its step with gradients runs."""
    torch.manual_seed(0)
    try:
        layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, **grouped(threads=1, timeout=60, **options))
    except (RuntimeError, ValueError):
        return False
    x = torch.randn(9, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    ids, weights = route(9, EXPERTS, TOP_K, 1)
    layer(x, ids, weights.requires_grad_()).float().sum().backward()
    assert x.grad is not None and torch.isfinite(x.grad.float()).all(), options
    return True


def try_pairs(ranks=1, **common):
    choices = [(name, value) for name, values in VALUES.items() for value in values]
    pairs = [dict([a, b]) for a, b in itertools.combinations(choices, 2) if a[0] != b[0]]
    least = len(pairs) / 3
    if ranks > 1 and "tp" not in common:  # fewer can be had
        pairs = [pair for pair in pairs if EXCHANGED & pair.keys()]
        least = len(pairs) / 4
    made = [options for options in pairs if train(**common, **options)]
    # most pairs can be had: else this would show nothing
    assert len(made) > least, f"{len(made)} of {len(pairs)}"


def on_mesh(rank, size, number):
    try_pairs(size, ep_group=dist.group.WORLD, **MESHES[int(number)])


class OptionsTest(unittest.TestCase):
    def test_one_rank(self):
        try_pairs()

    def test_two_ranks(self):
        for number in range(len(MESHES)):
            core_jobs.run_ranks(self, "on_mesh", 2, arguments=(number,), limit=240)

    def test_codes_take_weights_that_are_given(self):
        for encode in ("int8,rows=int8", "int4,rows=int8", "int4"):
            tuning = FineTuning(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, LORA(4, 8.0), encode=encode, steps=Steps(threads=1))
            gate, up = torch.randn(2, EXPERTS, INTERMEDIATE, HIDDEN)
            tuning.load_weights(gate, up, torch.randn(EXPERTS, HIDDEN, INTERMEDIATE))
            ids, weights = route(9, EXPERTS, TOP_K, 1)
            y = tuning.forward(torch.randn(9, HIDDEN).bfloat16(), ids, weights)
            self.assertEqual(len(tuning.backward(torch.randn_like(y))), 2 + 6)


if __name__ == "__main__":
    if not core_jobs.main({"on_mesh": on_mesh}):
        unittest.main()
