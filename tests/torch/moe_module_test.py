"""sluice_torch.MoE as a module: its state, copies, pickles, types, and steps in flight."""

import copy
import importlib
import io
import os
import pickle
import re
import subprocess
import sys
import tempfile
import unittest

import sluice_torch
import torch
from grouped import grouped
from moe_layers import Batch, MoETest, make

# Another process loads layers from files, runs each on the tensors of another file, and saves its results.
ELSEWHERE = """
import sys, torch
for path in sys.argv[1:]:
    layer = torch.load(path, weights_only=False)
    tensors = torch.load(path + ".tensors")
    x = tensors["x"].requires_grad_()
    y = layer(x, tensors["ids"], tensors["weights"])
    y.backward(tensors["dy"])
    trained = {name: each.grad for name, each in layer.named_parameters() if each.requires_grad}
    torch.save({"text": repr(layer), "y": y.detach(), "x": x.grad, **trained}, path + ".found")
"""


def asks_for_huge_pages(tensor):
    """Whether the mapping of the tensor's memory has the flag of that request."""
    middle, inside = tensor.data_ptr() + tensor.numel() * tensor.element_size() // 2, False
    with open("/proc/self/smaps", encoding="utf-8") as maps:
        for line in maps:
            bounds = line.split()[0].split("-")
            if len(bounds) == 2:
                inside = int(bounds[0], 16) <= middle < int(bounds[1], 16)
            elif inside and line.startswith("VmFlags:"):
                return "hg" in line.split()
    raise AssertionError("the memory of the tensor is not mapped")


def summed_grad(layer, batch):
    """The gradient of down_weight, added to zeros in float32."""
    other = copy.deepcopy(layer)
    other.down_weight.main_grad = torch.zeros(layer.down_weight.shape)
    batch.run(other).backward(batch.dy)
    return other.down_weight.main_grad


def without_steps(layer):
    """The layer with the attributes that versions before `steps` gave it."""
    steps = vars(layer).pop("steps")
    vars(layer).update(threads=steps.threads, keep=steps.keep, pack_frozen=steps.pack_frozen)
    return layer


