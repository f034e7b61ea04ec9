"""Every whole number that a caller gives, near 2^31, 2^32, 2^62, 2^63 and beyond what a conversion takes: an error that names
the argument, at all ranks, and the next step is right."""

import unittest

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from grouped import grouped
from moe_eager import BOUND, eager, error, route
from sluice_torch import FineTuning, LoRAConfig, MoE, exchange, init_buffer, te
from sluice_torch.recipe import DelayedScaling

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, TOKENS = 32, 32, 8, 3, 20
IDS, WEIGHTS = route(TOKENS, EXPERTS, TOP_K, 1)
X = torch.randint(1, 4, (TOKENS, HIDDEN), generator=torch.Generator().manual_seed(1)).bfloat16()
MAP = torch.zeros(TOKENS, EXPERTS, dtype=torch.bool).scatter_(1, IDS, True)

ROWS = TOKENS * TOP_K
# Near powers of two, and numbers whose products with sizes here wrap to small ones.
LARGE = [
    *(power + off for power in (2**31, 2**32, 2**62, 2**63, 2**64) for off in (-1, 0, 1)),
    2**100, 2**64 // EXPERTS + 1, 2**64 // (2 * HIDDEN) + 1, 2**64 // (4 * HIDDEN * EXPERTS) + 1, 2**63 // ROWS + 1,
]  # fmt: skip
NO_NUMBERS = [-1, -(2**31) - 1, -(2**63), -(2**63) - 1, True, 1.5, "8"]


def group():
    return dist.group.WORLD if dist.is_initialized() else None


def dispatch(**options):
    given = {} if "routing_map" in options else {"token_indices": IDS, "token_probs": WEIGHTS, "num_experts": EXPERTS}
    return exchange.dispatch(X, group=group(), timeout=30, **{**given, **options})


def check_dispatch():
    """A step without such numbers."""
    rows, *_, handle = dispatch(pad_multiple=8)
    assert torch.equal(exchange.combine(rows, group(), handle), TOP_K * X)


def make(**options):
    sizes = {"hidden": HIDDEN, "intermediate": INTERMEDIATE, "num_experts": EXPERTS, "top_k": TOP_K, "threads": 2}
    return MoE(**grouped(**{**sizes, **options}))


# argument -> what passes it; all values are tried at one rank.
CALLS = {
    "pad_multiple": lambda value: dispatch(pad_multiple=value),
    "num_permuted_tokens": lambda value: dispatch(num_permuted_tokens=value),
    "num_permuted_tokens ": lambda value: dispatch(num_permuted_tokens=value, pad_multiple=16),
    "num_permuted_tokens  ": lambda value: dispatch(num_permuted_tokens=value, rows_per="rank"),
    "num_experts": lambda value: dispatch(num_experts=value),
    "num_experts ": lambda value: dispatch(num_experts=value, rows_per="rank"),
    "num_experts  ": lambda value: dispatch(routing_map=MAP, probs=torch.ones(MAP.shape), num_experts=value),
    "top_k": lambda value: dispatch(routing_map=MAP, probs=torch.ones(MAP.shape), top_k=value),
    "max_tokens": lambda value: dispatch(max_tokens=value),
    "num_sms_dispatch_api": lambda value: dispatch(num_sms_dispatch_api=value),
    "num_sms_combine_api": lambda value: dispatch(num_sms_combine_api=value),
    "threads": lambda value: dispatch(threads=value),
}
ALONE = {
    "hidden_bytes": lambda value: init_buffer(None, value, EXPERTS, TOP_K),
    "hidden_bytes ": lambda value: sluice_torch.get_buffer(None, value),
    "num_experts   ": lambda value: init_buffer(None, 2 * HIDDEN, value, TOP_K),
    "top_k ": lambda value: init_buffer(None, 2 * HIDDEN, EXPERTS, value),
    "max_tokens ": lambda value: init_buffer(None, 2 * HIDDEN, max_tokens=value),
    "hidden": lambda value: make(hidden=value),
    "intermediate": lambda value: make(intermediate=value),
    "num_experts    ": lambda value: make(num_experts=value),
    "top_k  ": lambda value: make(top_k=value),
    "max_tokens  ": lambda value: make(max_tokens=value),
    "tp": lambda value: make(tp=value),
    "spare": lambda value: make(spare=value),
    "rank of adapters": lambda value: LoRAConfig(value),
    "threads ": lambda value: make(threads=value)(X, IDS, WEIGHTS),
    "tokens": lambda value: make().prepare(value),
    "depth": lambda value: FineTuning(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, depth=value),
    "amax_history_len": lambda value: DelayedScaling(amax_history_len=value),
    "interval": lambda value: DelayedScaling(interval=value),
    "input_size": lambda value: te.TEColumnParallelLinear(value, 32, bias=False),
    "output_size": lambda value: te.TERowParallelLinear(32, value, bias=False),
    "max_tokens   ": lambda value: te.TERowParallelLinear(32, 32, bias=False, max_tokens=value),
    "bits": lambda value: sluice_torch.quantize(torch.ones(32, 32), value),
}
# Arguments without a limit of their own below 2^31: tensors of that size are not tried.
ANY_BELOW_2_31 = {"input_size", "output_size", "depth", "interval"} | {name for name in CALLS if "permuted" in name}
BIG_ENOUGH = 2**31 - 1


