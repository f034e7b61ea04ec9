"""Layers with a bias after both products, as gpt-oss has them: gradients, codes, adapters, states and ranks that share experts."""

import unittest

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from grouped import grouped
from moe_eager import BOUND, eager, error, route
from sluice_torch import state
from sluice_torch.encodings import codes
from sluice_torch.graphs import BIASES, WEIGHTS
from sluice_torch.layers import sharding
from sluice_torch.lora import LoRAConfig

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, LIMIT = 64, 96, 6, 2, 2.0
PARAMETERS = (*WEIGHTS, *BIASES)
# With codes of 4 bits or of rows, or products that round: the result is compared with their own numbers.
ROUNDED = 4e-2


def whole_parameters(activation="swiglu_oai"):
    made, before = torch.Generator().manual_seed(5), (1 if activation in ("silu", "relu2") else 2) * INTERMEDIATE
    shapes = (before, HIDDEN), (HIDDEN, INTERMEDIATE), (before,), (HIDDEN,)
    found = [torch.randn(EXPERTS, *shape, generator=made) / (shape[-1] ** 0.5 if len(shape) == 2 else 1) for shape in shapes]
    return dict(zip(PARAMETERS, (each.bfloat16().float() for each in found)))


def make(activation="swiglu_oai", **options):
    spelled = activation + f":{LIMIT:g}" * (activation == "swiglu_oai")
    options = grouped(**{"threads": 1, "timeout": 20, **options})
    layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, activation=spelled, bias=True, **options)
    with torch.no_grad():
        for name, whole in whole_parameters(activation).items():
            for each, tensor in sharding.shards_of(layer, name, whole[layer.local_experts]).items():
                getattr(layer, each).copy_(tensor)
    return layer


def numbers(layer):
    """The whole parameters of a layer in float32, of codes what they stand for."""
    found = whole_parameters(layer.shape.activation)
    for name in found:
        stored = layer.shape.stored(name)
        found[name] = codes.numbers_of(stored, *codes.tensors_of(stored, name, found[name]).values(), dtype=torch.float32)
    return found


def batch(tokens=31, seed=1, among=None):
    made = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, HIDDEN, generator=made).bfloat16().requires_grad_()
    dy = torch.randn(tokens, HIDDEN, generator=made).bfloat16()
    ids, weights = route(tokens, EXPERTS, TOP_K, seed, among)
    return x, ids, weights.requires_grad_(), dy


def expected_of(layer, x, ids, weights, dy):
    """y, and the gradients by name: of x, of the weights of pairs and of whole parameters."""
    leaves = [each.detach().float().requires_grad_() for each in (x, weights, *numbers(layer).values())]
    y = eager(leaves[0], ids, *leaves[1:4], layer.shape.activation, layer.shape.limit, leaves[4:])
    return y, dict(zip(("x", "expert_weights", *PARAMETERS), torch.autograd.grad(y, leaves, dy.float())))


def trained_of(layer):
    return {name: getattr(layer, name) for name in PARAMETERS if getattr(layer, name).requires_grad}


def run(layer, x, ids, weights, dy):
    """As expected_of(), of the layer: the gradients of its own parameters that are trained."""
    y, own = layer(x, ids, weights), trained_of(layer)
    return y, dict(zip(("x", "expert_weights", *own), torch.autograd.grad(y, [x, weights, *own.values()], dy)))


class BiasedTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(2)

    def check(self, layer, given, bound=BOUND, what=None):
        (y, found), (expected_y, expected) = run(layer, *given), expected_of(layer, *given)
        self.assertLess(error(y, expected_y), bound, what)
        for name, grad in found.items():
            self.assertEqual(grad.shape, expected[name].shape, name)
            self.assertLess(error(grad, expected[name]), bound, (what, name))
        return found

    def test_both_products_add_a_bias_that_has_a_gradient(self):
        for activation in ("swiglu_oai", "swiglu", "relu2"):
            for options in ({}, {"keep": "minimal"}, {"dtype": torch.float32}):
                found = self.check(make(activation, **options), batch(), what=(activation, options))
                self.assertEqual(found["down_bias"].dtype, options.get("dtype", torch.bfloat16))

    def test_any_number_of_rows_and_experts_without_rows(self):
        layer = make()
        for tokens in (1, 7, 130):
            found = self.check(layer, batch(tokens, tokens, among=4), what=tokens)
            for name in BIASES:
                self.assertEqual(found[name][4:].abs().max().item(), 0, name)
        y, found = run(layer, *batch(0))
        self.assertEqual((len(y), [found[name].abs().max().item() for name in BIASES]), (0, [0, 0]))

    def test_biases_count_where_nothing_else_does(self):
        layer = make("swiglu")
        with torch.no_grad():
            layer.gate_up_weight.zero_()
            layer.down_weight.zero_()
            x, ids, weights, _ = batch()
            expected = torch.einsum("tk,tkh->th", weights, layer.down_bias.float()[ids])
            self.assertLess(error(layer(x, ids, weights), expected), 2**-8)

    def test_new_layers_have_biases_of_zeros(self):
        layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, bias=True)
        plain = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K)
        self.assertEqual([tuple(getattr(layer, name).shape) for name in BIASES], [(EXPERTS, 2 * INTERMEDIATE), (EXPERTS, HIDDEN)])
        self.assertEqual([getattr(layer, name).abs().max().item() for name in BIASES], [0, 0])
        plain.load_state_dict({name: each for name, each in layer.state_dict().items() if name in WEIGHTS})
        x, ids, weights, _ = batch()
        self.assertTrue(torch.equal(layer(x, ids, weights), plain(x, ids, weights)))
        self.assertIn("bias=True", repr(layer))
        self.assertNotIn("bias", repr(plain))

    def test_codes_have_biases_of_numbers(self):
        for encode in ("int8", "int8,rows=int8", "int4:g32z", "mxfp4", "nvfp4"):
            layer = make("swiglu" if "rows" in encode else "swiglu_oai", encode=encode)  # codes of rows cross a limit
            self.assertEqual(list(trained_of(layer)), [], encode)
            self.assertEqual([getattr(layer, name).dtype for name in BIASES], [torch.bfloat16] * 2)
            self.check(layer, batch(), ROUNDED, encode)
            for name in BIASES:
                getattr(layer, name).requires_grad_(True)
            self.assertEqual(list(self.check(layer, batch(), ROUNDED, encode))[2:], list(BIASES), encode)

    def test_products_that_round_add_biases_that_are_not_rounded(self):
        for encode in ("mxfp8", "fp8e4m3", "fp8e4m3:delayed"):
            layer, given = make(encode=encode), batch()
            found = self.check(layer, given, 0.2, encode)["down_bias"]
            self.assertLess(error(found, expected_of(layer, *given)[1]["down_bias"]), BOUND, encode)

    def test_gradients_are_computed_where_they_are_required(self):
        for trained in (("gate_up_bias",), ("down_bias",), ("down_weight", "gate_up_bias")):
            layer = make()
            for name in PARAMETERS:
                getattr(layer, name).requires_grad_(name in trained)
            self.assertEqual(list(self.check(layer, batch(), what=trained))[2:], list(trained))

    def test_main_grads_of_biases_are_added_to(self):
        layer, given = make(), batch()
        expected = expected_of(layer, *given)[1]
        for name in ("down_weight", *BIASES):
            getattr(layer, name).main_grad = torch.ones(getattr(layer, name).shape)
        for _ in range(2):
            layer(*given[:3]).backward(given[3])
        for name in PARAMETERS:
            parameter, twice = getattr(layer, name), 2 * expected[name]
            if name == "gate_up_weight":
                self.assertLess(error(parameter.grad, twice), BOUND)
                continue
            self.assertIsNone(parameter.grad)
            self.assertLess(error(parameter.main_grad - 1, twice), BOUND, name)

    def test_adapters_train_beside_frozen_biases(self):
        config = LoRAConfig(rank=4, alpha=8)
        for encode in (None, "mxfp4"):
            layer, (x, ids, weights, dy) = make(lora=config, encode=encode), batch()
            self.assertEqual(list(trained_of(layer)), [])
            parameters = [getattr(layer, name) for name in config.names()]
            for each in parameters:
                torch.nn.init.normal_(each, std=0.1)
            y = layer(x, ids, weights)
            found = [y, *torch.autograd.grad(y, [x, *parameters], dy)]
            leaves = [each.detach().float().requires_grad_() for each in (x, *parameters)]
            gate_a, gate_b, up_a, up_b, down_a, down_b = leaves[1:]
            gate_up, down, *biases = numbers(layer).values()
            gate_up = gate_up + 2 * torch.cat([gate_b @ gate_a, up_b @ up_a], 1)
            expected = eager(leaves[0], ids, weights, gate_up, down + 2 * down_b @ down_a, "swiglu_oai", LIMIT, biases)
            for a, b in zip(found, [expected, *torch.autograd.grad(expected, leaves, dy.float())]):
                self.assertLess(error(a, b), 2 * ROUNDED, encode)

    def test_other_ways_to_run_a_step_add_biases_too(self):
        layer, given = make(pack_frozen=True), batch()
        layer.requires_grad_(False)
        x, ids, weights, _ = given
        expected = expected_of(layer, *given)[0]
        layer.prepare(64)
        with torch.no_grad():
            found = [layer(x, ids, weights), layer.submit_forward(x, ids, weights).wait()]
            counts = torch.tensor([9, 0, 4, 3, 0, 15])
            each = torch.arange(EXPERTS).repeat_interleave(counts)[:, None]
            found_sorted = layer.forward_sorted(x, counts)
            layer.down_bias.add_(1.0)
            changed = layer(x, ids, weights)
        for y in found:
            self.assertLess(error(y, expected), BOUND)
        expected_sorted = expected_of(layer, x, each, torch.ones(each.shape), torch.zeros(x.shape))[0]
        self.assertLess(error(found_sorted, expected_sorted), BOUND)
        self.assertLess(error(changed, expected + weights.sum(1, keepdim=True)), BOUND)

    def test_copies_of_an_expert_have_equal_biases(self):
        layer, given = make(spare=3), batch()
        expected_y, expected = expected_of(layer, *given)
        sluice_torch.balance(layer)
        y, found = run(layer, *given)
        self.assertLess(error(y, expected_y), BOUND)
        for name in PARAMETERS:
            for place, expert in enumerate(layer.local_experts):
                self.assertLess(error(found[name][place], expected[name][expert]), 3e-2, (name, place))

    def test_states_are_cut_for_ranks_and_joined_again(self):
        whole = make().state_dict()
        self.assertEqual(set(whole), set(PARAMETERS))
        for ranks, tp in ((2, 2), (4, 2), (3, 1)):
            parts = state.reshard([whole], ranks, tp=tp)
            self.assertEqual(parts[0]["gate_up_bias"].shape[1], 2 * INTERMEDIATE // tp)
            self.assertEqual(parts[0]["down_bias"].shape[1], HIDDEN)
            for name, tensor in state.reshard(parts, 1)[0].items():
                self.assertTrue(torch.equal(tensor, whole[name]), name)

    def test_what_is_no_bias_is_refused(self):
        with self.assertRaisesRegex(ValueError, "bias is 1, expected True or False"):
            sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, bias=1)
        layer, (x, ids, weights, _) = make(), batch()
        layer.down_bias = torch.nn.Parameter(torch.zeros(EXPERTS, HIDDEN + 1, dtype=torch.bfloat16))
        with self.assertRaisesRegex(ValueError, r"down_bias has shape \[6, 65\], expected \[6, 64\]"):
            layer(x, ids, weights)
        tuning = sluice_torch.FineTuning(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, bias=True)
        self.assertEqual(list(trained_of(tuning.layer)), [])
        gate, up = torch.zeros(2, EXPERTS, INTERMEDIATE, HIDDEN)
        with self.assertRaisesRegex(ValueError, "load_weights sets no biases, and the layer has some: expected load_experts"):
            tuning.load_weights(gate, up, gate.transpose(1, 2))

    def test_ranks_share_experts(self):
        core_jobs.run_ranks(self, "shared", 2)

    def test_distributed_data_parallel_divides_gradients_of_biases(self):
        core_jobs.run_ranks(self, "divided", 2)

    def test_ranks_have_copies_of_experts(self):
        core_jobs.run_ranks(self, "balanced", 2)


