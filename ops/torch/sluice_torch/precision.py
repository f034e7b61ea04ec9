"""Precision: what the products of a layer round their factors to (docs/PRECISION.md, *FP8*)."""

import dataclasses
import math

from .integers import MAX_ROWS, MAX_SIZE, whole_number

# Products round nothing; rows, weights and gradients to FP8 with a scale per tensor; to MXFP8; the same with squares of
# weights.
KINDS = ("bf16", "fp8", "mxfp8", "mxfp8-32x32")
FORMATS = ("e4m3", "hybrid")
EXPONENTS = ("ceil", "floor")
# Of "fp8": scales from the largest magnitudes of the step, or of earlier ones.
RECIPES = ("current", "delayed")
ALGORITHMS = ("max", "most_recent")

# Numbers along a sum that share a power of two.
BLOCK = 32


@dataclasses.dataclass(frozen=True)
class Delayed:
    """A value: how scales follow from the largest magnitudes (amaxes) of earlier steps.

    A scale is for the amax that `algorithm` chooses from those of the last `length` steps, times 2^margin, and is renewed
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
class Precision:
    """A value: options of sluicec, and of kind "fp8" how scales follow from amaxes."""

    kind: str = "bf16"
    fp8_format: str = "e4m3"
    exponent: str = "ceil"  # of blocks
    delayed: Delayed | None = None  # of "fp8"; None: amaxes are those of the step
    measures: bool = False  # of "fp8": amaxes of the step are outputs
    sends_codes: bool = False  # of blocks: tokens are rounded before they are sent

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
        if not self.rounds:
            return text
        text += f", fp8_format={self.fp8_format!r}, "
        text += f"recipe={self.recipe!r}" if self.has_scales else f"exponent={self.exponent!r}"
        return text + (", fp8_dispatch=True" if self.sends_codes else "")

    @property
    def rounds(self) -> bool:
        return self.kind != "bf16"

    @property
    def has_scales(self) -> bool:
        """One per tensor; else powers of two of blocks."""
        return self.kind == "fp8"

    @property
    def recipe(self) -> str:
        """One of RECIPES."""
        return "current" if self.delayed is None else "delayed"

    def first(self) -> "Precision":
        """That of steps before which there are no amaxes: scales are those of the step, whose amaxes are outputs."""
        return dataclasses.replace(self, delayed=None, measures=True)

    @property
    def options(self) -> tuple[str, ...]:
        """Those of sluicec."""
        if not self.rounds:
            return ()
        last = f"--recipe={self.recipe}" if self.has_scales else f"--exponent={self.exponent}"
        amaxes = ("--amaxes",) if self.measures else ()
        sent = ("--fp8-dispatch",) if self.sends_codes else ()
        return (f"--precision={self.kind}", f"--fp8-format={self.fp8_format}", last, *amaxes, *sent)

    @property
    def suffix(self) -> str:
        """Of the name of a graph, which ranks with other programs read in their messages."""
        if not self.rounds:
            return ""
        last = self.exponent
        if self.has_scales:
            last = self.recipe if self.delayed is None else self.delayed.suffix
            last = "first" if self.measures else last
        return f"_{self.kind.replace('-', '_')}_{self.fp8_format}_{last}" + ("_sent" if self.sends_codes else "")

    def check_sizes(self, **sizes: int):
        """ValueError: a size along which products round is no multiple of a block. Underscores of names become spaces."""
        for name, size in sizes.items():
            if self.rounds and not self.has_scales and size % BLOCK:
                raise ValueError(f"{name.replace('_', ' ')}: {size}, expected a multiple of {BLOCK} for {self.kind}")


BF16 = Precision()


def precision_of(
    precision: str | None, fp8_format: str | None, exponent: str | None, recipe=None, fp8_dispatch: bool = False
) -> Precision | None:
    """Of the arguments of a layer; None: that of the context fp8_autocast. ValueError: unknown values; options of a
    precision that has none."""
    if not isinstance(fp8_dispatch, bool):
        raise ValueError(f"fp8_dispatch is {fp8_dispatch!r}, expected True or False")
    if fp8_dispatch and precision not in KINDS[2:]:
        raise ValueError(f"precision={precision!r} has no fp8_dispatch, expected {' or '.join(map(repr, KINDS[2:]))}")
    having = {"fp8_format": KINDS[1:], "exponent": KINDS[2:], "recipe": KINDS[1:2]}
    given = {"fp8_format": fp8_format, "exponent": exponent, "recipe": recipe}
    given = {name: value for name, value in given.items() if value is not None}
    if precision is None or precision in KINDS:
        for name, value in given.items():
            if precision not in having[name]:
                raise ValueError(f"precision={precision!r} has no {name} {value!r}, expected {' or '.join(having[name])}")
    if precision is None:
        return None
    recipe = given.pop("recipe", None)
    if recipe is None or recipe == "current":
        return Precision(precision, **given, sends_codes=fp8_dispatch)
    if recipe == "delayed":
        return Precision(precision, **given, delayed=Delayed())
    return _of_recipe(recipe, fp8_format)


def _of_recipe(recipe, fp8_format: str | None) -> Precision:
    made = recipe.precision() if callable(getattr(recipe, "precision", None)) else None
    if made is None or not made.has_scales:
        raise ValueError(
            f"recipe is {recipe!r}, expected one of {', '.join(RECIPES)}, or a DelayedScaling or Float8CurrentScaling"
        )
    if fp8_format is not None:
        raise ValueError(f"fp8_format is {fp8_format!r} beside {recipe!r}, which has one: expected one of both")
    return made
