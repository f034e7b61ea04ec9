"""The graph of a layer, as sluicec reads it (graphs/FORMAT.md), and the options for compiling it.

Weights are [experts of this rank, out, in]; a gate_up_weight has the rows of the gate first, then those of up. With tp
above 1 a rank has a shard of each of its experts: sharding.py.
"""

import dataclasses
import math
import struct

from .structure import ACTIVATIONS, LIMITED

# The names of gradients among the outputs of "backward", by input.
GRADIENTS = {"x": "dx", "expert_weights": "d_expert_weights"}

# The tokens of the ranks that share experts: those of each rank, or the same at all of them.
TOKENS = ("own", "same")


@dataclasses.dataclass(frozen=True)
class LayerShape:
    """What the programs of a layer depend on: everything except token counts and routing."""

    hidden: int
    intermediate: int
    experts: int  # of all ranks
    top_k: int
    ranks: int = 1
    max_tokens: int = 65536  # per rank and step; memory is taken only as steps need it
    activation: str = "swiglu"
    limit: float | None = None  # only for activations of LIMITED
    tp: int = 1  # ranks that share an expert; rank r has shard r % tp of the experts of group r // tp
    tokens: str = "own"

    def __post_init__(self):
        for name in ("hidden", "intermediate", "experts", "top_k", "ranks", "max_tokens", "tp"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} is {value!r}, expected a whole number from 1 on")
        if self.top_k > self.experts:
            raise ValueError(f"top_k is {self.top_k}, expected at most the {self.experts} experts")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation is {self.activation!r}, expected one of {', '.join(ACTIVATIONS)}")
        self._check_limit()
        if self.ranks % self.tp:
            raise ValueError(f"tp is {self.tp}, expected a divisor of the {self.ranks} ranks")
        if self.intermediate % self.tp:
            raise ValueError(f"tp is {self.tp}, expected a divisor of the intermediate size {self.intermediate}")
        if self.tokens not in TOKENS:
            raise ValueError(f"tokens is {self.tokens!r}, expected 'own' or 'same'")

    def _check_limit(self):
        if self.activation not in LIMITED:
            if self.limit is not None:
                raise ValueError(f"limit is {self.limit!r}, but {self.activation} has none; {' and '.join(LIMITED)} have")
            return
        if self.limit is None or not math.isfinite(self.limit) or self.limit <= 0:
            raise ValueError(f"limit of {self.activation} is {self.limit!r}, expected a positive number")
        if not _is_bfloat16(self.limit):
            raise ValueError(f"limit of {self.activation} is {self.limit!r}, expected a number that bfloat16 holds exactly")

    @property
    def ep(self) -> int:
        """Groups of tp ranks, over which the experts are dealt."""
        return self.ranks // self.tp

    @property
    def part(self) -> int:
        """The intermediate columns of a rank."""
        return self.intermediate // self.tp

    def experts_of(self, rank: int) -> int:
        """The number of experts of a rank: the first groups own one more if the experts do not divide evenly."""
        return self.experts // self.ep + (rank // self.tp < self.experts % self.ep)

    def first_expert_of(self, rank: int) -> int:
        group = rank // self.tp
        return group * (self.experts // self.ep) + min(group, self.experts % self.ep)


def _is_bfloat16(value: float) -> bool:
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        return False
    return packed[:2] == b"\0\0" and struct.unpack("<f", packed)[0] == value


def product(name: str, rows: str, weight: str, result: str) -> dict:
    """A node rows x weight^T; weights are [E, out, in]."""
    return {
        "name": name,
        "op": "gmm",
        "transpose": True,
        "inputs": {"rows": rows, "weight": weight},
        "outputs": {"product": result},
    }


def forward_graph(shape: LayerShape) -> dict:
    """The entry "forward" of a layer; a backward is derived from it (`trainable` of compile_graph())."""
    activation = {
        "name": "activation",
        "op": "activation",
        "kind": shape.activation,
        "inputs": {"gate_up": "gate_up"},
        "outputs": {"act": "act"},
    }
    if shape.limit is not None:
        activation["limit"] = shape.limit
    nodes = [
        {"name": "route", "op": "route", "inputs": {"expert_ids": "expert_ids"}, "outputs": {"routing": "routing"}},
        {
            "name": "dispatch",
            "op": "dispatch",
            "inputs": {"tokens": "x", "routing": "routing"},
            "outputs": {"rows": "rows_x"},
        },
        product("up_proj", "rows_x", "gate_up_weight", "gate_up"),
        activation,
        product("down_proj", "act", "down_weight", "down_out"),
        {
            "name": "combine",
            "op": "combine",
            "inputs": {"rows": "down_out", "routing": "routing", "weights": "expert_weights"},
            "outputs": {"tokens": "y"},
        },
    ]
    return {
        "format": 1,
        "name": "moe_layer" + (f"_tp{shape.tp}_{shape.tokens}" if shape.tp > 1 else ""),
        "symbols": {},
        "limits": {
            "ranks": shape.ranks,
            "experts": shape.experts,
            "top_k": shape.top_k,
            "max_tokens": shape.max_tokens,
            **({"tp": shape.tp, "tokens": shape.tokens} if shape.tp > 1 else {}),
        },
        "tensors": forward_tensors(shape),
        "entries": [
            {
                "name": "forward",
                "inputs": ["x", "expert_ids", "expert_weights", "gate_up_weight", "down_weight"],
                "nodes": nodes,
                "outputs": ["y"],
            }
        ],
    }


def forward_tensors(shape: LayerShape) -> dict:
    """The tensors of forward_graph() by name."""

    def bf16(*sizes, parallel=None):
        tensor = {"type": "BF16", "shape": list(sizes)}
        return dict(tensor, parallel=parallel) if parallel and shape.tp > 1 else tensor

    return {
        "x": bf16("T", shape.hidden),
        "expert_ids": {"type": "I32", "shape": ["T", shape.top_k]},
        "expert_weights": {"type": "F32", "shape": ["T", shape.top_k]},
        "gate_up_weight": bf16("E", 2 * shape.part, shape.hidden, parallel="gate_up_rows"),
        "down_weight": bf16("E", shape.hidden, shape.part, parallel="columns"),
        "routing": {"type": "routing"},
        "rows_x": bf16("R", shape.hidden),
        "gate_up": bf16("R", 2 * shape.part),
        "act": bf16("R", shape.part),
        "down_out": bf16("R", shape.hidden),
        "y": bf16("T", shape.hidden),
    }
