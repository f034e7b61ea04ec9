"""torch.compile of models with layers of Sluice: it ends its graph at each layer, and gives the model's results."""

import unittest

import sluice_torch
import torch
from decoder import Decoder, loss_of
from models import layouts
from moe_layers import Batch, MoETest, make

HAS_COMPILE = hasattr(torch, "compiler")
if HAS_COMPILE:
    import torch._dynamo


class Between(torch.nn.Module):
    """Two layers, with ops of PyTorch before, between and after them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = make(seed=1), make(seed=2)

    def forward(self, x, ids, weights):
        y = self.first(x * 2, ids, weights.softmax(-1))
        return self.second(torch.tanh(y) + x, ids, weights).sin()

    def grads(self, batch, run):
        y = run(batch.x, batch.ids, batch.expert_weights)
        leaves = [batch.x, batch.expert_weights, *self.parameters()]
        return [y.detach(), *torch.autograd.grad(y, leaves, batch.dy)]


def exchange(x, ids, weights):
    rows, experts, probs, counts, handle = sluice_torch.exchange.dispatch(x.tanh(), ids, weights, 8, threads=2)
    return sluice_torch.exchange.combine(rows * 2, None, handle).sin()


@unittest.skipUnless(HAS_COMPILE, f"SKIP: PyTorch {torch.__version__} has no torch.compile")
class CompileTest(MoETest):
    def setUp(self):
        torch._dynamo.reset()

    def compiled(self, what, backend="eager", **options):
        """The compiled model, and the list that collects each graph given to the compiler."""
        graphs, compile_graph = [], torch._dynamo.backends.registry.lookup_backend(backend)

        def note(graph, inputs):
            graphs.append(graph)
            return compile_graph(graph, inputs)

        return torch.compile(what, backend=note, **options), graphs

    def test_outputs_and_gradients_have_the_bits_of_the_model_for_every_number_of_tokens(self):
        for backend in ("eager", "aot_eager"):
            torch._dynamo.reset()
            model = Between()
            run, graphs = self.compiled(model, backend)
            for tokens in (37, 1, 64, 0, 12):
                batch = Batch(tokens, seed=tokens)
                for found, expected in zip(model.grads(batch, run), model.grads(batch, model)):
                    self.assertTrue(torch.equal(found, expected), (backend, tokens))
            self.assertGreaterEqual(len(graphs), 3)

    def test_there_are_three_graphs_around_two_layers_and_none_in_them(self):
        model = Between()
        run, graphs = self.compiled(model)
        with torch.no_grad():
            batch = Batch()
            run(batch.x, batch.ids, batch.expert_weights)
        called = [[str(node.target) for node in graph.graph.nodes if node.op.startswith("call")] for graph in graphs]
        self.assertEqual(len(called), 3, called)
        self.assertEqual(sum(map(len, called)), 5, called)

    def test_many_layers_and_token_counts_never_compile_anything_of_the_layers(self):
        class Block(torch.nn.Module):
            def __init__(self, seed):
                super().__init__()
                self.layer = make(seed=seed)

            def forward(self, x, ids, weights):
                return self.layer(x.tanh(), ids, weights)

        blocks = [Block(seed) for seed in range(12)]

        def forward(x, ids, weights):
            for block in blocks:
                x = block(x, ids, weights)
            return x

        run, graphs = self.compiled(forward)
        with torch.no_grad(), self.no_warning_of_the_compiler():
            for tokens in (5, 6, 7, 8):
                batch = Batch(tokens)
                run(batch.x, batch.ids, batch.expert_weights)
        called = [str(node.target) for graph in graphs for node in graph.graph.nodes if node.op.startswith("call")]
        self.assertEqual(set(called), {"tanh"})

    def no_warning_of_the_compiler(self):
        """Such as that something was compiled too often."""
        return self.assertNoLogs("torch._dynamo", "WARNING")

    def test_code_that_pytorch_generates_gives_the_same(self):
        model, batch = Between(), Batch()
        try:
            run, _ = self.compiled(model, "inductor")
            found = model.grads(batch, run)
        except RuntimeError as error:
            if "InvalidCxxCompiler" not in type(error).__name__ + str(error):
                raise
            self.skipTest("SKIP: there is no C++ compiler for torch.compile")
        for a, b in zip(found, model.grads(batch, model)):
            self.assert_close(a, b)

    def test_both_halves_of_the_exchange_run_as_they_are(self):
        run, graphs = self.compiled(exchange)
        for tokens in (37, 5):
            batch = Batch(tokens)
            found, expected = (f(batch.x, batch.ids, batch.expert_weights) for f in (run, exchange))
            self.assertTrue(torch.equal(found, expected))
            grads = (torch.autograd.grad(y, batch.x, batch.dy)[0] for y in (found, expected))
            self.assertTrue(torch.equal(*grads))
        self.assertEqual(len(graphs) % 3, 0)

    def test_models_with_replaced_blocks_have_the_same_loss(self):
        tokens = torch.randint(0, 256, (2, 17), generator=torch.Generator().manual_seed(3))
        for name, block in layouts.LAYOUTS.items():
            torch._dynamo.reset()
            torch.manual_seed(1)
            model = Decoder(block)
            sluice_torch.replace_moe(model)
            run, graphs = self.compiled(model)
            found, expected = loss_of(run, tokens), loss_of(model, tokens)
            self.assertEqual(found.item(), expected.item(), name)
            self.assertGreater(len(graphs), 2, name)

    def test_one_graph_is_refused_in_words_that_name_the_cause(self):
        model, batch = Between(), Batch()
        arguments = (batch.x, batch.ids, batch.expert_weights)
        for whole in (
            lambda: self.compiled(model, fullgraph=True)[0](*arguments),
            lambda: torch.export.export(model, arguments),
        ):
            with self.assertRaisesRegex(Exception, r"disable.* wrapped function <function MoE\.forward"):
                whole()
        self.check(model.first, batch)  # the layer goes on


if __name__ == "__main__":
    unittest.main()
