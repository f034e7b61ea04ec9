"""Whole numbers that callers give: every one is checked here before anything is computed with it, so that products of sizes
fit in 64 bits and conversions for the library cannot fail.

Programs have the same limits (runtime/program/program.h).
"""

MAX_EXPERTS = 65536
MAX_TOP_K = 64
MAX_RANKS = 4096
MAX_THREADS = 4096  # of a rank
MAX_TOKENS = 4194304  # of a rank, in a step
MAX_SIZE = 1 << 20  # a dimension of a tensor, except its rows
MAX_ROWS = (1 << 31) - 1  # that a rank has in a step, with pads


def whole_number(name: str, value, least: int, most: int, other: str = "") -> int:
    """The value, from `least` to `most`. ValueError: anything else. `other`: what else the argument may be, for the message."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value!r}, expected a whole number from {least} on{other}")
    if value > most:
        raise ValueError(f"{name} is {value}, expected at most {most}")
    return value
