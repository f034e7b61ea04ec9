"""sluice_torch.MoE with delay_wgrad_compute: backward_dw() gives parameters the bits that a backward gives them without."""

import copy
import types
import unittest

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from grouped import grouped
from moe_eager import route
from sluice_torch import LoRAConfig
from sluice_torch.te import TEColumnParallelLinear, TERowParallelLinear
from torch.utils.checkpoint import checkpoint

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 64, 128, 8, 2

# What both layers of a comparison have.
OPTIONS = {
    "bfloat16": {},
    "float32": {"dtype": torch.float32},
    "minimal": {"keep": "minimal"},
    "adapters": {"lora": LoRAConfig(8)},
    "adapters of codes": {"lora": LoRAConfig(8, targets=("down",)), "encode": "int8"},
    "mxfp8": {"encode": "mxfp8,grads=mxfp8e5m2"},
    "amaxes of the step": {"encode": "fp8e4m3"},
    "amaxes of earlier steps": {"encode": "fp8e4m3:delayed"},
    "places": {"spare": 2},
    "no gate": {"activation": "relu2"},
    "biases": {"bias": True},
}
# f: forward, b: backward, w: backward_dw, s: submit_backward_dw, for which the end waits; of two micro-batches.
ORDERS = {
    "interleaved": "f0 f1 b0 b1 w w",
    "1F1B": "f0 f1 b0 w b1 w",
    "in turn": "f0 b0 w f1 b1 w",
    "last": "f0 b0 f1 b1 w w",
    "submitted": "f0 b0 s f1 b1 s",
    "submitted often": "f0 f1 b0 s b1 s " * 10,
}


def make(group=None, **options):
    torch.manual_seed(3)
    layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, **grouped(ep_group=group, threads=2, **options))
    for name, each in layer.named_parameters():
        if name.endswith("lora_b"):
            torch.nn.init.normal_(each, std=0.1)
    return layer


class Batch:
    """Tensors of a step."""

    def __init__(self, tokens, seed, among=None):
        made = torch.Generator().manual_seed(seed)
        self.x, self.dy = (torch.randn(tokens, HIDDEN, generator=made).bfloat16() for _ in range(2))
        self.ids, self.weights = route(tokens, EXPERTS, TOP_K, seed, among)
        self.x.requires_grad_(), self.weights.requires_grad_()

    def run(self, layer):
        return layer(self.x, self.ids, self.weights)


def batches(rank=0):
    """They have different sizes; the second uses the first three experts."""
    return [Batch(37 - 5 * rank, 1 + rank), Batch(90 + rank, 11 + rank, among=3)]


def train(layer, order, given):
    """The steps of `order`, and all gradients by name. Without delay_wgrad_compute there is no w and no s."""
    ys, submitted = {}, []
    for step in order.split():
        if step[0] == "f":
            ys[step[1:]] = given[int(step[1:])].run(layer)
        elif step[0] == "b":
            ys.pop(step[1:]).backward(given[int(step[1:])].dy)
        elif layer.delay_wgrad_compute and step == "w":
            layer.backward_dw()
        elif layer.delay_wgrad_compute:
            submitted.append(layer.submit_backward_dw())
    for each in submitted:
        each.wait(), each.wait()
        assert each.done()
    found = {name: each.grad for name, each in layer.named_parameters()}
    for number, each in enumerate(given):
        found |= {f"x {number}": each.x.grad, f"weights {number}": each.weights.grad}
    return found


def check_same(found, expected):
    assert found.keys() == expected.keys()
    for name, each in expected.items():
        assert (each is None) == (found[name] is None), name
        assert each is None or torch.equal(each, found[name]), name
    assert any(each is not None and each.count_nonzero() for each in expected.values())


def compare(order, given, group=None, prepare=lambda layer: None, **options):
    """Trains a layer with delayed gradients, and one without, from the same parameters."""
    layers = [make(group, **options), make(group, delay_wgrad_compute=True, **options)]
    found = []
    for layer in layers:
        prepare(layer)
        found.append(train(layer, order, given()))
    check_same(found[1], found[0])
    return layers