def shared(rank, size):
    options = ({}, {"tp": 2}, {"tp": 2, "tokens": "same"}, {"tp": 2, "encode": "int8"}, {"tp": 2, "dtype": torch.float32})
    for option in (*options, {"tp": 2, "lora": LoRAConfig(2)}):
        layer = make(ep_group=dist.group.WORLD, **option)
        for name in BIASES:
            getattr(layer, name).requires_grad_(True)
        is_same = layer.shape.tokens == "same"
        given = [batch((29, 17)[number], number) for number in range(2)]
        own = given[0 if is_same else rank]
        y, found = run(layer, *own)
        expected = [expected_of(layer, *each) for each in given]
        bound = ROUNDED if layer.shape.has_codes else BOUND
        mine = expected[0 if is_same else rank]
        for name, a, b in zip(("y", "x", "expert_weights"), (y, *found.values()), (mine[0], *mine[1].values())):
            assert error(a, b) < bound, (option, name, error(a, b))
        for name in PARAMETERS:
            if name not in found:
                continue
            whole = mine[1][name] if is_same else expected[0][1][name] + expected[1][1][name]
            part = sharding.take(name, whole[layer.local_experts], layer.shard, layer.shape.tp)
            assert error(found[name], part) < bound, (option, name, error(found[name], part))
        if layer.shape.tp == 2 and "down_bias" in found:  # every shard has the whole of it, with the same bits
            others = layer._group.gather_shards(found["down_bias"], EXPERTS, "compare")
            assert torch.equal(*others), option
            assert not layer.down_bias.tensor_model_parallel and layer.gate_up_bias.tensor_model_parallel
            check_norm(layer, found)
        assert {f"p.{name}" for name in PARAMETERS} <= set(layer.sharded_state_dict("p.")), option
        whole = state.full(torch.nn.ModuleList([layer]))
        for name, tensor in whole_parameters().items():
            if not layer.shape.has_codes or name in BIASES:
                assert torch.equal(whole[f"0.{name}"].float(), tensor), (option, name)


