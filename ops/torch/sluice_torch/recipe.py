"""Recipes of fp8_autocast(), with the names and arguments of Transformer Engine.

A recipe is a value, a name for encodings(). ValueError: arguments that are unknown, or that Sluice does
not have.
"""

import dataclasses
import enum

from .encodings.encodings import Delayed, Encodings


class Format(enum.Enum):
    """E4M3 for all factors, or E5M2 for gradients."""

    E4M3 = "e4m3"
    HYBRID = "hybrid"


class Recipe:
    """What all recipes have. One that has no encodings() is no recipe for layers."""

    def encodings(self) -> Encodings:
        raise ValueError(f"{type(self).__name__} is no recipe, expected one of sluice_torch.recipe")

    def _check(self, **defaults):
        """ValueError: a format that is none; another value than the default of something that Sluice does not have."""
        for name, default in defaults.items():
            if getattr(self, name) != default:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected {default!r}")
        if not isinstance(self.fp8_format, Format):
            raise ValueError(f"fp8_format is {self.fp8_format!r}, expected {' or '.join(map(str, Format))}")
        self.encodings()

    def _text(self, encoding: str, of_gradients: str) -> str:
        return f"{encoding},grads={of_gradients}" if self.fp8_format == Format.HYBRID else encoding


# The blocks of weights, and the exponents, as encodings have them.
_BLOCKS = {"1x32": "", "32x32": ":32x32"}
_EXPONENTS = {"ceil": "", "floor": ":floor"}


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
        if self.weights not in _BLOCKS:
            raise ValueError(f"weights is {self.weights!r}, expected one of {', '.join(_BLOCKS)}")
        if self.exponent not in _EXPONENTS:
            raise ValueError(f"exponent is {self.exponent!r}, expected one of {', '.join(_EXPONENTS)}")
        self._check(margin=0, fp8_dpa=False, fp8_mha=False)

    def encodings(self) -> Encodings:
        last = _EXPONENTS[self.exponent]
        return Encodings(self._text(f"mxfp8{_BLOCKS[self.weights]}{last}", f"mxfp8e5m2{last}"))


@dataclasses.dataclass(frozen=True)
class Float8CurrentScaling(Recipe):
    """A scale per tensor, that is per expert, of its largest magnitude in the step.

    fp8_dpa, fp8_mha  only the defaults: attention is not Sluice's
    """

    fp8_format: Format = Format.HYBRID
    fp8_dpa: bool = False
    fp8_mha: bool = False

    def __post_init__(self):
        self._check(fp8_dpa=False, fp8_mha=False)

    def encodings(self) -> Encodings:
        return Encodings(self._text("fp8e4m3", "fp8e5m2"))


@dataclasses.dataclass(frozen=True)
class DelayedScaling(Recipe):
    """A scale per tensor, that is per expert, of its largest magnitudes (amaxes) in earlier steps.

    margin             scales are for amaxes times 2^margin
    interval           scales are renewed in every so manieth step
    amax_history_len   steps whose amaxes count
    amax_compute_algo  "max": the largest of them; "most_recent": the last one
    reduce_amax        amaxes are the largest of the ranks of fp8_group, and of those that share the layer's experts
    scaling_factor_compute_algo, override_linear_precision, fp8_dpa, fp8_mha  only the defaults
    """

    margin: float = 0
    interval: int = 1
    fp8_format: Format = Format.HYBRID
    amax_history_len: int = 1024
    amax_compute_algo: str = "max"
    scaling_factor_compute_algo: None = None
    override_linear_precision: tuple = (False, False, False)
    reduce_amax: bool = True
    fp8_dpa: bool = False
    fp8_mha: bool = False

    def __post_init__(self):
        self._check(
            scaling_factor_compute_algo=None, override_linear_precision=(False,) * 3, fp8_dpa=False, fp8_mha=False
        )

    def encodings(self) -> Encodings:
        delayed = Delayed(self.amax_history_len, self.amax_compute_algo, self.margin, self.interval, self.reduce_amax)
        return Encodings(self._text("fp8e4m3:delayed", "fp8e5m2"), delayed)