def train_linear(kind, rank, size, delay, x_requires_grad=True, main_grad=False, dtype=torch.bfloat16, **options):
    """Two interleaved micro-batches of a linear layer, and all gradients by name."""
    torch.manual_seed(4 + rank)
    config = types.SimpleNamespace(
        sequence_parallel=True, params_dtype=dtype, delay_wgrad_compute=delay, gradient_accumulation_fusion=main_grad
    )
    group = dist.group.WORLD if dist.is_initialized() else None
    layer = kind(HIDDEN, INTERMEDIATE, config=config, tp_group=group, threads=1, timeout=20, **options)
    for each in layer.parameters():
        each.main_grad = torch.ones(each.shape)
    column = kind is TEColumnParallelLinear
    ins, outs = (HIDDEN, INTERMEDIATE // size) if column else (HIDDEN // size, INTERMEDIATE)
    here, everywhere = (5, 5 * size) if column else (6 * size, 6)
    xs = [torch.randn(here, 3, ins).bfloat16().requires_grad_(x_requires_grad) for _ in range(2)]
    dys = [torch.randn(everywhere, 3, outs).bfloat16() for _ in range(2)]
    ys = [layer(x)[0] for x in xs]
    for y, dy in zip(ys, dys):
        y.backward(dy)
    before = layer.weight.grad
    for _ in range(2):
        layer.backward_dw()
    assert main_grad or (before is None) == delay
    return {"x": xs[0].grad, "more x": xs[1].grad, **{name: each.grad for name, each in layer.named_parameters()}, "main": layer.weight.main_grad}


def linear(rank=0, size=1):
    for kind in (TEColumnParallelLinear, TERowParallelLinear):
        for options in (
            {},
            {"keep": "regather"},
            {"x_requires_grad": False},
            {"main_grad": True},
            {"dtype": torch.float32},
            {"bias": False},
            {"encode": "mxfp8"},
            {"encode": "fp8e4m3:delayed"},
        ):
            check_same(*(train_linear(kind, rank, size, delay, **options) for delay in (True, False)))


class DelayedTest(unittest.TestCase):
    def test_gradients_have_the_same_bits_in_any_order(self):
        for name, order in ORDERS.items():
            with self.subTest(name):
                compare(order, batches)

    def test_gradients_have_the_same_bits_with_any_options(self):
        for name, options in OPTIONS.items():
            with self.subTest(name):
                compare(ORDERS["interleaved"], batches, **options)

    def test_gradients_have_the_same_bits_without_tokens(self):
        compare(ORDERS["1F1B"], lambda: [Batch(0, 1), Batch(9, 2)])

    def test_gradients_of_parameters_alone_have_the_same_bits(self):
        def frozen_inputs():
            given = batches()
            for each in given:
                each.x.requires_grad_(False), each.weights.requires_grad_(False)
            return given

        compare(ORDERS["interleaved"], frozen_inputs)
        compare(ORDERS["interleaved"], batches, prepare=lambda layer: layer.down_weight.requires_grad_(False))

    def test_nothing_is_delayed_where_no_parameter_is_trained(self):
        layer = make(delay_wgrad_compute=True).requires_grad_(False)
        given = batches()[0]
        given.run(layer).backward(given.dy)
        self.assertIsNotNone(given.x.grad)
        with self.assertRaisesRegex(RuntimeError, "no backward waits for its weight gradients"):
            layer.backward_dw()

    def test_gradients_are_added_to_main_grad_with_its_attributes(self):
        def prepare(layer):
            for each in layer.parameters():
                each.main_grad = torch.ones(each.shape)
                each.grad_added_to_main_grad, each.zero_out_wgrad = False, True

        for options in ({}, {"lora": LoRAConfig(8)}, {"spare": 2}):
            plain, delayed = compare(ORDERS["interleaved"], batches, prepare=prepare, **options)
            for (name, a), b in zip(plain.named_parameters(), delayed.parameters()):
                self.assertEqual(a.grad_added_to_main_grad, a.requires_grad, name)
                self.assertEqual(b.grad_added_to_main_grad, b.requires_grad, name)
                self.assertTrue(torch.equal(a.main_grad, b.main_grad), name)
                self.assertEqual(bool((b.main_grad != 1).any()), b.requires_grad, name)

    def test_a_backward_leaves_parameters_alone_until_backward_dw(self):
        layer, given = make(delay_wgrad_compute=True), batches()[0]
        hooked, accumulators = [], []
        for name, each in layer.named_parameters():
            accumulators.append(each.expand_as(each).grad_fn.next_functions[0][0])
            accumulators[-1].register_hook(lambda *_, name=name: hooked.append(name))
        given.run(layer).backward(given.dy)
        self.assertEqual(hooked, [])
        self.assertTrue(all(each.grad is None for each in layer.parameters()))
        layer.backward_dw()
        self.assertEqual(sorted(hooked), ["down_weight", "gate_up_weight"])

    def test_gradients_of_the_step_are_those_of_parameters_without_a_copy(self):
        layer = make(delay_wgrad_compute=True)
        given = batches()
        for each in given:
            each.run(layer).backward(each.dy)
        computed = layer._compute(False)
        places = [each.data_ptr() for each in computed[1]]
        layer._compute = lambda submits: computed
        layer.backward_dw()
        self.assertEqual([each.grad.data_ptr() for each in layer.parameters()], places)
        del layer._compute
        layer.submit_backward_dw().wait()
        self.assertEqual([each.grad.data_ptr() for each in layer.parameters()], places)  # the second are added

    def test_parameters_may_change_before_backward_dw(self):
        layer, given = make(delay_wgrad_compute=True), batches()[0]
        expected = train(make(), "f0 b0", [batches()[0]])
        given.run(layer).backward(given.dy)
        with torch.no_grad():
            layer.down_weight.mul_(2)
        layer.backward_dw()
        self.assertTrue(torch.equal(layer.down_weight.grad, expected["down_weight"]))

    def test_a_parameter_that_the_gradients_need_may_not_change(self):
        layer, given = make(delay_wgrad_compute=True), batches()[0]
        given.x.requires_grad_(False), given.weights.requires_grad_(False)
        given.run(layer).backward(given.dy)
        with torch.no_grad():
            layer.down_weight.mul_(2)
        with self.assertRaisesRegex(RuntimeError, "down_weight was changed in place since the backward"):
            layer.backward_dw()

    def test_checkpointing_delays_the_gradients_of_the_second_forward(self):
        expected = train(make(), "f0 b0", [batches()[0]])
        for reentrant in (True, False):
            layer, given = make(delay_wgrad_compute=True), batches()[0]
            y = checkpoint(layer, given.x, given.ids, given.weights, use_reentrant=reentrant)
            y.backward(given.dy)
            layer.backward_dw()
            found = {name: each.grad for name, each in layer.named_parameters()}
            check_same({**found, "x 0": given.x.grad, "weights 0": given.weights.grad}, expected)

    def test_a_graph_that_is_retained_needs_backward_dw_between_two_backwards(self):
        layer, given = make(delay_wgrad_compute=True), batches()[0]
        y = given.run(layer)
        y.backward(given.dy, retain_graph=True)
        with self.assertRaisesRegex(RuntimeError, "a second backward of this forward"):
            y.backward(given.dy, retain_graph=True)
        layer.backward_dw()
        once = layer.down_weight.grad.clone()
        y.backward(given.dy)
        layer.backward_dw()
        self.assertTrue(torch.equal(layer.down_weight.grad, 2 * once))

    def test_a_backward_that_needs_no_parameter_is_not_counted(self):
        layer, given = make(delay_wgrad_compute=True), batches()[0]
        torch.autograd.grad(given.run(layer), given.x, given.dy)
        with self.assertRaisesRegex(RuntimeError, "no backward waits for its weight gradients, expected one backward"):
            layer.backward_dw()

    def test_backward_dw_of_a_layer_without_the_option_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "backward_dw without delay_wgrad_compute=True"):
            make().backward_dw()

    def test_experts_do_not_move_while_gradients_wait(self):
        layer, given = make(delay_wgrad_compute=True, spare=0), batches()[0]
        given.run(layer).backward(given.dy)
        with self.assertRaisesRegex(RuntimeError, "place: 1 backwards wait for their weight gradients"):
            layer.place(list(range(EXPERTS))[::-1])
        layer.backward_dw()
        layer.place(list(range(EXPERTS))[::-1])

    def test_saved_sets_are_free_after_backward_dw_or_with_the_layer(self):
        before = sluice_torch.memory()["saved_sets_in_use"]
        layer = make(delay_wgrad_compute=True)
        for given in batches():
            given.run(layer).backward(given.dy)
        self.assertEqual(sluice_torch.memory()["saved_sets_in_use"], before + 2)
        layer.backward_dw()
        self.assertEqual(sluice_torch.memory()["saved_sets_in_use"], before + 1)
        del layer
        self.assertEqual(sluice_torch.memory()["saved_sets_in_use"], before)

    def test_a_copy_of_a_layer_has_no_gradients_that_wait(self):
        layer, given = make(delay_wgrad_compute=True), batches()[0]
        given.run(layer).backward(given.dy)
        other = copy.deepcopy(layer)
        with self.assertRaisesRegex(RuntimeError, "no backward waits"):
            other.backward_dw()
        layer.backward_dw()

    def test_submitted_forwards_and_preparations_know_of_delayed_gradients(self):
        layer, given = make(delay_wgrad_compute=True), batches()
        layer.prepare_backward()
        steps = [layer.submit_forward(each.x, each.ids, each.weights) for each in given]
        for step, each in zip(steps, given):
            step.wait().backward(each.dy)
            layer.backward_dw()
        found = {name: each.grad for name, each in layer.named_parameters()}
        for number, each in enumerate(given):
            found |= {f"x {number}": each.x.grad, f"weights {number}": each.weights.grad}
        check_same(found, train(make(), "f0 f1 b0 b1", batches()))

    def test_linear_layers_delay_the_gradients_of_weight_and_bias(self):
        linear()
        core_jobs.run_ranks(self, "linear", 2)

    def test_ranks_have_the_same_bits(self):
        core_jobs.run_ranks(self, "several_orders", 2)
        core_jobs.run_ranks(self, "several_options", 2)
        core_jobs.run_ranks(self, "shards", 2)

    def test_an_error_of_one_rank_is_raised_at_all(self):
        core_jobs.run_ranks(self, "errors", 2)


