"""sluice_torch.Graph builds the JSON of graph files."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import sluice_torch
from sluice_torch import cache

GRAPHS = cache.find_graph("moe_ffn/forward.json").parents[1]


def page():
    """The graph of the example in FORMAT.md, and the Python text that builds it."""
    text = (GRAPHS / "FORMAT.md").read_text()
    return json.loads(re.search(r"```json\n(.*?)```", text, re.S)[1]), re.search(r"```python\n(.*?)```", text, re.S)[1]


def rebuilt(given):
    """The graph of a file, as a program that calls the methods would build it."""
    graph = sluice_torch.Graph(given["name"], given.get("doc"), **given["limits"])
    for name, fields in given["symbols"].items():
        graph.add_symbol(name, **fields)
    for name, fields in given["tensors"].items():
        fields = dict(fields)
        graph.add_tensor(name, fields.pop("type"), *fields.pop("shape", ()), when=fields.pop("if", None), **fields)
    for entry in given["entries"]:
        graph.add_entry(**{name: value for name, value in entry.items() if name != "nodes"})
        for node in entry["nodes"]:
            graph.add_op(**node)
    return graph


def one_product(**split):
    graph = sluice_torch.Graph(experts=8, top_k=2, max_tokens=128)
    for name, type, *shape in (
        ("x", "BF16", "T", 64),
        ("ids", "I32", "T", 2),
        ("weight", "BF16", "E", 64, 32),
        ("routing", "routing"),
        ("rows", "BF16", "R", 64),
        ("product", "BF16", "R", 32),
        ("y", "BF16", "T", 32),
    ):
        graph.add_tensor(name, type, *shape)
    graph.add_op("route", {"expert_ids": "ids"}, {"routing": "routing"})
    graph.add_op("dispatch", {"tokens": "x", "routing": "routing"}, {"rows": "rows"}, **split)
    graph.add_op("gmm", {"rows": "rows", "weight": "weight"}, {"product": "product"})
    return graph.add_op("combine", {"rows": "product", "routing": "routing"}, {"tokens": "y"})


def decisions(graph, tile):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "graph.json"
        graph.save(path)
        command = [cache.find_compiler(), path, f"--set=tile={tile}", "--explain=json"]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)["decisions"]


class GraphTest(unittest.TestCase):
    def test_every_graph_file_can_be_built(self):
        files = sorted(GRAPHS.glob("*/*.json"))
        self.assertGreater(len(files), 12)
        for file in files:
            given = json.loads(file.read_text())
            if "format" in given:  # the reference plan has data of its own there
                self.assertEqual(rebuilt(given).to_dict(), given, file)

    def test_the_example_of_the_page(self):
        expected, text = page()
        with tempfile.TemporaryDirectory() as folder:
            there = os.getcwd()
            os.chdir(folder)
            try:
                exec(text, {"sluice_torch": sluice_torch})
                saved = json.loads(pathlib.Path("one_product.json").read_text())
                self.assertEqual(os.listdir(), ["one_product.json"])
            finally:
                os.chdir(there)
        names = {"gmm": "up"}
        for node in expected["entries"][0]["nodes"]:
            self.assertEqual(node["name"], names.get(node["op"], node["op"]))
        self.assertEqual(saved, expected)

    def test_inputs_and_outputs_follow_from_the_ops(self):
        entry = one_product().to_dict()["entries"][0]
        self.assertEqual(entry["name"], "forward")
        self.assertEqual(entry["inputs"], ["ids", "x", "weight"])
        self.assertEqual(entry["outputs"], ["y"])

    def test_split_sizes_are_symbols(self):
        graph = one_product(split={"space": "rows", "size": "tile"}).add_symbol("tile", 64, min=0, max=1024)
        for tile, why in ((32, "declared in the graph"), (64, "declared in the graph"), (0, "next best")):
            slots = next(each for each in decisions(graph, tile) if re.fullmatch(r"slots of \d+ rows", each["what"]))
            self.assertIn(why, slots["why"])
            if tile:
                self.assertEqual(slots["what"], f"slots of {tile} rows")
        with self.assertRaisesRegex(RuntimeError, "node 'dispatch' cuts 'rows' by 40, expected a multiple of 16"):
            graph.compile({"tile": 40})
        with self.assertRaisesRegex(RuntimeError, "symbol 'tile' is set to 2000, expected 0 to 1024"):
            graph.compile({"tile": 2000})

    def test_programs_are_compiled(self):
        self.assertTrue(pathlib.Path(one_product().compile(trainable=("x", "weight"))).is_file())
        with self.assertRaisesRegex(RuntimeError, "node 'gmm': weight is .8 x 65 x 32 x bf16., expected .* C = 64"):
            graph = one_product()
            graph.tensors["weight"]["shape"] = ["E", 65, 32]
            graph.compile()

    def test_what_is_given_twice_or_unknown_is_refused(self):
        graph = one_product().add_symbol("a", 1, min=1, max=2)
        for call, said in (
            (lambda: graph.add_symbol("a", 2, min=1, max=2), "symbol 'a' is given twice"),
            (lambda: graph.add_tensor("x", "F32", "T"), "tensor 'x' is given twice"),
            (lambda: graph.add_entry("forward"), "entry 'forward' is given twice"),
            (lambda: graph.add_op("gmm", {}, {}), "node 'gmm' is given twice"),
            (
                lambda: graph.add_op("add", {"a": "x", "b": "z"}, {"sum": "y"}),
                "b of node 'add' is tensor 'z', expected one that was added: x, ids, weight, routing, rows, product, y",
            ),
        ):
            with self.assertRaisesRegex(ValueError, said):
                call()
        self.assertEqual(graph.add_tensor("z", "F32", "T").to_dict()["entries"], one_product().to_dict()["entries"])


if __name__ == "__main__":
    unittest.main()
