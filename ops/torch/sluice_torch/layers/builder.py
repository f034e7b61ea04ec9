"""Graphs for sluicec, built in Python: the JSON of graphs/FORMAT.md, with its names."""

import json
import os
from pathlib import Path


class Graph:
    """A graph file in the making. graphs/FORMAT.md has the names of ops, operands and fields, and the defaults; what
    the compiler checks is not checked here. Fields that are None are absent. The add_ methods return the graph.

    `limits` are `ranks` (1 if absent), `experts`, `top_k`, `max_tokens` and others of that table: numbers, or strings with
    symbols.
    """

    def __init__(self, name: str = "graph", doc: str | None = None, **limits):
        self.name, self.doc = name, doc
        self.limits = _present({"ranks": 1, **limits})
        self.symbols, self.tensors, self._entries = {}, {}, {}

    def add_symbol(self, name: str, default, **fields) -> "Graph":
        """A symbol with `min` and `max`, or `one_of`. ValueError: there is one of this name."""
        return self._add("symbol", self.symbols, name, {"default": default, **fields})

    def add_tensor(self, name: str, type: str, *shape, when=None, **fields) -> "Graph":
        """A tensor; `when` is the field `if`. ValueError: there is one of this name."""
        made = {"type": type, "shape": list(shape) or None, "if": when, **fields}
        return self._add("tensor", self.tensors, name, made)

    def add_entry(self, name: str, **fields) -> "Graph":
        """An entry, to which later ops are added; without it they belong to an entry "forward". `fields` may give
        `inputs`, `outputs`, `after`, `save` and `saved`. Without `inputs` they are the tensors that no op writes, and without
        `outputs` those that no op of the entry reads and that are not saved, both in the order in which they are used.
        ValueError: there is one of this name."""
        return self._add("entry", self._entries, name, {"nodes": {}, **fields})

    def add_op(self, op: str, inputs: dict, outputs: dict, name: str | None = None, **fields) -> "Graph":
        """A node: `inputs` and `outputs` are tensors by the op's name for them, `name` is the op's name unless given.
        ValueError: there is a node of this name; a tensor that was not added."""
        name = op if name is None else name
        for operand, tensor in (*inputs.items(), *outputs.items()):
            if tensor not in self.tensors:
                added = ", ".join(self.tensors) or "none"
                raise ValueError(f"{operand} of node {name!r} is tensor {tensor!r}, expected one that was added: {added}")
        if not self._entries:
            self.add_entry("forward")
        entry = list(self._entries.values())[-1]
        return self._add("node", entry["nodes"], name, {"op": op, **fields, "inputs": inputs, "outputs": outputs})

    def _add(self, kind: str, table: dict, name: str, fields: dict) -> "Graph":
        if name in table:
            raise ValueError(f"{kind} {name!r} is given twice")
        table[name] = _present(fields)
        return self

    def to_dict(self) -> dict:
        """What the file contains."""
        entries = [self._entry(name, fields) for name, fields in self._entries.items()]
        tables = {"symbols": self.symbols, "limits": self.limits, "tensors": self.tensors, "entries": entries}
        return _present({"format": 1, "name": self.name, "doc": self.doc, **tables})

    def _entry(self, name: str, fields: dict) -> dict:
        nodes = [{"name": node, **each} for node, each in fields["nodes"].items()]
        read = _used("inputs", nodes)
        written = {tensor for entry in self._entries.values() for tensor in _used("outputs", entry["nodes"].values())}
        kept = {*fields.get("save", ()), *read}
        derived = {
            "inputs": [tensor for tensor in read if tensor not in written],
            "outputs": [tensor for tensor in _used("outputs", nodes) if tensor not in kept],
        }
        return {"name": name, **derived, **fields, "nodes": nodes}

    def save(self, path: str | os.PathLike):
        """Writes the file. OSError: it cannot be written."""
        path = Path(path)
        new = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            new.write_text(json.dumps(self.to_dict(), indent=2) + "\n")
            os.replace(new, path)
        finally:
            new.unlink(missing_ok=True)

    def compile(self, sets: dict | None = None, **options) -> str:
        """The path of its program: cache.compile_graph(), with its options and errors."""
        from .. import cache

        return cache.compile_graph(self.to_dict(), sets, **options)


def _present(fields: dict) -> dict:
    return {name: value for name, value in fields.items() if value is not None}


def _used(side: str, nodes) -> list[str]:
    """The tensors that nodes read or write, each once, in order."""
    return list(dict.fromkeys(tensor for node in nodes for tensor in node[side].values()))
