"""Recipes of fp8_autocast(), with the names and arguments of Transformer Engine.

A recipe is a value; precision() says what products round to. Only MXFP8BlockScaling is supported yet.
"""

import dataclasses
import enum

from .precision import Precision


class Format(enum.Enum):
    """E4M3 for all factors, or E5M2 for gradients."""

    E4M3 = "e4m3"
    HYBRID = "hybrid"


class Recipe:
    """What all recipes have."""

    def precision(self) -> Precision:
        """ValueError: the recipe is not supported."""
        raise ValueError(f"recipe {type(self).__name__} is not supported yet, expected MXFP8BlockScaling")


# The blocks of weights, and the precision that has them.
_BLOCKS = {"1x32": "mxfp8", "32x32": "mxfp8-32x32"}


@dataclasses.dataclass(frozen=True)
class MXFP8BlockScaling(Recipe):
    """Blocks of 32 numbers share a power of two.

    weights   "1x32": blocks along the sum; "32x32": squares, so that forward and backward multiply by the same numbers
    exponent  "ceil": no number of a block saturates; "floor": as the OCP specification has it
    margin, fp8_dpa, fp8_mha  only the defaults: powers follow from `exponent`, and attention is not Sluice's
    """

    margin: int = 0
    fp8_format: Format = Format.E4M3
    fp8_dpa: bool = False
    fp8_mha: bool = False
    weights: str = "1x32"
    exponent: str = "ceil"

    def __post_init__(self):
        for name in ("margin", "fp8_dpa", "fp8_mha"):
            if getattr(self, name):
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected {type(getattr(type(self), name))()!r}")
        if not isinstance(self.fp8_format, Format):
            raise ValueError(f"fp8_format is {self.fp8_format!r}, expected {' or '.join(map(str, Format))}")
        if self.weights not in _BLOCKS:
            raise ValueError(f"weights is {self.weights!r}, expected one of {', '.join(_BLOCKS)}")
        self.precision()

    def precision(self) -> Precision:
        return Precision(_BLOCKS[self.weights], self.fp8_format.value, self.exponent)


@dataclasses.dataclass(frozen=True)
class DelayedScaling(Recipe):
    """A scale per tensor, of the largest magnitudes of earlier steps."""

    margin: int = 0
    fp8_format: Format = Format.HYBRID
    amax_history_len: int = 1024
    amax_compute_algo: str = "max"
    reduce_amax: bool = True


@dataclasses.dataclass(frozen=True)
class Float8CurrentScaling(Recipe):
    """A scale per tensor, of its largest magnitude."""

    fp8_format: Format = Format.HYBRID