class ModuleTest(MoETest):
    @unittest.skipUnless(os.path.exists("/sys/kernel/mm/transparent_hugepage"), "this system has no huge pages")
    def test_large_weights_are_in_memory_that_may_have_huge_pages(self):
        for options in ({}, {"encode": "int8,rows=int8"}):
            layer = sluice_torch.MoE(1024, 512, 8, 2, **grouped(threads=1, **options))
            for name in ("gate_up_weight", "down_weight"):
                self.assertTrue(asks_for_huge_pages(getattr(layer, name)), name)
        self.assertFalse(asks_for_huge_pages(torch.zeros(8 << 20)))  # what no one asked for

    def test_a_state_dict_brings_the_layer_back(self):
        first, second, batch = make(seed=1), make(seed=2), Batch()
        self.assertEqual(list(first.state_dict()), ["gate_up_weight", "down_weight"])
        self.assertFalse(torch.equal(batch.run(first), batch.run(second)))
        second.load_state_dict(first.state_dict())
        self.assertTrue(torch.equal(batch.run(first), batch.run(second)))

    def test_copies_and_pickles_are_layers_of_their_own(self):
        layer, batch = make(), Batch()
        y = batch.run(layer)
        file = io.BytesIO()
        torch.save(layer, file)
        file.seek(0)
        for other in (copy.deepcopy(layer), torch.load(file, weights_only=False)):
            self.assertTrue(torch.equal(batch.run(other), y))
            with torch.no_grad():
                other.down_weight.zero_()
            self.assertEqual(batch.run(other).float().abs().sum(), 0)
        self.assertTrue(torch.equal(batch.run(layer), y))

    def test_a_layer_changes_its_type(self):
        layer, batch = make(), Batch()
        y = batch.run(layer)
        self.assertTrue(torch.equal(batch.run(layer.float()), y))
        self.check(layer, batch)

    def test_its_text_has_its_sizes(self):
        self.assertIn("hidden=64, intermediate=48, num_experts=8, top_k=2, activation='swiglu'", repr(make()))

    def test_a_step_in_flight_is_the_first_of_a_process(self):
        code = """
import torch, sluice_torch
layer = sluice_torch.MoE(64, 48, 8, 2, steps=sluice_torch.Steps(threads=1))
x, ids, weights = torch.randn(5, 64).bfloat16(), torch.tensor([[0, 1]] * 5), torch.rand(5, 2)
with torch.no_grad():
    y = layer.submit_forward(x, ids, weights).wait()
    assert torch.equal(y, layer(x, ids, weights))
"""
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_steps_in_flight_give_what_steps_give(self):
        layers, batches = [make(seed=1), make(seed=2, activation="geglu")], [Batch(50, 3), Batch(5, 4)]
        with torch.no_grad():
            plain = [[batch.run(layer) for batch in batches] for layer in layers]
            pending = [[layer.submit_forward(b.x, b.ids, b.expert_weights) for b in batches] for layer in layers]
            for row, expected in zip(pending, plain):
                for step, y in zip(row, expected):
                    self.assertTrue(torch.equal(step.wait(), y))
                    self.assertTrue(step.done())

    def test_steps_in_flight_have_gradients(self):
        for dtype in (torch.bfloat16, torch.float32):
            layers = [make(dtype, seed=1), make(dtype, seed=2, activation="geglu")]
            batches = [Batch(50, 3, dtype), Batch(5, 4, dtype)]
            work = [(layer, batch) for layer in layers for batch in batches]
            expected = []
            for layer, batch in work:
                y = batch.run(layer)
                expected.append((y, batch.grads(layer, y)))
            for order in (range(4), reversed(range(4))):
                steps = [layer.submit_forward(batch.x, batch.ids, batch.expert_weights) for layer, batch in work]
                for n in order:
                    layer, batch = work[n]
                    with torch.no_grad():
                        y = steps[n].wait()
                    self.assertTrue(torch.equal(y, expected[n][0]))
                    self.assertEqual(y.dtype, dtype)
                    self.assertTrue(torch.equal(steps[n].wait(), y))
                    self.assert_same(batch.grads(layer, y), expected[n][1])

    def test_a_step_in_flight_adds_to_main_grad(self):
        layer, batch = make(), Batch()
        expected = batch.grads(layer)
        layer.down_weight.main_grad = torch.ones(layer.down_weight.shape)
        y = layer.submit_forward(batch.x, batch.ids, batch.expert_weights).wait()
        y.backward(batch.dy)
        self.assertIsNone(layer.down_weight.grad)
        self.assertTrue(torch.equal(batch.x.grad, expected[0]))
        self.assertTrue(torch.equal(layer.down_weight.main_grad, summed_grad(layer, batch) + 1))

    def test_what_steps_in_flight_keep_is_freed(self):
        layer, batch = make(), Batch()
        batch.grads(layer)
        for _ in range(1100):  # more than a layer can keep
            step = layer.submit_forward(batch.x, batch.ids, batch.expert_weights)
        step.wait()
        step = layer.submit_forward(batch.x, batch.ids, batch.expert_weights)
        step.wait()
        with torch.no_grad():
            layer.down_weight.add_(1)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            batch.grads(layer, step.wait())

    def test_a_step_in_flight_with_scales_of_its_own_has_no_gradients(self):
        layer, batch = make(encode="fp8e4m3"), Batch()
        with self.assertRaisesRegex(RuntimeError, "submit_forward has no gradients with encode='fp8e4m3': call it under torch.no_grad"):
            layer.submit_forward(batch.x, batch.ids, batch.expert_weights)
        batch.grads(layer)

    def test_a_pickle_is_the_same_layer_in_another_process(self):
        adapters = sluice_torch.LoRAConfig(4, 6.0, ("gate", "down"))
        with tempfile.TemporaryDirectory() as folder:
            expected = {}
            for options in ({"activation": "swiglu_clamp:0.5"}, {"lora": adapters, "keep": "minimal"}):
                layer, batch = make(**options), Batch()
                for name, parameter in layer.named_parameters():
                    if "lora_b" in name:
                        torch.nn.init.normal_(parameter)
                y = batch.run(layer)
                y.backward(batch.dy)
                path = os.path.join(folder, f"layer{len(expected)}.pt")
                torch.save(layer, path)
                tensors = {"x": batch.x, "ids": batch.ids, "weights": batch.expert_weights, "dy": batch.dy}
                torch.save({name: tensor.detach() for name, tensor in tensors.items()}, path + ".tensors")
                trained = {name: each.grad for name, each in layer.named_parameters() if each.requires_grad}
                expected[path] = {"text": repr(layer), "y": y, "x": batch.x.grad, **trained}
            subprocess.run([sys.executable, "-c", ELSEWHERE, *expected], check=True)
            for path, of_layer in expected.items():
                found = torch.load(path + ".found")
                self.assertEqual(list(found), list(of_layer))
                self.assertEqual(found.pop("text"), of_layer.pop("text"))
                for name, tensor in of_layer.items():
                    self.assertTrue(torch.equal(found[name], tensor), (path, name))

    def test_a_pickle_that_names_modules_without_their_rooms_is_the_same_layer(self):
        layer, batch = make(lora=sluice_torch.LoRAConfig(4, 6.0), encode=sluice_torch.recipe.DelayedScaling()), Batch()
        batch.run(layer).backward(batch.dy)
        now = pickle.dumps(layer, protocol=0)
        before = pickle.dumps(without_steps(copy.deepcopy(layer)), protocol=0)
        before = re.sub(rb"csluice_torch\.\w+\.(\w+)$", rb"csluice_torch.\1", before, flags=re.M)
        named = set(re.findall(rb"csluice_torch\.(.+)$", before, re.M))
        self.assertGreaterEqual(named, {b"moe", b"ranks", b"encodings", b"autocast", b"scaling", b"amax", b"graphs", b"lora"})
        y = batch.run(pickle.loads(now).eval())
        self.assertTrue(torch.equal(batch.run(pickle.loads(before).eval()), y))

    def test_a_pickle_of_a_layer_before_it_had_steps_is_the_same_layer(self):
        layer, batch = make(activation="swiglu_clamp:0.5", max_tokens=40, keep="minimal", pack_frozen=True), Batch()
        y, steps = batch.run(layer), layer.steps
        found = pickle.loads(pickle.dumps(without_steps(layer)))
        self.assertEqual(found.steps, steps)
        self.assertFalse(hasattr(found, "keep"))
        self.assertTrue(torch.equal(batch.run(found), y))

    def test_modules_of_what_files_have_beside_layers_are_found_without_their_rooms(self):
        for module, room, name in (
            ("linear_graphs", "layers", "LinearShape"),
            ("placement", "layers", "Places"),
            ("replaced", "replacing", "ReplacedBlock"),
            ("routing", "replacing", "Routing"),
            ("sharded_tensors", "ranks", "ShardedTensor"),
            ("structure", "replacing", "Layout"),
        ):
            found = importlib.import_module(f"sluice_torch.{module}")
            self.assertIs(found, importlib.import_module(f"sluice_torch.{room}.{module}"))
            self.assertEqual(getattr(found, name).__module__, f"sluice_torch.{room}.{module}")
        with self.assertRaises(ImportError):
            importlib.import_module("sluice_torch.codes")


if __name__ == "__main__":
    unittest.main()
