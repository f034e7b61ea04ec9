"""The activations of experts, in eager PyTorch. A model's own activation is recognised by comparison with them.

Its text is a name, with a limit after a colon if it has one: "swiglu", "swiglu_oai:7".
"""

import math
import struct

import torch


def _scaled_silu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(1.702 * x)


# Keys are the names of the graph format. Activations of LIMITED have a limit, activations of UNGATED have no gate.
ACTIVATIONS = {
    "swiglu": lambda gate, up, limit: torch.nn.functional.silu(gate) * up,
    "geglu": lambda gate, up, limit: torch.nn.functional.gelu(gate, approximate="tanh") * up,
    "reglu": lambda gate, up, limit: torch.relu(gate) * up,
    "squared_reglu": lambda gate, up, limit: torch.relu(gate).square() * up,
    "swiglu_clamp": lambda gate, up, limit: torch.nn.functional.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit),
    "swiglu_oai": lambda gate, up, limit: _scaled_silu(gate.clamp(max=limit)) * (up.clamp(-limit, limit) + 1),
    "silu": lambda x, limit: torch.nn.functional.silu(x),
    "relu2": lambda x, limit: torch.relu(x).square(),
}
LIMITED = ("swiglu_clamp", "swiglu_oai")
UNGATED = ("silu", "relu2")


def inputs_of(activation: str) -> int:
    """The number of matrices before an activation: gate and up, or up alone."""
    return 1 if activation in UNGATED else 2


def parse(text: str) -> tuple[str, float | None]:
    """The name and the limit, or None, of an activation. ValueError: no such name; a limit that is missing, or of a name that has
    none; one that bfloat16 does not hold exactly."""
    name, colon, limit = str(text).partition(":")
    if name not in ACTIVATIONS:
        known = (f"{each}:LIMIT" if each in LIMITED else each for each in ACTIVATIONS)
        raise ValueError(f"activation is {text!r}, expected one of {', '.join(known)}")
    if name not in LIMITED:
        if colon:
            raise ValueError(f"activation is {text!r}, but {name} has no limit; {' and '.join(LIMITED)} have one")
        return name, None
    if not limit:
        raise ValueError(f"{name} needs a limit: activation='{name}:7'")
    if not _is_limit(limit):
        raise ValueError(f"activation is {text!r}, expected a limit that is positive and that bfloat16 holds exactly, such as '{name}:7'")
    return name, float(limit)


def spelled(name: str, limit: float | None) -> str:
    """The text of an activation, for parse()."""
    return name if limit is None else f"{name}:{float(limit)!r}".removesuffix(".0")


def _is_limit(text: str) -> bool:
    try:
        limit = float(text)
        packed = struct.pack("<f", limit)
    except (ValueError, OverflowError):
        return False
    return 0 < limit < math.inf and packed[:2] == b"\0\0" and struct.unpack("<f", packed)[0] == limit
