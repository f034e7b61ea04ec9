"""Ranks whose callers give a layer, an exchange or a linear layer something else are told which argument, and both values; and
errors of exchange.dispatch call its arguments what the caller calls them."""

import contextlib
import types
import unittest

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from grouped import grouped
from moe_eager import route
from sluice_torch import LoRAConfig, exchange, init_buffer, te

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, TOKENS = 64, 64, 8, 2, 10


def step(grad=False, main_grad=False, frozen=False, top_k=TOP_K, num_experts=EXPERTS, hidden=HIDDEN, **options):
    ids, weights = route(TOKENS, num_experts, top_k, 1)
    x = torch.zeros(TOKENS, hidden).bfloat16().requires_grad_(grad)
    sizes = {"hidden": hidden, "intermediate": INTERMEDIATE, "num_experts": num_experts, "top_k": top_k}
    layer = sluice_torch.MoE(**grouped(ep_group=dist.group.WORLD, threads=1, timeout=30, **{**sizes, **options}))
    layer.requires_grad_(layer.lora is None and not frozen and not layer.shape.has_codes)
    if main_grad:
        for parameter in layer.parameters():
            parameter.main_grad = torch.zeros(parameter.shape)
    with torch.set_grad_enabled(grad or main_grad):
        layer(x, ids, weights)


def dispatch(top_k=TOP_K, num_experts=EXPERTS, hidden=HIDDEN, dtype=torch.bfloat16, **options):
    ids, weights = route(TOKENS, 4, top_k, 1)
    exchange.dispatch(torch.zeros(TOKENS, hidden, dtype=dtype), ids, weights, num_experts, dist.group.WORLD, timeout=30, **options)


