"""usage: rooms_test.py FILE...   the files of ops/torch/sluice_torch: a room imports only itself and rooms before it"""
import ast
import os
import re
import sys
import unittest

PACKAGE = "sluice_torch"
# The rooms in order, each with the modules at the top of the package, which users import by name, that count as its own.
ROOMS = {
    "base": ("cache",),
    "ranks": ("exchange",),
    "encodings": ("recipe",),
    "layers": ("graphs", "lora", "te"),
    "replacing": (),
    "weights": ("convert", "state"),
    "callers": ("fused_a2a", "hyper_parallel", "kt"),
}
ORDER = list(ROOMS)
PUBLIC = {module: room for room, modules in ROOMS.items() for module in modules}


def read_package():
    """The sources by their paths in the package."""
    sources = {}
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            sources[path.partition(f"/{PACKAGE}/")[2]] = file.read()
    return sources


def room_of(first):
    """The room of a name in the package, that of a room or of a public module; None: it is something else."""
    return first if first in ROOMS else PUBLIC.get(first)


def read_imports(path, source):
    """(line, name in the package) of each import, those in functions included: layers.moe, or MoE for what the package exports."""
    folder = [part for part in os.path.dirname(path).split("/") if part]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            before = [PACKAGE, *folder][: len(folder) + 2 - node.level] if node.level else []
            module = before + (node.module.split(".") if node.module else [])
            modules = [[*module, alias.name] for alias in node.names]
        else:
            continue
        for module in modules:
            if module[0] == PACKAGE and len(module) > 1:
                yield node.lineno, ".".join(module[1:3] if module[1] in ROOMS else module[1:2])


def find_mistakes(sources):
    for path, source in sources.items():
        if path == "__init__.py":
            continue
        own = room_of(path.partition("/")[0].removesuffix(".py"))
        if own is None:
            yield f"{path}: is in no room: move it into one of {', '.join(ROOMS)}"
            continue
        for line, name in read_imports(path, source):
            room = room_of(name.partition(".")[0])
            if room is None:
                yield f"{path}:{line}: imports {name} from the package itself: import it from its module"
            elif ORDER.index(room) > ORDER.index(own):
                yield f"{path}:{line}: {own} imports {name} of {room}, which comes after it"


class RoomsTest(unittest.TestCase):
    def setUp(self):
        self.sources = read_package()

    def test_every_room_has_modules(self):
        found = {path.partition("/")[0] for path in self.sources if not path.endswith("__init__.py")}
        self.assertEqual(found, {*ROOMS, *(f"{module}.py" for module in PUBLIC)})

    def test_rooms_import_only_rooms_before_them(self):
        self.assertEqual(list(find_mistakes(self.sources)), [])

    def test_a_room_names_its_modules(self):
        for room in ROOMS:
            text = ast.get_docstring(ast.parse(self.sources[f"{room}/__init__.py"]), clean=False)
            modules = [path[len(room) + 1 : -3] for path in sorted(self.sources) if path.startswith(f"{room}/")]
            modules.remove("__init__")
            self.assertEqual(re.findall(r"^    (\w+) +\S", text, re.M), modules, room)

    def test_an_import_against_the_order_is_found(self):
        for path, source, expected in (
            ("encodings/codes.py", "import torch\n\nfrom ..layers import sharding", "codes.py:3: encodings imports layers.sharding of layers"),
            ("base/library.py", "def load():\n    from ..ranks.ranks import Group", "library.py:2: base imports ranks.ranks of ranks"),
            ("layers/moe.py", "import sluice_torch.weights.loading", "moe.py:1: layers imports weights.loading of weights"),
            ("ranks/pairs.py", "from sluice_torch.encodings.codes import quantize", "pairs.py:1: ranks imports encodings.codes of encodings"),
            ("replacing/replace.py", "from .. import lora, state", "replace.py:1: replacing imports state of weights"),
            ("cache.py", "from . import graphs", "cache.py:1: base imports graphs of layers"),
            ("recipe.py", "from .layers.moe import MoE", "recipe.py:1: encodings imports layers.moe of layers"),
            ("weights/models.py", "from .. import replace_moe", "models.py:1: imports replace_moe from the package itself"),
            ("moe.py", "", "moe.py: is in no room"),
        ):
            (found,) = find_mistakes({path: source})
            self.assertIn(expected, found)

    def test_an_import_in_the_order_is_none(self):
        for path, source in (
            ("layers/moe.py", "from .. import cache, graphs, lora\nfrom ..ranks import ranks\nfrom . import sharding\nfrom .amax import x"),
            ("callers/styles.py", "import torch.layers\nfrom ..layers.moe import MoE\nfrom sluice_torch.weights import models"),
            ("kt.py", "from .callers.finetune import FineTuning\nimport json"),
            ("__init__.py", "from .callers import finetune"),
        ):
            self.assertEqual(list(find_mistakes({path: source})), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
