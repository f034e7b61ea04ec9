"""The graph of a layer, as sluicec reads it (graphs/FORMAT.md), and the options for compiling it.

Weights are [experts of this rank, out, in]; a gate_up_weight has the rows of the gate first, then the rows of up. With tp
above 1 a rank has a shard of each of its experts: sharding.py. Without a gate it has the rows of up alone.
"""

import dataclasses

from .base.integers import MAX_EXPERTS, MAX_RANKS, MAX_SIZE, MAX_TOKENS, MAX_TOP_K, whole_number
from .encodings.encodings import BF16, Encodings
from .encodings.stored import PLAIN, SQUARE, Stored
from .layers.activations import inputs_of
from .layers.builder import Graph
from .ranks.ranks import dealt

# The names of gradients among the outputs of "backward", by input.
GRADIENTS = {"x": "dx", "expert_weights": "d_expert_weights"}

# The weights of a layer, and what it adds to their products if it has biases.
WEIGHTS = ("gate_up_weight", "down_weight")
BIASES = ("gate_up_bias", "down_bias")

# The tokens of the ranks that share experts: each rank's own, or the same at all of them.
TOKENS = ("own", "same")

# How often a token is sent to a rank that has some of its experts: once for each of them, or once; "auto": rank_rows.py chooses.
ROWS_PER = ("expert", "rank", "auto")

# The largest sizes of a graph.
_MOST = {
    "hidden": MAX_SIZE,
    "intermediate": MAX_SIZE,
    "experts": MAX_EXPERTS,
    "top_k": MAX_TOP_K,
    "ranks": MAX_RANKS,
    "max_tokens": MAX_TOKENS,
    "tp": MAX_RANKS,
}


