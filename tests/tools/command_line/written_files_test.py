"""usage: written_files_test.py SLUICE SLUICE_BENCH SLUICE_OPT SLUICEC   files are complete or do not exist

Ends each tool that writes a file at random moments, and runs it with a limit on the size of files and on a full disk: then
the old file or the new one must exist, never a part or a temporary one, and every failure must have a message.
"""
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SLUICE, BENCH, OPT, SLUICEC = (os.path.abspath(tool) for tool in sys.argv[1:5])
GRAPH = os.path.abspath("graphs/moe_ffn/train.json")
SIZES = [f"--set={name}" for name in ("ep=2", "experts=8", "top_k=2", "hidden=64", "intermediate=48", "max_tokens=64")]
KILLS = 12


class WrittenFiles(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.given = tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"])
        layer, text = os.path.join(cls.given, "layer.slp"), os.path.join(cls.given, "layer.txt")
        inputs, moe = os.path.join(cls.given, "in-{rank}"), os.path.join(cls.given, "moe.mlir")
        subprocess.run([SLUICEC, GRAPH, *SIZES, "-o", layer], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([SLUICE, "make-inputs", layer, "--out", inputs], check=True, stdout=subprocess.DEVNULL)
        for command, path in (([SLUICE, "dump", layer], text), ([SLUICEC, GRAPH, *SIZES, "--emit=moe"], moe)):
            with open(path, "wb") as out:
                subprocess.run(command, check=True, stdout=out)
        # a command, and the files that it writes into the folder it runs in; of those in the last list not two
        # runs have the same bytes
        cls.writers = {
            "sluicec": ([SLUICEC, GRAPH, *SIZES, "-o", "a.slp"], ["a.slp"], []),
            "make-inputs": ([SLUICE, "make-inputs", layer, "--out", "in-{rank}"], ["in-0", "in-1"], []),
            "as": ([SLUICE, "as", text, "-o", "a.slp"], ["a.slp"], []),
            "run": ([SLUICE, "run", layer, "--in", inputs, "--out", "out-{rank}", "--trace", "trace.json"],
                    ["out-0", "out-1"], ["trace.json"]),
            "processes": ([SLUICE, "run", layer, "--in", inputs, "--out", "out-{rank}", "--transport", "shm"],
                          ["out-0", "out-1"], []),
            "sluice-opt": ([OPT, moe, "-o", "a.mlir"], ["a.mlir"], []),
            "sluice-bench": ([BENCH, "--case", "tiny", "--repeat", "1", "--no-scaling", "--json", "bench.json"], [],
                             ["bench.json"]),
            "a picture": ([BENCH, "--case", "tiny", "--repeat", "1", "--no-scaling", "--plot", "bench.svg"], [],
                          ["bench.svg"]),
        }

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"])
        self.addCleanup(shutil.rmtree, self.folder, True)

    def fill(self, names):
        for name in names:
            with open(os.path.join(self.folder, name), "wb") as file:
                file.write(b"old")

    def contents(self):
        found = {}
        for name in os.listdir(self.folder):
            self.assertTrue(os.path.isfile(os.path.join(self.folder, name)), f"left the folder {name}")
            with open(os.path.join(self.folder, name), "rb") as file:
                found[name] = file.read()
        return found

    def run_in_folder(self, command, **options):
        return subprocess.run(command, cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, **options)

    def environment(self):
        """Temporary files come into the folder, where one that is left is found."""
        return {**os.environ, "TMPDIR": self.folder}

    def expect_failure(self, name, result, words, files):
        self.assertEqual(result.returncode, 1, f"{name}: {result.stderr}")
        self.assertRegex(result.stderr, words, name)
        self.assertEqual(self.contents(), {file: b"old" for file in files}, name)

    def test_a_limit_on_the_size_of_files_is_an_error_that_leaves_the_old_files(self):
        for name, (command, files, others) in self.writers.items():
            if name == "processes":
                continue  # shared memory is a file, too
            self.fill(files + others)
            result = self.run_in_folder(
                command, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16)))
            self.expect_failure(name, result, "File too large", files + others)
            for file in files + others:
                os.unlink(os.path.join(self.folder, file))

    def test_a_full_disk_is_an_error_that_leaves_the_old_files(self):
        mount = 'mount -t tmpfs -o size=16k none "$0" && cd "$0" && for f in $1; do printf old > "$f"; done && shift && '
        look = '; status=$?; for f in *; do echo "$f $(head -c 9 "$f")"; done; exit $status'
        tried = subprocess.run(["unshare", "-rm", "bash", "-c", mount + "true", self.folder, "a"], stderr=subprocess.PIPE)
        if tried.returncode != 0:
            self.skipTest("no file system can be mounted here")
        full = "head -c 15k /dev/zero > fill; "
        for name, (command, files, others) in self.writers.items():
            if name in ("processes", "sluice-bench", "a picture", "sluice-opt"):
                continue  # what these write is small
            result = self.run_in_folder(["unshare", "-rm", "bash", "-c", mount + full + '"$@"' + look, self.folder,
                                         " ".join(files + others), *command])
            self.assertEqual(result.returncode, 1, f"{name}: {result.stderr}")
            self.assertIn("No space left on device", result.stderr, name)
            left = sorted(line for line in result.stdout.splitlines() if line.endswith(" old"))
            self.assertEqual(left, sorted(f"{file} old" for file in files + others), name)
            self.assertNotIn(".tmp", result.stdout)

    def test_what_is_ended_at_any_moment_leaves_old_files_or_new_ones_and_nothing_else(self):
        chance = random.Random(1)
        ended = {signal.SIGKILL: 0, signal.SIGTERM: 0, signal.SIGINT: 0, signal.SIGHUP: 0}
        for name, (command, files, others) in self.writers.items():
            # one of its own: the processes of ranks end a moment after the one that started them
            self.folder = tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"])
            self.addCleanup(shutil.rmtree, self.folder, True)
            started = time.monotonic()
            result = self.run_in_folder(command)
            self.assertEqual(result.returncode, 0, f"{name}: {result.stderr}")
            duration = time.monotonic() - started
            new = self.contents()
            self.assertEqual(sorted(new), sorted(files + others), name)
            for turn in range(KILLS):
                self.fill(files + others)
                kind = chance.choice(list(ended)) if turn % 2 else signal.SIGKILL
                process = subprocess.Popen(command, cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL,
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(chance.uniform(0, duration))
                process.send_signal(kind)
                ended[kind] += process.wait(60) != 0
                if kind == signal.SIGKILL:
                    self.remove_between_names(files, new)
                self.expect_whole(name, files + others, new, files)
        self.assertGreater(ended[signal.SIGKILL], KILLS)

    def remove_between_names(self, names, new):
        """No call of the system replaces a file by a nameless one, so there are two, and between them both files exist."""
        for file, content in self.contents().items():
            name = re.sub(r"\.tmp-\d+-\d+$", "", file)
            if name != file and name in names and content == new[name]:
                os.unlink(os.path.join(self.folder, file))

    def expect_whole(self, name, names, new, same):
        for file, content in self.contents().items():
            self.assertIn(file, names, f"{name} left {file}")
            if file in same:
                self.assertIn(content, (b"old", new[file]), f"{name}: {file}")
            elif content != b"old":
                self.assertTrue(content.rstrip().endswith((b"}", b"</svg>")), f"{name}: {file}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
