"""The graphs of column- and row-parallel linear layers, as sluicec reads them (graphs/FORMAT.md): the graphs of graphs/linear,
with the sizes of one layer.
"""

import dataclasses

from ..base.integers import MAX_TOKENS, whole_number
from ..encodings.encodings import BF16, Encodings
from ..graphs import add_product
from .builder import Graph


@dataclasses.dataclass(frozen=True)
class LinearShape:
    """What the programs of a linear layer depend on: everything except token counts."""

    column: bool  # column parallel; else row parallel
    ins: int  # of all ranks
    outs: int
    tp: int = 1
    tokens: str = "own"  # "same": all ranks have the same tokens outside the layer
    bias: bool = False
    max_tokens: int = 65536  # per rank and step
    encodings: Encodings = BF16

    def __post_init__(self):
        whole_number("max_tokens", self.max_tokens, 1, MAX_TOKENS)
        self.encodings.check_names(("weight",))
        if self.encodings.has_codes:
            raise ValueError(f"{self.encodings}: weights of a linear layer are trained, expected an encoding that products round to")
        self.encodings.check_sizes(columns_of_x_at_a_rank=self.ins_here, columns_of_y_at_a_rank=self.outs_here)

    @property
    def ins_here(self) -> int:
        """The columns of x at a rank."""
        return self.ins if self.column else self.ins // self.tp

    @property
    def outs_here(self) -> int:
        """The columns of y at a rank."""
        return self.outs // self.tp if self.column else self.outs

    def cut(self, part: str) -> str | None:
        """The field `parallel` of a tensor of which each rank has a part."""
        return part if self.tp > 1 else None


def linear_graph(shape: LinearShape) -> dict:
    """The entry "forward" of a layer; a backward is derived from it (`trainable` of compile_graph())."""
    sizes = {"ranks": shape.tp, "tp": shape.tp, "tokens": shape.tokens, "max_tokens": shape.max_tokens}
    kind = "column" if shape.column else "row"
    graph = Graph(f"{kind}_parallel_tp{shape.tp}_{shape.tokens}{shape.encodings.suffix}", experts=1, top_k=1, **sizes)
    graph.add_tensor("routing", "routing")
    graph.add_entry("forward", inputs=["x", "weight", *(["bias"] if shape.bias else [])], outputs=["y"])
    graph.add_op("route", {}, {"routing": "routing"})
    (_add_column if shape.column else _add_row)(graph, shape)
    return graph.to_dict()


def _add_column(graph: Graph, shape: LinearShape):
    graph.add_tensor("x", "BF16", "T", shape.ins)
    graph.add_tensor("weight", "BF16", "E", shape.outs_here, shape.ins, parallel=shape.cut("rows"))
    graph.add_tensor("rows_x", "BF16", "R", shape.ins)
    graph.add_tensor("y", "BF16", "R", shape.outs_here, parallel=shape.cut("columns"))
    if shape.bias:
        graph.add_tensor("bias", "BF16", "E", shape.outs_here, parallel=shape.cut("columns"))
    graph.add_op("dispatch", {"tokens": "x", "routing": "routing"}, {"rows": "rows_x"}, "gather")
    add_product(graph, "product", "rows_x", "weight", "y", bias="bias" if shape.bias else None)


def _add_row(graph: Graph, shape: LinearShape):
    graph.add_tensor("x", "BF16", "R", shape.ins_here, parallel=shape.cut("columns"))
    graph.add_tensor("weight", "BF16", "E", shape.outs, shape.ins_here, parallel=shape.cut("columns"))
    graph.add_tensor("terms", "BF16", "R", shape.outs)
    graph.add_tensor("y", "BF16", "T", shape.outs)
    inputs = {"rows": "terms", "routing": "routing"}
    if shape.bias:
        graph.add_tensor("bias", "BF16", shape.outs)
        inputs["bias"] = "bias"
    add_product(graph, "product", "x", "weight", "terms")
    graph.add_op("combine", inputs, {"tokens": "y"}, "scatter")