@dataclasses.dataclass(frozen=True)
class LayerShape:
    """What the programs of a layer depend on: everything except token counts and routing."""

    hidden: int
    intermediate: int
    experts: int  # of all ranks
    top_k: int
    ranks: int = 1
    max_tokens: int = 65536  # per rank and step; memory is taken only as steps need it
    activation: str = "swiglu"  # a name of activations.ACTIVATIONS
    limit: float | None = None  # its limit, if it has one
    tp: int = 1  # ranks that share an expert; rank r has shard r % tp of the experts of group r // tp
    tokens: str = "own"
    rows_per: str = "expert"
    spare: int | None = None  # places for copies of experts; None: expert i is at place i
    encodings: Encodings = BF16
    bias: bool = False  # of both products

    def __post_init__(self):
        for name, most in _MOST.items():
            whole_number("num_experts" if name == "experts" else name, getattr(self, name), 1, most)
        if self.spare is not None:
            whole_number("spare", self.spare, 0, MAX_EXPERTS, ", or None")
        if self.top_k > self.experts:
            raise ValueError(f"top_k is {self.top_k}, expected at most the {self.experts} experts")
        if not isinstance(self.bias, bool):
            raise ValueError(f"bias is {self.bias!r}, expected True or False")
        if self.ranks % self.tp:
            raise ValueError(f"tp is {self.tp}, expected a divisor of the {self.ranks} ranks")
        if self.intermediate % self.tp:
            raise ValueError(f"tp is {self.tp}, expected a divisor of the intermediate size {self.intermediate}")
        self._check_codes()
        self.encodings.check_sizes(hidden=self.hidden, intermediate_columns_of_a_rank=self.part)
        if self.tokens not in TOKENS:
            raise ValueError(f"tokens is {self.tokens!r}, expected 'own' or 'same'")
        if self.rows_per not in ROWS_PER:
            raise ValueError(f"rows_per is {self.rows_per!r}, expected 'expert', 'rank' or 'auto'")
        if self.rows_per == "rank":
            self._check_rows_per_rank()

    def _check_rows_per_rank(self):
        for what, is_there in (
            (f"tp of {self.tp}: a row would be for several ranks", self.tp > 1),
            (f"tokens={self.tokens!r}: ranks that have the same tokens send no rows to each other", self.tokens != "own"),
            (f"spare of {self.spare}: the places of an expert may be at several ranks", self.spare is not None),
            (f"{self.encodings}: rows are sent as bfloat16", "sent=" in self.encodings.text),
            (f"{self.experts} experts for {self.ranks} ranks: each needs one", self.experts < self.ranks),
        ):
            if is_there:
                raise ValueError(f"rows_per='rank' does not go together with {what}; expected rows_per='expert'")

    def _check_codes(self):
        self.encodings.check_names(WEIGHTS)
        for weight, of_sums, sums in zip(WEIGHTS, ("hidden", "intermediate columns of a rank"), (self.hidden, self.part)):
            stored = self.stored(weight)
            if stored.has_squares and self.part % SQUARE:
                raise ValueError(f"intermediate columns of a rank: {self.part}, expected a multiple of {SQUARE} for {stored.name}")
            each = stored.group or 2
            if stored.bits == 4 and sums % each:
                raise ValueError(f"{of_sums}: {sums}, expected a multiple of {each} for {weight} of {stored.name}")

    @property
    def ep(self) -> int:
        """Groups of tp ranks, over which the experts are dealt."""
        return self.ranks // self.tp

    @property
    def is_per_rank(self) -> bool:
        """Whether a step sends a row per token and rank: rank_rows.py."""
        return self.rows_per == "rank" and self.ranks > 1

    def refuse_per_rank(self, call: str):
        """RuntimeError: a step has several parts, and `call` is for steps of one."""
        if self.is_per_rank:
            raise RuntimeError(f"{call} is not possible with rows_per='rank', whose steps have three parts; expected rows_per='expert'")

    @property
    def part(self) -> int:
        """The intermediate columns of a rank."""
        return self.intermediate // self.tp

    @property
    def inputs(self) -> int:
        """The matrices before the activation, whose rows gate_up_weight has."""
        return inputs_of(self.activation)

    @property
    def biases(self) -> tuple[str, ...]:
        return BIASES if self.bias else ()

    @property
    def has_codes(self) -> bool:
        return self.encodings.has_codes

    def stored(self, name: str) -> Stored:
        """What a weight or a bias is in memory."""
        return PLAIN if name in BIASES else self.encodings.stored(name)

    def beside(self, weight: str) -> tuple[str, ...]:
        """The names of what a weight of codes has beside them."""
        return self.stored(weight).beside(weight)

    @property
    def places(self) -> int:
        """Places of experts, which are dealt over the groups."""
        return self.experts + (self.spare or 0)

    def of_sorted_rows(self) -> "LayerShape":
        """That of steps whose tokens are rows of one expert each, as many as the pairs of a step of this shape."""
        return dataclasses.replace(self, top_k=1, max_tokens=min(self.max_tokens * self.top_k, MAX_TOKENS), rows_per="expert")

    def of_rows(self, rank: int) -> "LayerShape":
        """That of the part of a step in which a rank runs its own experts on the rows that it got (rows_per="rank")."""
        own, most = len(self.places_of(rank)), min(self.max_tokens * self.ranks, MAX_TOKENS)
        return dataclasses.replace(self, ranks=1, experts=own, top_k=min(self.top_k, own), max_tokens=most, rows_per="expert")

    def places_of(self, rank: int) -> range:
        """The places of a rank; without `spare` they are its experts."""
        return dealt(self.places, self.ep, rank // self.tp)


def add_product(graph: Graph, name: str, rows: str, weight: str, result: str, **operands: str | None):
    """Adds rows x weight^T, where weights are [E, out, in]. Operands that are None are absent."""
    inputs = {"rows": rows, "weight": weight, **{key: each for key, each in operands.items() if each is not None}}
    graph.add_op("gmm", inputs, {"product": result}, name, transpose=True)


def forward_graph(shape: LayerShape) -> dict:
    """The entry "forward" of a layer; a backward is derived from it (`trainable` of compile_graph())."""
    graph = _tensors(shape)
    gate_up, down = (shape.stored(weight).operands(weight) for weight in WEIGHTS)
    routed_by = ["expert_ids"] if shape.spare is None else ["expert_ids", "placement"]
    if shape.bias:
        gate_up, down = (dict(bias=bias, **each) for bias, each in zip(BIASES, (gate_up, down)))
    inputs = ["x", *routed_by, "expert_weights", *WEIGHTS, *gate_up.values(), *down.values()]
    graph.add_entry("forward", inputs=inputs, outputs=["y"])
    graph.add_op("route", {name: name for name in routed_by}, {"routing": "routing"})
    graph.add_op("dispatch", {"tokens": "x", "routing": "routing"}, {"rows": "rows_x"})
    add_product(graph, "up_proj", "rows_x", "gate_up_weight", "gate_up", **gate_up)
    graph.add_op("activation", {"gate_up": "gate_up"}, {"act": "act"}, kind=shape.activation, limit=shape.limit)
    add_product(graph, "down_proj", "act", "down_weight", "down_out", **down)
    inputs = {"rows": "down_out", "routing": "routing", "weights": "expert_weights"}
    graph.add_op("combine", inputs, {"tokens": "y"})
    return graph.to_dict()


def _tensors(shape: LayerShape) -> Graph:
    """A graph with the tensors of a layer."""
    shared = shape.tp > 1
    mesh = {"tp": shape.tp, "tokens": shape.tokens} if shared else {}
    sizes = {name: getattr(shape, name) for name in ("ranks", "experts", "top_k", "max_tokens")}
    name = "moe_layer" + "_bias" * shape.bias + (f"_tp{shape.tp}_{shape.tokens}" if shared else "") + shape.encodings.suffix
    graph = Graph(name, **sizes, **mesh, spare=shape.spare or None)

    def weight(name: str, *sizes, parallel: str | None, type: str):
        graph.add_tensor(name, type, "E", *sizes, parallel=parallel if shared else None)

    hidden, columns, both = shape.hidden, shape.part, shape.inputs * shape.part
    before = "gate_up_rows" if shape.inputs == 2 else "rows"
    gate_up, down = (shape.stored(weight) for weight in WEIGHTS)
    graph.add_tensor("x", "BF16", "T", hidden)
    graph.add_tensor("expert_ids", "I32", "T", shape.top_k)
    graph.add_tensor("expert_weights", "F32", "T", shape.top_k)
    weight("gate_up_weight", both, hidden // gate_up.per_element, parallel=before, type=gate_up.element)
    weight("down_weight", hidden, columns // down.per_element, parallel="columns", type=down.element)
    for name in gate_up.beside("gate_up_weight"):
        sizes = gate_up.sizes_beside(name, both, hidden)
        weight(name, *sizes, parallel=before if sizes[0] > 1 else None, type=gate_up.type_beside(name))
    for name in down.beside("down_weight"):
        sizes = down.sizes_beside(name, hidden, columns)
        weight(name, *sizes, parallel="columns" if sizes[-1] > 1 else None, type=down.type_beside(name))
    if shape.bias:
        weight("gate_up_bias", both, parallel=before.replace("rows", "columns"), type="BF16")
        weight("down_bias", hidden, parallel=None, type="BF16")
    if shape.spare is not None:
        graph.add_tensor("placement", "I32", shape.places)
    graph.add_tensor("routing", "routing")
    for rows, size in {"rows_x": hidden, "gate_up": both, "act": columns, "down_out": hidden}.items():
        graph.add_tensor(rows, "BF16", "R", size)
    return graph.add_tensor("y", "BF16", "T", hidden)
