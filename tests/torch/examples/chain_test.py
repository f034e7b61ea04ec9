"""The scripts of examples/, as a reader runs them, one after the other at small sizes."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import common
import forks
import torch
from sluice_torch import Checkpoint, state

EXAMPLES = pathlib.Path(common.__file__).parent
SIZES = ["--hidden", "64", "--layers", "2", "--num-experts", "4", "--intermediate", "64", "--length", "32", "--batch", "4"]
TORCHRUN = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--redirects", "1:1", "--tee", "1:1"]
PREFIX = "model.layers.1.mlp.experts"
WORDS = "the state of all that we have in common is not what one of them says it is but what each of us does with it ".split()


def make_text(path, seed: int, size: int = 40000):
    """Sentences of few words in an order that a model can learn, each with an end."""
    order = torch.randint(0, len(WORDS), (size // 4,), generator=torch.Generator().manual_seed(seed)).tolist()
    path.write_text(" ".join(f"{WORDS[n]} {WORDS[(n + 1) % len(WORDS)]} {WORDS[(n + 2) % len(WORDS)]}." for n in order)[:size])


def start(script: str, arguments, ranks: int = 1):
    """A process that runs a script; its output and errors are one text."""
    path, arguments = str(EXAMPLES / script), [str(each) for each in arguments]
    if ranks == 1 and (forked := forks.start(path, arguments)) is not None:
        return forked
    command = [sys.executable, *(TORCHRUN if ranks > 1 else []), path, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


class ChainTest(unittest.TestCase):
    """Each test takes what setUpClass has trained: a small model that knows its text."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = pathlib.Path(cls.folder.name)
        for number, name in enumerate(("text", "other")):
            make_text(cls.path / name, number)
        cls.model = cls.path / "model"
        cls.trained = cls.ran("train_lm.py", *cls.training(cls.model), "--steps", 100, "--every", 50)

    @classmethod
    def training(cls, out) -> list:
        return ["--out", out, "--text", cls.path / "text", *SIZES]

    @classmethod
    def ran(cls, script: str, *arguments, ranks: int = 1) -> str:
        """The output of a script that ends well."""
        process = start(script, arguments, ranks)
        output = process.communicate(timeout=120)[0]
        assert process.returncode == 0, f"{script}: {process.returncode}\n{output}"
        return output

    def refused(self, said: str, script: str, *arguments):
        process = start(script, arguments)
        output = process.communicate(timeout=120)[0]
        self.assertEqual(process.returncode, 1, output)
        self.assertRegex(output.strip().split("\r")[-1].splitlines()[-1], f"^{script}: error: .*{said}")
        self.assertNotIn("Traceback", output)

    def number(self, pattern: str, output: str) -> float:
        found = re.search(pattern.replace("NUMBER", r"(\d[\d.]*(?:e[-+]\d+)?)"), output)
        self.assertIsNotNone(found, f"{pattern} in {output}")
        return float(found[1])

    def assert_same_files(self, a, b):
        for name in ("model.safetensors", "training/state.safetensors"):
            self.assertTrue((a / name).read_bytes() == (b / name).read_bytes(), name)

    def assert_near(self, a, b, bound: float):
        """The weights of two folders, and what their optimizers keep."""
        a, b = (Checkpoint(each / "training" / "state.safetensors") for each in (a, b))
        self.assertEqual(set(a), set(b))
        for name in a:
            self.assertLess((a[name] - b[name]).norm(), bound * a[name].norm() + 1e-12, name)

    # --- Training ---

    def test_a_training_learns_its_text_and_logs_it(self):
        self.assertLess(self.number("NUMBER held-out bits per byte", self.trained), 2.5)
        rows = (self.model / "log.csv").read_text().splitlines()
        self.assertEqual(rows[0].split(","), list(common.COLUMNS))
        self.assertEqual(len(rows), 101)
        loads, balancing = ([float(row.split(",")[at]) for row in rows[1:]] for at in (5, 6))
        self.assertTrue(all(1 <= load <= 4 for load in loads) and max(loads) > 1, loads)
        self.assertTrue(all(0.9 < loss < 4 for loss in balancing), balancing)
        self.assertGreater((self.model / "training.png").stat().st_size, 5000)
        names = set(Checkpoint(self.model))
        for part in ("embed_tokens", "norm", "layers.1.self_attn.q_proj", "layers.1.mlp.gate", "layers.1.mlp.experts.3.down_proj"):
            self.assertIn(f"model.{part}.weight", names)
        self.assertIn("lm_head.weight", names)

    def test_a_resumed_training_has_the_bits_of_one_that_went_through(self):
        whole, parts = self.path / "whole", self.path / "parts"
        self.ran("train_lm.py", *self.training(whole), "--steps", 4)
        self.ran("train_lm.py", *self.training(parts), "--steps", 4, "--stop", 2)
        self.ran("train_lm.py", *self.training(parts), "--steps", 4, "--resume")
        self.assert_same_files(whole, parts)
        ranks = self.path / "ranks"
        self.ran("train_lm.py", *self.training(ranks), "--steps", 4, "--stop", 2, ranks=2)
        self.ran("train_lm.py", *self.training(ranks), "--steps", 4, "--resume")
        self.assert_near(whole, ranks, 0.03)
        eager = self.path / "eager"
        self.ran("train_lm.py", *self.training(eager), "--steps", 4, "--experts", "eager")
        self.assert_near(whole, eager, 0.1)
        self.refused("has hidden_size 64, but the options say 128", "train_lm.py", *self.training(parts), "--resume", "--hidden", 128)
        self.refused("has 4 steps already", "train_lm.py", *self.training(parts), "--resume", "--steps", 4)
        file = parts / "training" / "state.safetensors"
        file.write_bytes(file.read_bytes()[:-100])
        self.refused("truncated", "train_lm.py", *self.training(parts), "--steps", 6, "--resume")

    def test_ctrl_c_saves_the_last_state(self):
        out = self.path / "interrupted"
        process = start("train_lm.py", [*self.training(out), "--steps", 100000, "--every", 5])
        until = time.monotonic() + 60
        while not (out / "training" / "state.safetensors").exists() and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 0, output)
        steps = int(self.number("interrupted after NUMBER steps", output))
        self.assertEqual(Checkpoint(out / "training" / "state.safetensors")["steps"].item(), steps)
        self.ran("train_lm.py", *self.training(out), "--steps", 100000, "--stop", steps + 1, "--resume")

    # --- What follows ---

    def test_quantised_finetuned_and_merged(self):
        small, tuned = self.path / "small", self.path / "tuned"
        output = self.ran("quantise.py", self.model, "--out", small, "--text", self.path / "text")
        lines = [line.split() for line in output.replace("\r", "\n").splitlines() if re.match("(bf16|[a-z0-9]+4|int8|int4:|fp8e)[^|]*$", line)]
        rows = {line[0]: line[1:] for line in lines}
        self.assertEqual(len(rows), 8, output)
        self.assertIn("does not fit", " ".join(rows["fp8e4m3:128x128"]))  # 64 columns
        sizes, bits, divergences = ([float(rows[name][at]) for name in ("bf16", "int8", "int4:g32")] for at in range(3))
        self.assertTrue(sizes[0] > 1.8 * sizes[1] > 2.6 * sizes[2], sizes)
        self.assertTrue(0 == divergences[0] < divergences[1] < divergences[2] < 0.5, divergences)
        self.assertLess(abs(bits[2] - bits[0]), 0.3)
        self.assert_same_codes(small)
        output = self.ran("finetune_lora.py", small, "--out", tuned, "--text", self.path / "other", "--steps", 30)
        before, after, merged = (self.number(f"{word}[^:]*: NUMBER held-out", output) for word in ("before", "after", "merged"))
        self.assertLess(abs(self.number("Q4_0.: NUMBER", output) - merged), 0.1)
        self.assertLess(after, before - 0.01)
        self.assertLess(abs(after - merged), 0.03)
        self.assertIn(f"base_model.model.{PREFIX}.3.up_proj.lora_B.weight", Checkpoint(tuned / "adapter" / "adapter_model.safetensors"))
        output = self.ran("finetune_lora.py", small, "--text", self.path / "other", "--steps", 5, "--experts", "eager")
        self.assertLess(abs(self.number("before: NUMBER held-out", output) - before), 0.02)
        self.assertIn("WORDS", self.ran("generate.py", tuned, "--prompt", "WORDS", "--tokens", 5))

    def assert_same_codes(self, small):
        """A folder of 4-bit experts has the codes that its model would get."""
        found, expected = common.load_model(small), common.load_model(self.model, encode="int4:g32")
        for (name, a), b in zip(found.state_dict().items(), expected.state_dict().values()):
            self.assertTrue(torch.equal(a, b), name)

    def test_layers_after_other_callers(self):
        for ranks in (1, 2):
            self.assertLess(self.number("by NUMBER;", self.ran("megatron_layer.py", self.model, ranks=ranks)), 1e-5)
        output = self.ran("kt_layer.py", self.model, "--steps", 20)
        self.assertLess(self.number("to NUMBER;", output), 0.9 * self.number("from NUMBER to", output))

    # --- Decoding ---

    def test_kept_keys_and_values_give_the_tokens_of_whole_forwards(self):
        model = common.load_model(self.model)
        prompt = self.prompts()[0]
        tokens = prompt.tolist()
        for token in common.generate(model, [prompt], 48):
            with torch.no_grad():
                logits = model(torch.tensor([tokens]))[0, -1]
            self.assert_likeliest(logits, token.item())
            tokens.append(token.item())

    def test_a_batch_gives_the_tokens_of_single_prompts(self):
        model, prompts = common.load_model(self.model), self.prompts()
        batch = torch.stack(list(common.generate(model, prompts, 32)), 1)
        for prompt, found in zip(prompts, batch):
            alone = torch.stack(list(common.generate(model, [prompt], 32)), 1)[0]
            self.assertEqual(bytes(found.tolist()), bytes(alone.tolist()))

    def test_tokens_of_sluice_are_those_of_eager_experts(self):
        for encode in (None, "int4:g32"):
            ours, eager = (common.load_model(self.model, experts, encode) for experts in ("sluice", "eager"))
            for name, weight in state.to_original(ours).items():
                self.assertTrue(torch.equal(weight.float(), eager.state_dict()[name].float()), name)
            prompt = self.prompts()[0]
            tokens = torch.cat([prompt, *common.generate(eager, [prompt], 64)])
            with torch.no_grad():
                found, expected = (each(tokens[None].long())[0, len(prompt) - 1 : -1].float() for each in (ours, eager))
            margins = expected.topk(2, -1).values.diff(dim=-1).abs()[:, 0]
            sure = margins > 0.05
            self.assertGreater(sure.sum(), 55)
            self.assertTrue(torch.equal(found.argmax(-1)[sure], expected.argmax(-1)[sure]))

    def prompts(self) -> list:
        text = (self.path / "text").read_bytes()
        return [torch.tensor(list(text[first : first + 5 + 3 * first])) for first in range(4)]

    def assert_likeliest(self, logits, token: int):
        """Sums in another order may change which of two tokens that are nearly as likely comes first."""
        self.assertGreaterEqual(logits[token], logits.max() - 1e-2)

    def test_generating_and_serving(self):
        outputs = [self.ran("generate.py", self.model, "--tokens", 24, "--prompt", "the ", *more) for more in ([], ["--experts", "eager"])]
        self.assertEqual(*(each.split("prefill")[0] for each in outputs))
        for pattern in ("first token after NUMBER ms", "decoding: NUMBER bytes per second", "reads NUMBER MB of weights"):
            self.assertGreater(self.number(pattern, outputs[0]), 0)
        sampled = {self.ran("generate.py", self.model, "--tokens", 24, "--temperature", 2, "--seed", seed).split("prefill")[0] for seed in "12"}
        self.assertEqual(len(sampled), 2)
        output = self.ran("serve_batch.py", self.model, "--text", self.path / "text", "--batches", "1,3", "--tokens", 4)
        rows = re.findall(r"^ *(\d+) +(\d+) +([\d.]+) +([\d.]+) +([\d.]+)$", output.replace("\r", "\n"), re.MULTILINE)
        self.assertEqual([row[0] for row in rows], ["1", "3"], output)
        self.assertTrue(all(float(row[2]) <= float(row[3]) for row in rows), rows)

    def test_bad_input_is_one_line(self):
        missing, text = self.path / "missing", self.path / "text"
        for script in ("quantise.py", "finetune_lora.py", "generate.py"):
            self.refused("missing has no config.json", script, missing)
        self.refused("missing: no such file", "train_lm.py", "--out", self.path / "none", "--text", missing)
        damaged = self.path / "damaged"
        shutil.copytree(self.model, damaged)
        config = (damaged / "config.json").read_text()
        (damaged / "config.json").write_text(config.replace('"hidden_size": 64', '"hidden_size": 128'))
        self.refused(r"0.gate_proj.weight is a matrix of \[64, 64\], expected \[64, 128\]", "generate.py", damaged)
        (damaged / "config.json").write_text(config[:-9])
        self.refused("config.json: expected a JSON object", "kt_layer.py", damaged)
        (damaged / "config.json").write_text(config)
        file = damaged / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-1000])
        self.refused("truncated", "serve_batch.py", damaged, "--text", text)


if __name__ == "__main__":
    unittest.main()
