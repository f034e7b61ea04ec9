"""Steps: how a layer runs its steps."""

import dataclasses

from ..base.integers import MAX_THREADS, MAX_TOKENS, whole_number

# What a forward keeps for its backward.
KEEP = ("all", "minimal")


@dataclasses.dataclass(frozen=True)
class Steps:
    """A value: how a layer runs its steps. ValueError: a field has another value than these.

    threads      workers, shared by all layers of a group; 0: this rank's share of the machine
    max_tokens   limit of tokens per step and rank; memory is taken only for actual tokens
    keep         "all", or "minimal": the backward pass computes activations again
    pack_frozen  True: bfloat16 weights with requires_grad False, and codes that codes of rows multiply, stay packed for the
                 kernels between steps, from the first step or prepare() on. This takes as much memory again as the weights
                 (twice that with AVX2), per set of requested gradients. A change of a weight takes effect if autograd
                 sees it, but not through .data or another array that shares the memory
    delay_wgrad_compute   True: a backward leaves the gradients of parameters to the layer's backward_dw() (delaying.py)
    """

    threads: int = 0
    max_tokens: int = 65536
    keep: str = "all"
    pack_frozen: bool = False
    delay_wgrad_compute: bool = False

    def __post_init__(self):
        whole_number("threads", self.threads, 0, MAX_THREADS)
        whole_number("max_tokens", self.max_tokens, 1, MAX_TOKENS)
        if self.keep not in KEEP:
            raise ValueError(f"keep is {self.keep!r}, expected {' or '.join(map(repr, KEEP))}")
        for name in ("pack_frozen", "delay_wgrad_compute"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected True or False")
