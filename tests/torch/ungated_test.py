"""Layers whose activation has no gate: parameters, adapters, codes, states, replaced models and ranks that share experts."""

import json
import pathlib
import struct
import tempfile
import unittest

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from grouped import grouped
from models import layouts
from moe_eager import BOUND, eager, error, route
from sluice_torch import state
from sluice_torch.encodings import codes
from sluice_torch.layers import sharding
from sluice_torch.lora import LoRAConfig

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 64, 48, 6, 2
KINDS = ("silu", "relu2")


def whole_weights():
    made = torch.Generator().manual_seed(5)
    up = torch.randn(EXPERTS, INTERMEDIATE, HIDDEN, generator=made) / HIDDEN**0.5
    down = torch.randn(EXPERTS, HIDDEN, INTERMEDIATE, generator=made) / INTERMEDIATE**0.5
    return {"gate_up_weight": up.bfloat16().float(), "down_weight": down.bfloat16().float()}


def make(activation="relu2", **options):
    layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, activation=activation, **grouped(threads=1, timeout=20, **options))
    whole = {name: each[layer.local_experts] for name, each in whole_weights().items()}
    with torch.no_grad():
        for row in range(len(layer.gate_up_weight)):
            sharding.set_expert(layer, row, *(each[row] for each in whole.values()))
    return layer


def batch(tokens=31, seed=1):
    made = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, HIDDEN, generator=made).bfloat16().requires_grad_()
    dy = torch.randn(tokens, HIDDEN, generator=made).bfloat16()
    ids, weights = route(tokens, EXPERTS, TOP_K, seed)
    return x, ids, weights.requires_grad_(), dy


def expected_of(x, ids, weights, dy, kind, up, down):
    """y and the gradients of x, the weights of pairs, up and down."""
    leaves = [each.detach().float().requires_grad_() for each in (x, weights, up, down)]
    y = eager(leaves[0], ids, leaves[1], *leaves[2:], kind)
    return [y, *torch.autograd.grad(y, leaves, dy.float())]


