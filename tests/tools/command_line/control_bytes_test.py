"""usage: control_bytes_test.py SLUICE SLUICE_BENCH SLUICE_OPT SLUICEC   the content of a file does not move a cursor

Puts escape sequences wherever a file of any format has a string. The output of each tool, a message or a result, must have
no control characters except line feed and tab.
"""
import copy
import json
import os
import re
import struct
import subprocess
import sys
import unittest

SLUICE, BENCH, OPT, SLUICEC = sys.argv[1:5]
GRAPHS = "graphs/moe_ffn"
SIZES = [f"--set={name}" for name in ("ep=1", "experts=4", "top_k=2", "hidden=16", "intermediate=16", "max_tokens=8")]
# clears the screen, rings, goes back, and the same as C1
NASTY = "\x1b[2J\x07\x08\r\x9b2J"
MOST = 25  # places of one file that are tried


def spread(items):
    """At most MOST of them, spread from beginning to end."""
    return items[::max(1, -(-len(items) // MOST))]


def places(tree, path=()):
    """The strings of a JSON tree: paths to values, and to keys, which end in None."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield (*path, key, None)
            yield from places(value, (*path, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from places(value, (*path, index))
    elif isinstance(tree, str):
        yield path


def spoil(tree, path):
    """A copy whose string at `path` contains escape sequences."""
    tree = copy.deepcopy(tree)
    is_key = path[-1] is None
    steps = path[:-2] if is_key else path[:-1]
    parent = tree
    for step in steps:
        parent = parent[step]
    if is_key:
        parent[path[-2] + NASTY] = parent.pop(path[-2])
    else:
        parent[path[-1]] += NASTY
    return tree


class ControlBytes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = os.environ["TEST_TMPDIR"]
        cls.messages = 0

    def path(self, name, content=None):
        path = os.path.join(self.folder, name)
        if content is not None:
            with open(path, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
        return path

    def run_tool(self, *command):
        result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                timeout=120)
        self.assertGreaterEqual(result.returncode, 0, f"{command} was ended by a signal")
        for stream in (result.stdout, result.stderr):
            text = stream.decode("utf-8", "surrogateescape")
            found = re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", text)
            around = ascii(text[max(0, found.start() - 60):found.end() + 20]) if found else ""
            self.assertIsNone(found, f"{command} printed {around}")
        type(self).messages += result.returncode != 0
        return result

    def compile(self, name, *options):
        path = self.path(name)
        result = self.run_tool(SLUICEC, f"{GRAPHS}/train.json", *SIZES, *options, "-o", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        return path

    def test_strings_of_a_graph_file(self):
        with open(f"{GRAPHS}/train.json", encoding="utf-8") as file:
            graph = json.load(file)
        for place in spread(list(places(graph))):
            path = self.path("nasty.json", json.dumps(spoil(graph, place)))
            self.run_tool(SLUICEC, path, *SIZES, "--explain", "-o", self.path("nasty.slp"))
        self.run_tool(SLUICEC, self.path("nasty.json", '{"a' + NASTY + '"'), "--explain")
        self.run_tool(SLUICEC, self.path("nasty.json", b'{"\xff\x1b'), "--explain")

    def test_strings_of_a_device_model_and_of_an_expectation(self):
        with open("targets/cpu.json", encoding="utf-8") as file:
            target = json.load(file)
        for place in spread(list(places(target))):
            path = self.path("nasty_target.json", json.dumps(spoil(target, place)))
            self.run_tool(SLUICEC, f"{GRAPHS}/train.json", *SIZES, "--target", path, "--explain")
        self.run_tool(BENCH, "--case", "tiny", "--repeat", "1", "--no-scaling", "--target", self.path("nasty_target.json"))
        self.run_tool(SLUICEC, f"{GRAPHS}/train.json", *SIZES, "--explain", "--expect",
                      self.path("expect.json", json.dumps([NASTY])))

    def test_strings_of_mlir(self):
        moe = self.run_tool(SLUICEC, f"{GRAPHS}/train.json", *SIZES, "--emit=moe").stdout.decode()
        ends = [match.end() - 1 for match in re.finditer(r'"[^"\n]*"', moe)]
        self.assertGreater(len(ends), 20)
        for nasty in (NASTY, "\\1B[2J\\07", "\\C2\\9B"):
            for end in spread(ends):
                path = self.path("nasty.mlir", moe[:end] + nasty + moe[end:])
                self.run_tool(SLUICEC, path, "--explain", "-o", self.path("nasty.slp"))
            self.run_tool(OPT, path)
            self.run_tool(OPT, self.path("nasty.mlir", f"// {nasty}\nmodule {{ \"a{nasty}\"() : () -> () }}"))

    def test_names_of_a_program(self):
        good = self.compile("good.slp")
        text = self.run_tool(SLUICE, "dump", good).stdout.decode()
        names = sorted(set(re.findall(r"^(?:program|target|options|symbol|region|buffer|entry|space|event|family|lane) "
                                      r"(?:[\w.]+/)?([\w.]+|\"[^\"]*\")", text, re.M)))
        self.assertGreater(len(names), 20)
        escaped = "".join(f"\\x{byte:02x}" for byte in NASTY.encode())
        for name in spread(names):
            bare = name.strip('"')
            spoiled = re.sub(rf'(?<![\w."]){re.escape(name)}(?![\w."])', lambda _, bare=bare: f'"{bare}{escaped}"', text)
            self.assertNotEqual(spoiled, text)
            self.check_program(good, spoiled)
        self.check_program(good, text.replace("source \"", f'source "{escaped}'))
        self.run_tool(SLUICE, "as", self.path("nasty.txt", f"program {NASTY}"), "-o", self.path("nasty.slp"))
        self.run_tool(SLUICE, "as", self.path("nasty.txt", text.replace("buffer", "buffer\x1b[2J")), "-o", self.path("nasty.slp"))

    def check_program(self, good, text):
        path = self.path("nasty.slp")
        if os.path.exists(path):
            os.unlink(path)
        self.run_tool(SLUICE, "as", self.path("nasty.txt", text), "-o", path)
        if not os.path.exists(path):
            return
        self.run_tool(SLUICE, "verify", path)
        self.run_tool(SLUICE, "dump", path)
        self.run_tool(SLUICE, "dump", path, "--show", "header,families,buffers")
        self.run_tool(SLUICE, "dump", path, "--format", "json")
        self.run_tool(SLUICE, "diff", good, path)
        self.run_tool(SLUICE, "run", path, "--seed", "1")

    def test_names_of_a_safetensors_file(self):
        program = self.compile("good.slp")
        inputs, outputs = self.path("in.safetensors"), self.path("out.safetensors")
        self.run_tool(SLUICE, "make-inputs", program, "--out", inputs)
        with open(inputs, "rb") as file:
            content = file.read()
        length = struct.unpack("<Q", content[:8])[0]
        header, data = json.loads(content[8:8 + length]), content[8 + length:]
        header["__metadata__"] = {"a": "b"}
        for place in list(places(header)):
            spoiled = json.dumps(spoil(header, place)).encode()
            path = self.path("nasty.safetensors", struct.pack("<Q", len(spoiled)) + spoiled + data)
            self.run_tool(SLUICE, "run", program, "--in", path, "--out", outputs)
            self.run_tool(SLUICE, "check", program, "--in", inputs, "--out", path)
        for spoiled in (NASTY.encode(), b'{"\xff\x1b": 1}', ('{"' + NASTY + '": 1}').encode()):
            path = self.path("nasty.safetensors", struct.pack("<Q", len(spoiled)) + spoiled)
            self.run_tool(SLUICE, "run", program, "--in", path, "--out", outputs)

    @classmethod
    def tearDownClass(cls):
        # most of these files are refused: else nothing was tried
        assert cls.messages > 80, cls.messages


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
