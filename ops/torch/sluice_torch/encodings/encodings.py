"""Encodings: what the numbers of a layer are stored as, rounded to and sent as (docs/PRECISION.md).

The library reads their texts, and says which of them go together.
"""

import collections
import dataclasses
import functools
import math
import re
import types

from ..base.integers import MAX_ROWS, MAX_SIZE, whole_number
from .stored import PLAIN, Stored

# How a history of amaxes chooses one.
ALGORITHMS = ("max", "most_recent")

# Numbers along a sum that share a power of two.
BLOCK = 32

# What the library says of a text: its shortest form; the names of single weights that it encodes; whether some weight has codes;
# whether products round, by scales of tensors or else by powers of two of blocks; and where amaxes come from ("step", "returned"
# or "given").
_Facts = collections.namedtuple("_Facts", "text, single, has_codes, rounds, has_scales, amax")
# An empty text has these, so that graphs of bfloat16 need no library.
_NOTHING = _Facts("", (), False, False, False, "step")


@functools.lru_cache(maxsize=None)
def _facts_of(text: str) -> _Facts:
    """ValueError: what the library says of another text."""
    return _Facts(*_ops().encodings(text)) if text else _NOTHING


@functools.lru_cache(maxsize=None)
def stored_of(text: str, weight: str = "") -> Stored:
    """What a weight is stored as, of this name or of any other. ValueError: what the library says of another text."""
    return Stored(*_ops().stored(text, weight)) if text else PLAIN


def _ops():
    """The ops of the library."""
    import torch

    from ..base import library

    library.load()
    return torch.ops.sluice


@dataclasses.dataclass(frozen=True)
class Delayed:
    """A value: how scales follow from the largest magnitudes (amaxes) of earlier steps.

    A scale is for the amax that `algorithm` chooses from the amaxes of the last `length` steps, times 2^margin, and is renewed
    after steps 0, interval, 2 interval and so on. reduce: amaxes are the largest of several ranks.
    """

    length: int = 1024
    algorithm: str = "max"
    margin: float = 0
    interval: int = 1
    reduce: bool = True

    def __post_init__(self):
        whole_number("amax_history_len", self.length, 1, MAX_SIZE)
        whole_number("interval", self.interval, 1, MAX_ROWS)
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"amax_compute_algo is {self.algorithm!r}, expected one of {', '.join(ALGORITHMS)}")
        number = isinstance(self.margin, (int, float)) and not isinstance(self.margin, bool)
        if not number or not math.isfinite(self.margin) or abs(self.margin) > 64:
            raise ValueError(f"margin is {self.margin!r}, expected a number from -64 to 64")
        if not isinstance(self.reduce, bool):
            raise ValueError(f"reduce_amax is {self.reduce!r}, expected True or False")

    @property
    def suffix(self) -> str:
        """What distinguishes it, short: names of graphs have at most 64 characters."""
        text = f"{'max' if self.algorithm == 'max' else 'last'}{self.length}"
        text += "_m" + f"{self.margin:.3g}".replace("-", "m").replace("+", "").replace(".", "p") if self.margin else ""
        text += f"_i{self.interval}" if self.interval != 1 else ""
        return text if self.reduce else f"{text}_alone"


@dataclasses.dataclass(frozen=True)
class Encodings:
    """A value: a text for --encode of sluicec, and how scales follow from amaxes where the text says "delayed".

    ValueError: a text that the library refuses.
    """

    text: str = ""  # in its shortest form; empty: all is bfloat16
    delayed: Delayed | None = None

    def __post_init__(self):
        object.__setattr__(self, "text", self.facts.text)
        if self.facts.amax == "given" and self.delayed is None:
            object.__setattr__(self, "delayed", Delayed())

    @property
    def facts(self) -> _Facts:
        return _facts_of(self.text)

    def __str__(self) -> str:
        text = f"encode={self.text or 'bf16'!r}"
        return text if self.delayed in (None, Delayed()) else f"{text} with {self.delayed.suffix}"

    @property
    def has_codes(self) -> bool:
        """Whether a weight is of codes, which are not trained."""
        return self.facts.has_codes

    def stored(self, weight: str) -> Stored:
        """What the weight of that name is in memory."""
        return stored_of(self.text, weight)

    def check_names(self, weights: tuple[str, ...]):
        """ValueError: a single weight has an encoding and is none of these."""
        for name in self.facts.single:
            if name not in weights:
                raise ValueError(f"encode: found weights.{name}, expected a name of {', '.join(weights)}")

    def first(self) -> "Encodings":
        """The encodings of steps before which there are no amaxes: such a step scales by its own amaxes, which are outputs, too."""
        return Encodings(self.text.replace(":delayed", ":amax"))

    def options(self, has_backward: bool) -> tuple[str, ...]:
        """The options for sluicec. Rows of gradients have codes only where there are some."""
        text = self.text if has_backward else self.text.replace(",grads=int8", "")
        return (f"--encode={text}",) if text else ()

    @property
    def suffix(self) -> str:
        """The end of the name of a graph, which ranks with other programs read in their messages; names have at most 64 characters."""
        if not self.facts.rounds:
            return ""
        last = "_" + self.delayed.suffix if self.delayed else ""
        return "_" + re.sub("[^a-z0-9]+", "_", self.text.replace("grads=", "").replace(":delayed", "")) + last

    def check_sizes(self, **sizes: int):
        """ValueError: a size along which products round is no multiple of a block. Underscores of names become spaces."""
        for name, size in sizes.items():
            if self.facts.rounds and not self.facts.has_scales and size % BLOCK:
                raise ValueError(f"{name.replace('_', ' ')}: {size}, expected a multiple of {BLOCK} for {self.text}")


BF16 = Encodings()


def encodings_of(encode) -> Encodings | None:
    """What the argument `encode` of a layer stands for: a text, or a recipe of sluice_torch.recipe; None: the encodings of the
    context fp8_autocast. ValueError: anything else."""
    if encode is None or isinstance(encode, Encodings):
        return encode
    made = encode.encodings() if callable(getattr(encode, "encodings", None)) else None
    if made is None and not isinstance(encode, str):
        raise ValueError(f"encode is {encode!r}, expected a text, such as 'int4:g64,rows=int8', or a recipe of sluice_torch.recipe")
    return made or Encodings(encode)


def refuse_unknown(layer: str, unknown: dict, known, moved=types.MappingProxyType({})):
    """TypeError: there are `unknown` arguments beside the names `known`. Those that `encode` has replaced, and those of `moved`, are
    errors that say how they are spelled now."""
    for name, value in unknown.items():
        if name in moved:
            raise TypeError(f"{layer} has no argument {name!r} any more: it is {moved[name]} now (docs/LAYERS.md)")
        option = "precision" if name == "weights" else name.replace("_", "-")
        if name == "recipe" and not isinstance(value, str):
            now = "encode=recipe"
        else:
            now = _ops().spelled_now(option, str(value))
            now = now and f"encode={now!r}"
        if now:
            raise TypeError(f"{layer} has no argument {name!r} any more: {name}={value!r} is {now} now (docs/PRECISION.md)")
        raise TypeError(f"{layer} has no argument {name!r}, expected some of {', '.join(known)}")