def check_norm(layer, found):
    """A norm of gradients counts each number once, of whatever part of it the shards have."""
    for name, grad in found.items():
        if name in PARAMETERS:
            getattr(layer, name).grad = grad
    trained = trained_of(layer)
    shards = layer._group.gather_objects({name: each.grad for name, each in trained.items()}, "compare")
    whole = [sharding.join(name, [shard[name] for shard in shards]) for name in trained]
    expected = torch.stack([each.float().norm() for each in whole]).norm()
    assert error(sluice_torch.clip_grad_norm_(list(trained.values()), 1e9), expected) < 1e-5


class Model(torch.nn.Module):
    """A layer beside a parameter that all ranks have."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.experts = make(ep_group=dist.group.WORLD, dtype=torch.float32)

    def forward(self, x, ids, weights):
        return self.experts(x, ids, weights) * self.scale


def divided(rank, size):
    """Gradients of biases are divided as DistributedDataParallel divides those of the other parameters."""
    x, ids, weights, dy = batch((29, 17)[rank], rank)
    model, grads = Model(), []
    for wrap in (lambda model: model, torch.nn.parallel.DistributedDataParallel):
        wrap(model)(x, ids, weights).backward(dy)
        grads.append([getattr(model.experts, name).grad for name in PARAMETERS])
        model.zero_grad(set_to_none=True)
    for name, plain, mean in zip(PARAMETERS, *grads):
        assert error(mean, plain / size) < 1e-6, name


def balanced(rank, size):
    layer = make(ep_group=dist.group.WORLD, spare=2)
    given = [batch((29, 17)[number], number, among=3) for number in range(2)]
    layer(*given[rank][:3])
    sluice_torch.balance(layer)
    y, found = run(layer, *given[rank])
    expected = [expected_of(layer, *each) for each in given]
    assert error(y, expected[rank][0]) < BOUND
    for name in PARAMETERS:
        whole = expected[0][1][name] + expected[1][1][name]
        assert error(found[name], whole[layer.local_experts]) < BOUND, name


if __name__ == "__main__" and not core_jobs.main({"shared": shared, "divided": divided, "balanced": balanced}):
    unittest.main()