def linear(column, ins=64, outs=64, grad=False, dtype=torch.bfloat16, **options):
    kind = te.TEColumnParallelLinear if column else te.TERowParallelLinear
    config = types.SimpleNamespace(sequence_parallel=True, params_dtype=dtype, perform_initialization=False)
    layer = kind(ins, outs, config=config, tp_group=dist.group.WORLD, threads=1, timeout=30, **{"bias": False, **options})
    with torch.set_grad_enabled(grad):
        layer(torch.zeros(4, ins if column else ins // 2).bfloat16())


def column(**options):
    linear(True, **options)


def row(**options):
    linear(False, **options)


# call, the arguments of rank 0 and those of rank 1, and what both are told: argument, value of rank 1, value of rank 0.
ROWS = (
    (step, {"hidden": 64}, {"hidden": 128}, "hidden as 128 to MoE, but rank 0 passed 64"),
    (step, {"intermediate": 96}, {}, "intermediate as 64 to MoE, but rank 0 passed 96"),
    (step, {"num_experts": 9}, {}, "num_experts as 8 to MoE, but rank 0 passed 9"),
    (step, {}, {"top_k": 3}, "top_k as 3 to MoE, but rank 0 passed 2"),
    (step, {}, {"max_tokens": 32}, "max_tokens as 32 to MoE, but rank 0 passed 65536"),
    (step, {}, {"activation": "geglu"}, "activation as geglu to MoE, but rank 0 passed"),
    (step, {"activation": "swiglu_clamp:7"}, {"activation": "swiglu_clamp:8"}, "limit of activation as 8.0 to MoE, but rank 0 passed 7.0"),
    (step, {"encode": "int8"}, {}, "encode as 'bf16' to MoE, but rank 0 passed 'int8'"),
    (step, {"encode": "int4:g32"}, {"encode": "int4:g64"}, "encode as 'int4:g64' to MoE, but rank 0 passed 'int4:g32'"),
    (step, {"encode": "int4"}, {"encode": "int4:z"}, "encode as 'int4:z' to MoE, but rank 0 passed 'int4'"),
    (step, {"encode": "mxfp8"}, {}, "encode as 'bf16' to MoE, but rank 0 passed 'mxfp8'"),
    (step, {"encode": "mxfp8"}, {"encode": "mxfp8:floor"}, "encode as 'mxfp8:floor' to MoE"),
    (step, {"grad": True}, {"grad": True, "keep": "minimal"}, "keep as minimal to MoE, but rank 0 passed all"),
    (step, {"grad": True}, {"grad": False}, "requires_grad as none to MoE, but rank 0 passed x, gate_up_weight, down_weight"),
    (step, {"grad": True}, {"grad": True, "frozen": True}, "requires_grad as x to MoE, but rank 0 passed x, gate_up_weight, down_weight"),
    (step, {"grad": True}, {"grad": True, "dtype": torch.float32}, "dtype as torch.float32 to MoE, but rank 0 passed torch.bfloat16"),
    (step, {"main_grad": True}, {"grad": True}, "requires_grad as x, gate_up_weight"),
    (step, {"grad": True, "main_grad": True}, {"grad": True}, "main_grad as False to MoE, but rank 0 passed True"),
    (dispatch, {"num_experts": 8}, {"num_experts": 6}, "num_experts as 6 to exchange.dispatch, but rank 0 passed 8"),
    (dispatch, {"num_experts": 8, "rows_per": "rank"}, {"num_experts": 7, "rows_per": "rank"}, "num_experts as 7 to exchange.dispatch, but rank 0 passed 8"),
    (dispatch, {}, {"top_k": 3}, "top_k as 3 to exchange.dispatch, but rank 0 passed 2"),
    (dispatch, {"rows_per": "rank"}, {}, "rows_per as expert to exchange.dispatch, but rank 0 passed rank"),
    (dispatch, {"hidden": 32}, {}, "hidden as 64 to exchange.dispatch, but rank 0 passed 32"),
    (dispatch, {"dtype": torch.float32}, {}, "x of float32 as False to exchange.dispatch, but rank 0 passed True"),
    (dispatch, {"max_tokens": 100}, {"max_tokens": 99}, "max_tokens as 99 to exchange.dispatch, but rank 0 passed 100"),
    (dispatch, {"num_sms_combine_api": 1}, {}, "num_sms_combine_api as None to exchange.dispatch, but rank 0 passed 1"),
    (column, {"ins": 32}, {}, "input_size as 64 to te.TEColumnParallelLinear, but rank 0 passed 32"),
    (column, {"max_tokens": 64}, {}, "max_tokens as 65536 to te.TEColumnParallelLinear, but rank 0 passed 64"),
    (column, {"grad": True}, {}, "requires_grad as none to te.TEColumnParallelLinear, but rank 0 passed weight"),
    (row, {"outs": 32}, {}, "output_size as 64 to te.TERowParallelLinear, but rank 0 passed 32"),
    (row, {}, {"bias": True}, "bias as True to te.TERowParallelLinear, but rank 0 passed False"),
    (row, {"grad": True}, {"grad": True, "dtype": torch.float32}, "dtype as torch.float32 to te.TERowParallelLinear, but rank 0 passed"),
)  # fmt: skip


def ranks(rank, size):
    for call, first, second, expected in ROWS:
        try:
            call(**(first, second)[rank])
            raise AssertionError(f"not refused: {expected}")
        except (RuntimeError, ValueError) as refused:
            assert f"rank 1 passed {expected}" in str(refused), (expected, str(refused))
    step(grad=True)  # is right afterwards
    dispatch()


class DifferingTest(unittest.TestCase):
    def test_ranks_that_differ_are_told_the_argument_and_both_values(self):
        core_jobs.run_ranks(self, "ranks", 2)

    def test_errors_of_dispatch_have_the_names_of_its_arguments(self):
        ids, weights = route(TOKENS, EXPERTS, TOP_K, 1)
        x, twice = torch.zeros(TOKENS, HIDDEN).bfloat16(), ids.clone()
        twice[3] = 5
        for form in ("expert", "rank"):
            for changes, expected in (
                ({"token_indices": ids[:3]}, r"token_indices has shape \[3, 2\], expected \[10, 2\]"),
                ({"token_indices": ids.float()}, "token_indices has type"),
                ({"token_indices": ids + 8}, r"token_indices\[0, 0\] is \d+, expected 0 to 7"),
                ({"token_indices": ids.int() - 9}, r"token_indices\[0, ?0\] is -\d"),
                ({"token_indices": twice}, r"token_indices\[3,1\] is 5, as is token_indices\[3,0\]|token 3 has expert 5 twice"),
                ({"token_indices": ids.to("meta")}, "token_indices is on device meta|is on device meta"),
                ({"token_probs": weights[:3]}, r"token_probs has shape \[3, 2\], expected \[10, 2\]"),
                ({"token_probs": weights.double()}, "token_probs has type"),
                ({"num_experts": 0}, "num_experts is 0, expected a whole number from 1 on"),
                ({"num_experts": None}, "num_experts is None, expected a whole number"),
            ):
                given = {"token_indices": ids, "token_probs": weights, "num_experts": EXPERTS, **changes}
                with self.subTest(form=form, expected=expected), self.assertRaisesRegex((ValueError, RuntimeError), expected):
                    exchange.dispatch(x, rows_per=form, **given)


if __name__ == "__main__":
    if not core_jobs.main({"ranks": ranks}):
        unittest.main()
