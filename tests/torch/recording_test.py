"""Code that records models instead of running them is refused with our own message, and the layer stays usable."""

import copy
import unittest

import sluice_torch
import torch
from models import layouts
from moe_layers import EXPERTS, HIDDEN, TOP_K, Batch, make
from torch import fx, nn


class Routed(nn.Module):
    """A model around a layer."""

    def __init__(self, layer):
        super().__init__()
        self.router, self.layer = nn.Linear(HIDDEN, EXPERTS), layer

    def forward(self, x):
        best = self.router(x).softmax(-1).topk(TOP_K, -1)
        return self.layer(x, best[1], best[0])


def exchange(x, ids, weights):
    rows, _, _, _, handle = sluice_torch.exchange.dispatch(x, ids, weights, EXPERTS)
    return sluice_torch.exchange.combine(rows, None, handle)


class LeafTracer(fx.Tracer):
    def is_leaf_module(self, module, name):
        return isinstance(module, sluice_torch.MoE) or super().is_leaf_module(module, name)


class RecordingTest(unittest.TestCase):
    def setUp(self):
        self.layer, batch = make(torch.float32), Batch(dtype=torch.float32)
        self.inputs = (batch.x.detach(), batch.ids, batch.expert_weights.detach())
        self.model = Routed(self.layer)

    def assert_refused(self, message, record, *arguments, **options):
        before = self.model(self.inputs[0])
        with self.assertRaisesRegex(RuntimeError, message):
            record(*arguments, **options)
        self.assertTrue(torch.equal(self.model(self.inputs[0]), before))

    def test_traces(self):
        x = self.inputs[0]
        block = nn.Sequential(layouts.StackedBlock(HIDDEN))
        sluice_torch.replace_moe(block, steps=sluice_torch.Steps(threads=2))
        for name, model, inputs in (
            ("layer", self.layer, self.inputs),
            ("model", self.model, (x,)),
            ("model in a model", nn.Sequential(self.model), (x,)),
            ("replaced block", block, (x[None],)),
        ):
            for options in ({}, {"strict": False}, {"check_trace": False}):
                with self.subTest(name, **options):
                    message = "sluice_torch.MoE cannot be recorded by torch.jit.trace: call the layer in eager"
                    self.assert_refused(message, torch.jit.trace, model, inputs, **options)
        self.assert_refused("exchange.dispatch cannot be recorded by torch.jit.trace", torch.jit.trace, exchange, self.inputs)

    def test_scripts(self):
        for model in (self.layer, self.model, nn.Sequential(self.model), copy.deepcopy(self.layer)):
            self.assert_refused("sluice_torch.MoE cannot be compiled by torch.jit.script", torch.jit.script, model)

    def test_graphs(self):
        for model in (self.layer, self.model, nn.Sequential(self.model)):
            self.assert_refused("sluice_torch.MoE cannot be recorded by torch.fx", fx.symbolic_trace, model)
        self.assert_refused("exchange.dispatch cannot be recorded by torch.fx", fx.symbolic_trace, exchange)

    def test_a_graph_holds_the_layer_whole(self):
        graph = LeafTracer().trace(self.model)
        found = fx.GraphModule(self.model, graph)(self.inputs[0])
        self.assertTrue(torch.equal(found, self.model(self.inputs[0])))

    @unittest.skipUnless(hasattr(torch, "compile"), "PyTorch 1.13 has no torch.compile")
    def test_compiled_models_leave_the_layer_to_eager_pytorch(self):
        x = self.inputs[0]
        compiled = torch.compile(self.model, backend="eager")
        self.assertTrue(torch.equal(compiled(x), self.model(x)))
        found, expected = ([*torch.autograd.grad(model(x).sum(), list(self.model.parameters()))] for model in (compiled, self.model))
        for a, b in zip(found, expected):
            self.assertTrue(torch.equal(a, b))


if __name__ == "__main__":
    unittest.main()