def check(name, call, value):
    try:
        call(value)
    except (ValueError, RuntimeError) as refused:
        assert name.strip() in str(refused), f"{name} of {value!r}: {refused}"
        return
    except Exception as refused:
        raise AssertionError(f"{name} of {value!r}: {type(refused).__name__}: {refused}") from None
    raise AssertionError(f"{name} of {value!r} is not refused")


def alone():
    """Direct calls of the op, and all arguments, at one rank."""
    for name, call in {**CALLS, **ALONE}.items():
        for value in LARGE + NO_NUMBERS:
            if name in ANY_BELOW_2_31 and value == BIG_ENOUGH:
                continue
            check(name, call, value)
        if name in CALLS:
            check_dispatch()
    exchange = dispatch()[-1]._exchange.op
    for rows, multiple in [(value, 1) for value in LARGE[1:12]] + [(-1, value) for value in LARGE[:12]] + [(2**62, 2**62), (64, 2**63 - 1)]:
        if not -(2**63) <= max(rows, multiple) < 2**63:
            continue
        try:
            torch.ops.sluice.dispatch(exchange, X, IDS, WEIGHTS, rows, multiple, False)
            raise AssertionError((rows, multiple))
        except RuntimeError as refused:
            if max(rows, multiple) > BIG_ENOUGH:
                assert "num_permuted_tokens is" in str(refused) or "pad_multiple is" in str(refused), refused
        check_dispatch()


def ranks(rank, size):
    """A number of one rank, the last, fails the step at all."""
    check_dispatch()
    values = [2**31, 2**62, 2**63, 2**64, 2**64 // EXPERTS + 1, -1, True, "8"]
    for name, call in CALLS.items():
        for value in values if "permuted" in name or name == "pad_multiple" else values[2:5]:
            try:
                dispatch() if rank < size - 1 else call(value)
                raise AssertionError(f"{name} of {value!r} is not refused")
            except (ValueError, RuntimeError) as refused:
                assert name.strip() in str(refused), f"{name} of {value!r}: {refused}"
        check_dispatch()


class IntegersTest(unittest.TestCase):
    def test_numbers_beyond_the_limits_are_refused_by_name(self):
        process = core_jobs.start("alone")
        said, ended = core_jobs.finish(process)
        self.assertEqual(ended, 0, said)

    def test_such_a_number_of_one_rank_fails_the_step_at_all(self):
        core_jobs.run_ranks(self, "ranks", 2)

    def test_numbers_at_the_limits_are_right(self):
        rows, _, _, counts, handle = dispatch(num_permuted_tokens=3 * ROWS, pad_multiple=ROWS // 4)
        self.assertEqual((len(rows), counts.sum()), (3 * ROWS, int(((MAP.sum(0) + 14) // 15 * 15).sum())))
        self.assertTrue(torch.equal(exchange.combine(rows, None, handle), TOP_K * X))
        layer = make(max_tokens=4194304)
        layer.prepare(0)
        with torch.no_grad():
            expected = eager(X, IDS, WEIGHTS, layer.gate_up_weight, layer.down_weight)
            self.assertLess(error(layer(X, IDS, WEIGHTS), expected), BOUND)


if __name__ == "__main__":
    if not core_jobs.main({"alone": alone, "ranks": ranks}):
        unittest.main()
