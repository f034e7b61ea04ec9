"""Precision: what the products of a layer round their factors to (docs/PRECISION.md, *FP8*)."""

import dataclasses

# Products round nothing; rows, weights and gradients to MXFP8; the same with squares of weights.
KINDS = ("bf16", "mxfp8", "mxfp8-32x32")
FORMATS = ("e4m3", "hybrid")
EXPONENTS = ("ceil", "floor")

# Numbers along a sum that share a power of two.
BLOCK = 32


@dataclasses.dataclass(frozen=True)
class Precision:
    """A value: options of sluicec."""

    kind: str = "bf16"
    fp8_format: str = "e4m3"
    exponent: str = "ceil"

    def __post_init__(self):
        for name, value, known in (
            ("precision", self.kind, KINDS),
            ("fp8_format", self.fp8_format, FORMATS),
            ("exponent", self.exponent, EXPONENTS),
        ):
            if value not in known:
                raise ValueError(f"{name} is {value!r}, expected one of {', '.join(known)}")

    def __str__(self) -> str:
        text = f"precision={self.kind!r}"
        return text + f", fp8_format={self.fp8_format!r}, exponent={self.exponent!r}" if self.rounds else text

    @property
    def rounds(self) -> bool:
        return self.kind != "bf16"

    @property
    def options(self) -> tuple[str, ...]:
        """Those of sluicec."""
        if not self.rounds:
            return ()
        return (f"--precision={self.kind}", f"--fp8-format={self.fp8_format}", f"--exponent={self.exponent}")

    @property
    def suffix(self) -> str:
        """Of the name of a graph, which ranks with other programs read in their messages."""
        return f"_{self.kind.replace('-', '_')}_{self.fp8_format}_{self.exponent}" if self.rounds else ""

    def check_sizes(self, **sizes: int):
        """ValueError: a size along which products round is no multiple of a block. Underscores of names become spaces."""
        for name, size in sizes.items():
            if self.rounds and size % BLOCK:
                raise ValueError(f"{name.replace('_', ' ')}: {size}, expected a multiple of {BLOCK} for {self.kind}")


BF16 = Precision()


def precision_of(precision: str | None, fp8_format: str | None, exponent: str | None) -> Precision | None:
    """Of the arguments of a layer; None: that of the context fp8_autocast. ValueError: unknown values; options of a
    precision that has none."""
    given = {name: each for name, each in (("fp8_format", fp8_format), ("exponent", exponent)) if each is not None}
    if given and (precision is None or precision == "bf16"):
        name, value = next(iter(given.items()))
        raise ValueError(f"precision={precision!r} has no {name} {value!r}, expected {' or '.join(KINDS[1:])}")
    return None if precision is None else Precision(precision, **given)