class UngatedTest(unittest.TestCase):
    def check(self, found, expected, bound=BOUND):
        for a, b in zip(found, expected):
            self.assertEqual(a.shape, b.shape)
            self.assertLess(error(a, b), bound)

    def test_the_first_weight_has_the_rows_of_up(self):
        for kind in KINDS:
            for keep in ("all", "minimal"):
                layer, (x, ids, weights, dy) = make(kind, keep=keep), batch()
                self.assertEqual(layer.gate_up_weight.shape, (EXPERTS, INTERMEDIATE, HIDDEN))
                y = layer(x, ids, weights)
                found = [y, *torch.autograd.grad(y, [x, weights, layer.gate_up_weight, layer.down_weight], dy)]
                self.check(found, expected_of(x, ids, weights, dy, kind, *whole_weights().values()))

    def test_adapters_of_up_and_down_train(self):
        config = LoRAConfig(rank=4, alpha=8, targets=("up", "down"))
        layer, (x, ids, weights, dy) = make(lora=config), batch()
        for name in config.names():
            torch.nn.init.normal_(getattr(layer, name), std=0.1)
        parameters = [getattr(layer, name) for name in config.names()]
        y = layer(x, ids, weights)
        grads = torch.autograd.grad(y, parameters, dy)
        copies = [each.detach().float().requires_grad_() for each in parameters]
        up, down = whole_weights().values()
        whole = (up + 2 * copies[1] @ copies[0], down + 2 * copies[3] @ copies[2])
        expected = eager(x.float(), ids, weights, *whole, "relu2")
        self.check([y, *grads], [expected, *torch.autograd.grad(expected, copies, dy.float())], 3e-2)
        merged = {name: each.clone() for name, each in whole_weights().items()}
        sluice_torch.lora.merge_adapters(config, dict(zip(config.names(), parameters)), *merged.values())
        self.check(merged.values(), [each.detach() for each in whole], 1e-3)

    def test_adapters_of_a_gate_are_refused(self):
        with self.assertRaisesRegex(ValueError, r"\('gate', 'up', 'down'\), but silu has no gate, expected some of up, down"):
            make("silu", lora=LoRAConfig(rank=4))

    def test_weights_may_be_codes(self):
        for encode in ("int8,rows=int8", "int8", "int4,rows=int8", "int4:z"):
            for kind in KINDS:
                layer, (x, ids, weights, dy) = make(kind, encode=encode), batch()
                decoded = []
                for name in ("gate_up_weight", "down_weight"):
                    beside = [getattr(layer, each) for each in layer.shape.beside(name)]
                    decoded.append(codes.dequantize(getattr(layer, name), *beside, dtype=torch.float32))
                y = layer(x, ids, weights)
                found = [y, *torch.autograd.grad(y, [x, weights], dy)]
                self.check(found, expected_of(x, ids, weights, dy, kind, *decoded), 4e-2)

    def test_a_model_of_two_matrices_is_replaced_and_given_back(self):
        model = torch.nn.Sequential(layouts.Qwen3Block())
        model[0].experts = torch.nn.ModuleList(layouts.UngatedMlp(64, 48) for _ in range(8))
        original = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        x = torch.randn(2, 9, 64)
        expected = model(x)[0].detach()
        self.assertEqual(sluice_torch.replace_moe(model), ["0"])
        layer = model[0].experts
        self.assertEqual((layer.shape.activation, tuple(layer.gate_up_weight.shape)), ("relu2", (8, 48, 64)))
        self.assertLess(error(model(x)[0], expected), BOUND)
        found = state.to_original(model)
        self.assertEqual(set(found), set(original))
        for name, tensor in original.items():
            self.assertTrue(torch.equal(found[name], tensor), name)
        again = state.from_original(model, original)
        self.assertEqual(set(again), set(model.state_dict()))
        model.load_state_dict(again)

    def test_a_checkpoint_of_two_matrices_is_loaded(self):
        whole = whole_weights()
        header, data = {}, b""
        for expert in range(EXPERTS):
            for name, weight in zip(("up_proj", "down_proj"), whole.values()):
                bits = weight[expert].numpy().tobytes()
                header[f"mlp.experts.{expert}.{name}.weight"] = {
                    "dtype": "F32", "shape": list(weight[expert].shape), "data_offsets": [len(data), len(data) + len(bits)]
                }
                data += bits
        text = json.dumps(header).encode()
        layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, activation="relu2", initialise=False)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.safetensors"
            path.write_bytes(struct.pack("<Q", len(text)) + text + data)
            sluice_torch.load_experts(path, layer, "mlp.experts")
        for name, weight in whole.items():
            self.assertTrue(torch.equal(getattr(layer, name).float(), weight), name)

    def test_states_are_cut_for_ranks_and_joined_again(self):
        whole = make().state_dict()
        for ranks, tp in ((2, 2), (4, 2), (3, 1)):
            parts = state.reshard([whole], ranks, tp=tp)
            self.assertEqual(parts[0]["gate_up_weight"].shape[1], INTERMEDIATE // tp)
            for name, tensor in state.reshard(parts, 1)[0].items():
                self.assertTrue(torch.equal(tensor, whole[name]), name)

    def test_a_fine_tuned_layer_has_no_gate_to_load(self):
        tuning = sluice_torch.FineTuning(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, activation="relu2")
        up, down = whole_weights().values()
        with self.assertRaisesRegex(ValueError, "gate is given, but relu2 has no gate"):
            tuning.load_weights(up, up, down)
        tuning.load_weights(None, up, down)
        x, ids, weights, _ = batch()
        with torch.no_grad():
            self.check([tuning.forward(x, ids, weights, save=False)], [eager(x.float(), ids, weights, up, down, "relu2")])

    def test_ranks_share_experts(self):
        core_jobs.run_ranks(self, "shared", 2)


def shared(rank, size):
    for kind in KINDS:
        for options in ({}, {"tp": 2}, {"tp": 2, "tokens": "same"}, {"tp": 2, "encode": "int8"}):
            layer = make(kind, ep_group=dist.group.WORLD, **options)
            number = 0 if layer.shape.tokens == "same" else rank
            x, ids, weights, dy = batch((29, 17)[number], number)
            y = layer(x, ids, weights)
            leaves = [x, weights] + [each for each in (layer.gate_up_weight, layer.down_weight) if each.requires_grad]
            found = [y, *torch.autograd.grad(y, leaves, dy)]
            expected = expected_of(x, ids, weights, dy, kind, *whole_weights().values())
            for a, b in zip(found[:3], expected):
                assert error(a, b) < (BOUND if not layer.shape.has_codes else 4e-2), (kind, options, error(a, b))
            if layer.shape.tokens == "same":
                for a, b, name in zip(found[3:], expected[3:], ("gate_up_weight", "down_weight")):
                    own = sharding.take(name, b, rank, 2, 1)
                    assert error(a, own) < BOUND, (kind, name, error(a, own))
            whole = state.full(torch.nn.ModuleList([layer]))
            if not layer.shape.has_codes:
                for name, tensor in whole_weights().items():
                    assert torch.equal(whole[f"0.{name}"].float(), tensor), (kind, options, name)


if __name__ == "__main__" and not core_jobs.main({"shared": shared}):
    unittest.main()
