"""The cache of compiled programs: one compilation, however many processes request it at once and however they end."""

import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

from sluice_torch import cache, graphs
from sluice_torch.layers.activations import ACTIVATIONS, LIMITED

SHAPE = graphs.LayerShape(hidden=64, intermediate=32, experts=8, top_k=2)

# A process that asks for the program of SHAPE and prints its path.
ASK = """
import sys
from sluice_torch import cache, graphs
print(cache.compile_graph(graphs.forward_graph(graphs.LayerShape(hidden=64, intermediate=32, experts=8, top_k=2)),
                          trainable=("x",)))
"""


def compile_shape(**options):
    return cache.compile_graph(graphs.forward_graph(SHAPE), **options)


class CacheTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.before = dict(os.environ)
        self.addCleanup(self.restore)
        self.real = cache.find_compiler()
        # sluicec never moves in this test, so that a compiler in between finds its device models
        os.environ["SLUICE_TARGETS"] = os.path.dirname(cache.find_target(self.real, "cpu"))
        os.environ["SLUICE_CACHE"] = str(self.folder / "cache")

    def restore(self):
        os.environ.clear()
        os.environ.update(self.before)

    def counting_compiler(self, before=""):
        """Puts a script before sluicec that adds a line to a file for each call."""
        script = self.folder / "counting"
        script.write_text(f'#!/bin/bash\necho call >> {self.folder}/calls\n{before}\nexec {self.real} "$@"\n')
        script.chmod(0o755)
        os.environ["SLUICEC"] = str(script)

    def calls(self):
        file = self.folder / "calls"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def start(self, code=ASK):
        return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, process):
        out, err = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 0, err)
        return out.strip()

    def test_a_second_request_finds_the_program(self):
        before = cache.compilations()
        first = compile_shape()
        self.assertEqual(first, compile_shape())
        self.assertEqual(cache.compilations(), before + 1)
        note = json.loads(pathlib.Path(first).with_suffix(".json").read_text())
        self.assertEqual(note["graph"], graphs.forward_graph(SHAPE))

    def test_every_option_makes_a_program_of_its_own(self):
        paths = [
            compile_shape(),
            compile_shape(trainable=("x",)),
            compile_shape(trainable=("x", "down_weight")),
            compile_shape(trainable=("x", "down_weight"), grads="BF16"),
            compile_shape(trainable=("x", "down_weight"), accumulate=True),
            compile_shape(trainable=("x", "down_weight"), keep="minimal"),
            compile_shape(options=("--slot-rows=64",)),
        ]
        self.assertEqual(len(set(paths)), len(paths))

    def test_another_compiler_or_device_model_compiles_again(self):
        first = compile_shape()
        self.counting_compiler()
        self.assertNotEqual(first, compile_shape())
        models = self.folder / "models"
        shutil.copytree(os.environ["SLUICE_TARGETS"], models)
        os.environ["SLUICE_TARGETS"] = str(models)
        second = compile_shape()
        model = models / "cpu.json"
        os.chmod(model, stat.S_IRUSR | stat.S_IWUSR)
        model.write_text(model.read_text() + " ")
        self.assertNotEqual(second, compile_shape())

    def test_four_processes_at_once_compile_once(self):
        self.counting_compiler("sleep 0.3")
        processes = [self.start() for _ in range(4)]
        paths = {self.finish(process) for process in processes}
        self.assertEqual(len(paths), 1)
        self.assertEqual(self.calls(), 1)

    def test_a_killed_process_leaves_nothing_that_hinders_the_next(self):
        self.counting_compiler("sleep 1")
        first = self.start()
        waiting = None
        try:
            end = time.monotonic() + 60
            while self.calls() == 0 and time.monotonic() < end:
                time.sleep(0.01)
            waiting = self.start()
            os.kill(first.pid, signal.SIGKILL)
            first.communicate()
            path = pathlib.Path(self.finish(waiting))
        finally:
            for process in filter(None, (first, waiting)):
                process.kill()
                process.communicate()
        self.assertEqual(self.calls(), 2)
        left = {file.name for file in path.parent.iterdir() if not file.name.startswith("lock-")}
        self.assertEqual(left, {path.name, path.with_suffix(".json").name})

    def test_a_damaged_program_is_compiled_again(self):
        self.counting_compiler()
        path = pathlib.Path(self.finish(self.start()))
        good = path.read_bytes()
        for damage in (good[:100], b"", good[:-1] + bytes([good[-1] ^ 1]), None):
            path.unlink()
            if damage is not None:
                path.write_bytes(damage)
            before = self.calls()
            self.assertEqual(self.finish(self.start()), str(path))
            self.assertEqual(path.read_bytes(), good)
            self.assertEqual(self.calls(), before + 1)
        path.with_suffix(".json").write_text("{")
        self.finish(self.start())
        self.assertEqual(self.calls(), 6)

    def test_a_program_that_vanishes_is_compiled_again_by_the_same_process(self):
        path = compile_shape()
        os.unlink(path)
        self.assertEqual(compile_shape(), path)
        self.assertTrue(os.path.exists(path))

    def test_a_folder_that_cannot_be_written_is_named(self):
        (self.folder / "file").write_text("")
        os.environ["SLUICE_CACHE"] = str(self.folder / "file" / "cache")
        with self.assertRaisesRegex(RuntimeError, "file/cache cannot be written: Not a directory; set SLUICE_CACHE"):
            compile_shape()

    def test_what_the_compiler_says_is_passed_on(self):
        graph = graphs.forward_graph(SHAPE)
        graph["limits"]["top_k"] = 99
        with self.assertRaisesRegex(RuntimeError, "graph.json:1:.*error: .*99"):
            cache.compile_graph(graph)
        self.assertEqual([file.name for file in cache.folder().iterdir() if "lock-" not in file.name], [])
        with self.assertRaisesRegex(RuntimeError, "no_such_weight"):
            compile_shape(trainable=("no_such_weight",))

    def test_a_compiler_that_is_not_there_is_named(self):
        os.environ["SLUICEC"] = "/nowhere/sluicec"
        with self.assertRaisesRegex(RuntimeError, "SLUICEC is '/nowhere/sluicec'"):
            compile_shape()

    def test_device_models_are_found_where_the_compiler_looks(self):
        model = os.path.join(os.environ.pop("SLUICE_TARGETS"), "cpu.json")
        compiler = self.folder / "prefix" / "bin" / "sluicec"
        for place in ("bin/targets", "targets", "share/sluice/targets", "bin/sluicec.runfiles/sluice/targets"):
            found = self.folder / "prefix" / place / "cpu.json"
            found.parent.mkdir(parents=True)
            shutil.copyfile(model, found)
            self.assertEqual(cache.find_target(str(compiler), "cpu"), str(found))
            found.unlink()
        self.assertEqual(cache.find_target(str(compiler), "cpu"), "cpu")

    def test_a_compiler_that_was_copied_elsewhere_has_the_shipped_device_models_inside(self):
        del os.environ["SLUICE_TARGETS"]
        os.environ["SLUICEC"] = str(shutil.copy(self.real, self.folder / "sluicec"))
        self.assertTrue(compile_shape().endswith(".slp"))
        with self.assertRaisesRegex(RuntimeError, "unknown target 'gpu', available: .*cpu"):
            compile_shape(target="gpu")

    def test_the_folder_follows_the_environment(self):
        self.assertEqual(cache.folder(), self.folder / "cache")
        del os.environ["SLUICE_CACHE"]
        os.environ["XDG_CACHE_HOME"] = "/x"
        self.assertEqual(cache.folder(), pathlib.Path("/x/sluice"))
        del os.environ["XDG_CACHE_HOME"]
        os.environ["HOME"] = "/home/me"
        self.assertEqual(cache.folder(), pathlib.Path("/home/me/.cache/sluice"))


class GraphsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder, True)
        os.environ["SLUICE_CACHE"] = self.folder

    def test_every_activation_compiles_with_and_without_a_backward(self):
        for activation in ACTIVATIONS:
            limit = 7.0 if activation in LIMITED else None
            shape = graphs.LayerShape(64, 32, 8, 2, activation=activation, limit=limit)
            for trainable in ((), ("x",), ("x", "expert_weights", "gate_up_weight", "down_weight")):
                with self.subTest(activation=activation, trainable=trainable):
                    cache.compile_graph(graphs.forward_graph(shape), trainable=trainable)

    def test_more_tokens_do_not_make_a_larger_program(self):
        sizes = []
        for tokens in (4096, 65536, 1 << 22):
            shape = graphs.LayerShape(2048, 768, 128, 8, max_tokens=tokens)
            sizes.append(os.path.getsize(cache.compile_graph(graphs.forward_graph(shape))))
        self.assertLess(max(sizes), 1.2 * min(sizes))

    def test_wrong_values_are_named(self):
        for values, message in (
            ({"hidden": 0}, "hidden is 0"),
            ({"top_k": 9}, "top_k is 9, expected at most the 8 experts"),
        ):
            with self.subTest(values), self.assertRaisesRegex(ValueError, message):
                graphs.LayerShape(**{"hidden": 64, "intermediate": 32, "experts": 8, "top_k": 2, **values})

    def test_experts_that_ranks_do_not_divide_are_dealt_like_in_programs(self):
        shape = graphs.LayerShape(64, 32, 7, 2, ranks=3)
        self.assertEqual([len(shape.places_of(rank)) for rank in range(3)], [3, 2, 2])
        self.assertEqual([shape.places_of(rank).start for rank in range(3)], [0, 3, 5])
        cache.compile_graph(graphs.forward_graph(shape), trainable=("x",))


if __name__ == "__main__":
    unittest.main()
