"""The graphs of column- and row-parallel linear layers, as sluicec reads them (graphs/FORMAT.md): those of
graphs/linear, with the sizes of one layer.
"""

import dataclasses

from .graphs import product


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

    @property
    def ins_here(self) -> int:
        """The columns of x at a rank."""
        return self.ins if self.column else self.ins // self.tp

    @property
    def outs_here(self) -> int:
        """The columns of y at a rank."""
        return self.outs // self.tp if self.column else self.outs


def linear_graph(shape: LinearShape) -> dict:
    """The entry "forward" of a layer; a backward is derived from it (`trainable` of compile_graph())."""
    tensors, nodes = _column(shape) if shape.column else _row(shape)
    route = {"name": "route", "op": "route", "inputs": {}, "outputs": {"routing": "routing"}}
    return {
        "format": 1,
        "name": f"{'column' if shape.column else 'row'}_parallel_tp{shape.tp}_{shape.tokens}",
        "symbols": {},
        "limits": {
            "ranks": shape.tp,
            "tp": shape.tp,
            "tokens": shape.tokens,
            "experts": 1,
            "top_k": 1,
            "max_tokens": shape.max_tokens,
        },
        "tensors": {"routing": {"type": "routing"}, **tensors},
        "entries": [
            {
                "name": "forward",
                "inputs": ["x", "weight", *(["bias"] if shape.bias else [])],
                "nodes": [route, *nodes],
                "outputs": ["y"],
            }
        ],
    }


def _bf16(shape: LinearShape, *sizes, parallel: str | None = None) -> dict:
    tensor = {"type": "BF16", "shape": list(sizes)}
    return dict(tensor, parallel=parallel) if parallel and shape.tp > 1 else tensor


def _column(shape: LinearShape) -> tuple[dict, list]:
    tensors = {
        "x": _bf16(shape, "T", shape.ins),
        "weight": _bf16(shape, "E", shape.outs_here, shape.ins, parallel="rows"),
        "rows_x": _bf16(shape, "R", shape.ins),
        "y": _bf16(shape, "R", shape.outs_here, parallel="columns"),
    }
    gather = {
        "name": "gather",
        "op": "dispatch",
        "inputs": {"tokens": "x", "routing": "routing"},
        "outputs": {"rows": "rows_x"},
    }
    multiply = product("product", "rows_x", "weight", "y")
    if shape.bias:
        tensors["bias"] = _bf16(shape, "E", shape.outs_here, parallel="columns")
        multiply["inputs"]["bias"] = "bias"
    return tensors, [gather, multiply]


def _row(shape: LinearShape) -> tuple[dict, list]:
    tensors = {
        "x": _bf16(shape, "R", shape.ins_here, parallel="columns"),
        "weight": _bf16(shape, "E", shape.outs, shape.ins_here, parallel="columns"),
        "terms": _bf16(shape, "R", shape.outs),
        "y": _bf16(shape, "T", shape.outs),
    }
    scatter = {
        "name": "scatter",
        "op": "combine",
        "inputs": {"rows": "terms", "routing": "routing"},
        "outputs": {"tokens": "y"},
    }
    if shape.bias:
        tensors["bias"] = _bf16(shape, shape.outs)
        scatter["inputs"]["bias"] = "bias"
    return tensors, [product("product", "x", "weight", "terms"), scatter]