def several_orders(rank, size):
    for order in ORDERS.values():
        compare(order, lambda: batches(rank), dist.group.WORLD)
    compare(ORDERS["1F1B"], lambda: [Batch(9 if rank else 0, 1), Batch(0, 2)], dist.group.WORLD)


def several_options(rank, size):
    for options in OPTIONS.values():
        compare(ORDERS["interleaved"], lambda: batches(rank), dist.group.WORLD, **options)


def shards(rank, size):
    """Gradients of adapters are sums over the ranks, also those that are added to a main_grad."""

    def prepare(layer):
        for each in layer.parameters():
            each.main_grad = torch.ones(each.shape)

    for options in ({}, {"lora": LoRAConfig(8)}):
        compare(ORDERS["1F1B"], lambda: batches(rank), dist.group.WORLD, tp=2, **options)
        layers = compare(ORDERS["1F1B"], lambda: batches(rank), dist.group.WORLD, prepare, tp=2, **options)
        for a, b in zip(*(layer.parameters() for layer in layers)):
            assert torch.equal(a.main_grad, b.main_grad)


def errors(rank, size):
    layer, given = make(dist.group.WORLD, delay_wgrad_compute=True), batches(rank)
    given[0].run(layer).backward(given[0].dy)
    if rank:
        layer._delayed = torch.classes.sluice.WeightGradQueue()  # as if rank 1 had run no backward
    try:
        layer.backward_dw()
    except RuntimeError as error:
        assert "no backward waits" in str(error) and (rank or "rank 1: " in str(error)), error
    else:
        raise AssertionError("expected an error")
    layer.zero_grad()
    given[0].run(layer).backward(given[0].dy)
    layer.backward_dw()
    assert layer.down_weight.grad.count_nonzero()
    try:
        given[0].run(make(dist.group.WORLD, activation="relu2", delay_wgrad_compute=rank == 1))
    except RuntimeError as error:
        assert "rank 1 passed delay_wgrad_compute as True to MoE, but rank 0 passed False" in str(error), error
    else:
        raise AssertionError("expected an error")


if __name__ == "__main__" and not core_jobs.main(globals()):
    unittest.main()
