"""How the numbers of one weight are stored: as bfloat16, or as codes with scales beside them (docs/PRECISION.md)."""

import typing

import torch

# The numbers on a side of a square that shares a scale.
SQUARE = 128
# The types of scales that are numbers, and of zeros, in tensors; codes have uint8.
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I8": torch.int8}


class Stored(typing.NamedTuple):
    """What the library says of an encoding of weights."""

    name: str
    element: str  # of memory, as graphs name it
    per_element: int  # numbers in one
    across: int  # columns of the product that share a scale
    along: int  # numbers along its sums that share one; 0: all
    has_zeros: bool  # beside the scales
    scale: str  # the elements of scales: F32, F16 or BF16, or F8_E8M0 or F8_E4M3, which tensors have in uint8
    has_factor: bool  # whether the scales of a matrix have a factor

    @property
    def has_codes(self) -> bool:
        return self.element != "BF16"

    @property
    def bits(self) -> int:
        """The bits of a number."""
        return 8 // self.per_element if self.has_codes else 16

    @property
    def has_squares(self) -> bool:
        """Whether there is a scale for each square."""
        return self.across != 1

    @property
    def group(self) -> int:
        """Numbers along the sum of a product that share a scale of codes of 4 bits; 0: all."""
        return 0 if self.has_squares else self.along

    def operands(self, weight: str) -> dict[str, str]:
        """The operands of a product that belong to codes of its weight, and the names of their tensors: a scale and, with zeros, a
        zero, with groups or squares in the plural, because these are sharded where those of channels are not; and a factor, if the
        scales of a matrix have one."""
        more = "s" if self.group or self.has_squares else ""
        has = {"scale": self.has_codes, "zero": self.has_zeros}
        found = {f"weight_{kind}": f"{weight}_{kind}{more}" for kind, is_there in has.items() if is_there}
        return found | {"weight_factor": f"{weight}_factor"} if self.has_factor else found

    def beside(self, weight: str) -> tuple[str, ...]:
        """The names of these tensors."""
        return tuple(self.operands(weight).values())

    def type_beside(self, name: str) -> str:
        """The elements of one of these: zeros beside scales of 16 bits are the codes that stand for 0."""
        if name.endswith("_factor"):
            return "F32"
        return "I8" if self.scale != "F32" and "_zero" in name else self.scale

    def dtype_beside(self, name: str) -> torch.dtype:
        """The type of its tensor."""
        return DTYPES.get(self.type_beside(name), torch.uint8)

    def sizes_beside(self, name: str, rows: int, length: int) -> tuple[int, ...]:
        """The sizes of one of these, for a matrix of `rows` by sums of this length."""
        if name.endswith("_factor"):
            return (1,)
        if self.has_squares:
            return -(-rows // SQUARE), -(-length // SQUARE)
        return rows, length // self.group if self.group else 1


PLAIN = Stored("bf16", "BF16", 1, 1, 0, False, "F32", False)
