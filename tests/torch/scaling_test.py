"""What layers with delayed scaling keep: when histories change, which scales a backward and a repeated forward have, states,
copies, ranks and errors."""

import copy
import io
import pickle
import types
import unittest

import core_jobs
import fp8
import sluice_torch
import torch
import torch.distributed as dist
from autocast_test import DY, EXPERTS, HIDDEN, IDS, INTERMEDIATE, TOP_K, WEIGHTS, X, grads_of
from grouped import grouped
from moe_eager import BOUND, error, route
from encodings_test import check_refused
from sluice_torch import Steps, fp8_autocast, state, te
from sluice_torch.recipe import DelayedScaling, Float8CurrentScaling, Format
from torch.utils.checkpoint import checkpoint

ROLES = {*fp8.ROWS, *fp8.GRADS}
FAST = DelayedScaling(amax_history_len=2)


def make(recipe=FAST, **options):
    torch.manual_seed(0)
    return sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, encode=recipe, **grouped(threads=2, **options))


def plain(**options):
    torch.manual_seed(0)
    return sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, **grouped(threads=2, **options))


def histories(layer):
    """What a layer keeps, by name."""
    saved = layer.state_dict().get("_extra_state")
    return {} if saved is None else torch.load(io.BytesIO(bytes(saved.tolist())))


def steps(layer):
    return {name: each["steps"] for name, each in histories(layer).items()}


def same(a, b):
    """Whether two layers keep the same."""
    return pickle.dumps(torch_free(histories(a))) == pickle.dumps(torch_free(histories(b)))


def torch_free(found):
    return {name: [each["amaxes"].tolist(), each["used"].tolist(), each["steps"]] for name, each in found.items()}


def forward(layer, factor=1.0):
    return layer(X * factor, IDS, WEIGHTS)


def train(layer, count=1, first=0):
    """Steps whose rows have other magnitudes each time. Returns the last gradient of x."""
    for number in range(first, first + count):
        y = forward(layer, 4.0**number)
        grad = torch.autograd.grad(y, X, DY * 2.0**-number)[0]
    return grad


class ScalingTest(unittest.TestCase):
    def test_steps_in_training_mode_change_histories(self):
        layer = make()
        self.assertEqual(steps(layer), {})
        self.assertNotIn("_extra_state", layer.state_dict())
        with torch.no_grad():
            layer.eval()(X, IDS, WEIGHTS)
            layer.train().submit_forward(X, IDS, WEIGHTS).wait()
        y = forward(layer.eval())
        torch.autograd.grad(y, X, DY)
        self.assertEqual(steps(layer), {})
        with torch.no_grad():
            forward(layer.train())
        self.assertEqual(steps(layer), dict.fromkeys(fp8.ROWS, 1))
        y = forward(layer)
        self.assertEqual(steps(layer), dict.fromkeys(fp8.ROWS, 2))
        for count in (1, 2):
            torch.autograd.grad(y, X, DY, retain_graph=True)
            self.assertEqual(steps(layer), {**dict.fromkeys(fp8.ROWS, 2), **dict.fromkeys(fp8.GRADS, count)})
        with self.assertRaises(ValueError):
            layer(X, IDS + EXPERTS, WEIGHTS)
        self.assertEqual(steps(layer)["act"], 2)

    def test_steps_in_inference_mode_do_not_hinder_others(self):
        for recipe in (FAST, Float8CurrentScaling()):
            layer, twin = make(recipe), make(recipe)
            for each, mode in ((layer, torch.inference_mode()), (twin, torch.no_grad())):
                with mode:
                    forward(each)
            for _ in range(2):
                self.assertTrue(torch.equal(train(layer), train(twin)))
            self.assertTrue(same(layer, twin))

    def test_a_first_step_scales_by_its_own_amaxes(self):
        for recipe, current in ((FAST, Float8CurrentScaling()), (DelayedScaling(3, fp8_format=Format.E4M3), Float8CurrentScaling(Format.E4M3))):
            layer, twin = make(recipe), make(current)
            with torch.no_grad():
                self.assertTrue(torch.equal(forward(layer.eval()), forward(twin)))
                self.assertTrue(torch.equal(layer.submit_forward(X, IDS, WEIGHTS).wait(), forward(twin)))
            ys = [forward(layer.train(), factor) for factor in (1.0, 8.0)]  # gradients have none yet
            for y, factor in zip(ys, (1.0, 8.0)):
                expected = forward(twin, factor)
                self.assertTrue(torch.equal(y, expected))
                for a, b in zip(grads_of(layer, y), grads_of(twin, expected)):
                    self.assertTrue(torch.equal(a, b), recipe)
            self.assertEqual(steps(layer), dict.fromkeys(ROLES, 2))

    def test_histories_are_those_of_the_rule(self):
        for arguments in ((2, "max", 1, 1), (3, "most_recent", -2, 2), (1, "max", 0, 3)):
            length, algorithm, margin, interval = arguments
            recipe = DelayedScaling(margin, interval, Format.E4M3, length, algorithm)
            layer, rule = make(recipe), fp8.Rule(*arguments)
            for number in range(7):
                given = X * 4.0 ** (number % 4)
                train(layer, 1, number % 4)
                rule.add(torch.stack([fp8.amax_of(given[(IDS == expert).any(1)]) for expert in range(EXPERTS)]).detach())
                kept = histories(layer)["rows_x"]
                self.assertTrue(torch.equal(kept["used"][:, 0], rule.used.float()), (arguments, number))
                self.assertEqual(kept["steps"], number + 1)
                self.assertEqual(len(kept["amaxes"]), length)
                newest = [kept["amaxes"][step % length] for step in range(max(0, number + 1 - length), number + 1)]
                self.assertTrue(torch.equal(torch.stack(newest)[..., 0], torch.stack(rule.history).float()))

    def test_a_backward_has_the_scales_of_its_forward(self):
        for keep in ("all", "minimal"):
            with self.subTest(keep=keep):
                self.check_backwards(make(keep=keep), make())

    def check_backwards(self, layer, twin):
        train(layer, 2), train(twin, 2)
        expected = train(twin, 1, 2)
        y = forward(layer, 16.0)
        others = [forward(layer, factor) for factor in (64.0, 1.0)]  # histories change in between
        found = torch.autograd.grad(y, X, DY / 4)[0]
        self.assertTrue(torch.equal(found, expected))
        again = forward(layer, 16.0)
        self.assertFalse(torch.equal(torch.autograd.grad(again, X, DY / 4)[0], expected))  # so this test would notice
        for each in reversed(others):
            torch.autograd.grad(each, X, DY)
        self.assertEqual(steps(layer), dict.fromkeys(ROLES, 6))

    def test_gradients_that_are_accumulated_are_those_of_several_steps(self):
        layer, twin = make(), make()
        for each in (layer, twin):
            train(each, 2)
        parts = []
        for number in range(2):
            forward(layer, 2.0**number).backward(DY)
            parts.append(torch.autograd.grad(forward(twin, 2.0**number), twin.down_weight, DY)[0])
        X.grad = None
        self.assertTrue(torch.equal(layer.down_weight.grad, parts[0] + parts[1]))
        self.assertTrue(same(layer, twin))

    def test_repeated_forwards_have_the_scales_of_the_first(self):
        for reentrant in (True, False):
            for in_context in (False, True):
                layer, twin = (plain() if in_context else make() for _ in range(2))
                found, expected = [], []
                for repeats, each, to in ((True, layer, found), (False, twin, expected)):
                    for _ in range(3):  # the first ones before any gradient has a history
                        ys = []
                        for factor in (1.0, 64.0, 4.0):  # three micro-batches in flight
                            with fp8_autocast(enabled=in_context, fp8_recipe=FAST):
                                if repeats:
                                    y = checkpoint(lambda x, f=factor: each(x * f, IDS, WEIGHTS), X, use_reentrant=reentrant)
                                else:
                                    y = forward(each, factor)
                            ys.append(y)
                        to += [grad for y in ys for grad in (y.detach(), *grads_of(each, y))]
                for number, (a, b) in enumerate(zip(found, expected)):
                    self.assertTrue(torch.equal(a, b), (reentrant, in_context, number))
                self.assertTrue(same(layer, twin))
                self.assertEqual(set(steps(layer).values()), {9})

    def test_repeated_forwards_scale_as_the_first_where_gradients_are_new(self):
        layer = make()
        layer.gate_up_weight.requires_grad_(False)
        for number in range(2):
            layer(X.detach() * 4.0**-number, IDS, WEIGHTS).backward(DY)
        self.assertEqual(set(steps(layer)), ROLES - {"gate_up_grad"})
        layer.gate_up_weight.requires_grad_(True)
        found = []

        def keep(x):
            found.append(layer(x / 16, IDS, WEIGHTS))
            return found[-1]

        checkpoint(keep, X, use_reentrant=True).backward(DY)  # the first one does not know which gradients it needs
        self.assertTrue(torch.equal(*found))
        self.assertEqual(set(steps(layer)), ROLES)

    def test_states_continue_where_they_were_saved(self):
        layer = make()
        train(layer, 3)
        saved = copy.deepcopy(layer.state_dict())
        self.assertEqual(set(saved), {"gate_up_weight", "down_weight", "_extra_state"})
        file = io.BytesIO()
        torch.save(saved, file)
        expected, after = train(layer, 1), histories(layer)
        fresh = make()
        self.assertFalse(torch.equal(train(fresh, 1), expected))
        others = [fresh, layer, pickle.loads(pickle.dumps(make())), plain()]
        for each in others:
            file.seek(0)
            self.assertEqual(str(each.load_state_dict(torch.load(file))), "<All keys matched successfully>")
            with fp8_autocast(fp8_recipe=FAST):
                self.assertTrue(torch.equal(train(each, 1), expected))
            self.assertEqual(torch_free(histories(each)), torch_free(after))

    def test_states_without_histories_load(self):
        layer = make()
        before = train(layer, 1)
        train(layer, 2)
        self.assertFalse(torch.equal(train(layer, 1), before))
        layer.load_state_dict(plain().state_dict())
        self.assertEqual(steps(layer), {})
        self.assertTrue(torch.equal(train(layer, 1), before))
        kept = steps(layer)
        layer.load_state_dict({}, strict=False)  # has nothing of the layer
        self.assertEqual(steps(layer), kept)

    def test_copies_have_histories_of_their_own(self):
        layer = make()
        train(layer, 2)
        copies = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))]
        for each in copies:
            self.assertTrue(same(each, layer))
        expected = train(layer, 1)
        for each in copies:
            self.assertFalse(same(each, layer))
            self.assertTrue(torch.equal(train(each, 1), expected))
            self.assertTrue(same(each, layer))

    def test_states_that_do_not_fit_are_refused(self):
        layer = make()
        train(layer)
        given, before = layer.state_dict(), torch_free(histories(layer))
        longer = make(DelayedScaling(amax_history_len=5))
        with self.assertRaisesRegex(RuntimeError, "_extra_state: amax_history_len of the state is 2, expected 5, that of the layer"):
            longer.load_state_dict(given)
        used = plain()
        with fp8_autocast(fp8_recipe=DelayedScaling(amax_history_len=3)):
            train(used)
        with self.assertRaisesRegex(RuntimeError, "amax_history_len of the state is 2, expected 3, that of the layer"):
            used.load_state_dict(given)
        for wrong in (torch.zeros(9, dtype=torch.uint8), torch.zeros(0, dtype=torch.uint8), "nothing", 7):
            with self.assertRaisesRegex(RuntimeError, "_extra_state has no histories of amaxes, expected what a layer"):
                layer.load_state_dict({**given, "_extra_state": wrong})
        more = sluice_torch.MoE(HIDDEN, INTERMEDIATE, 2 * EXPERTS, TOP_K, encode=FAST, steps=Steps(threads=2))
        ids, weights = route(len(X), 2 * EXPERTS, TOP_K, 1)
        more(X, ids, weights)
        with self.assertRaisesRegex(RuntimeError, "amaxes of [a-z_]+ in the state are those of 8 experts, expected 4"):
            layer.load_state_dict({**given, "_extra_state": more.state_dict()["_extra_state"]})
        self.assertEqual(torch_free(histories(layer)), before)
        self.assertEqual(steps(layer), dict.fromkeys(ROLES, 1))

    def test_contexts_with_another_length_keep_the_newest_amaxes(self):
        layer, rule = plain(), fp8.Rule(3)
        for number, length in enumerate((3, 3, 3, 3, 2, 2, 4, 4)):
            with fp8_autocast(fp8_recipe=DelayedScaling(amax_history_len=length)):
                train(layer, 1, (7 * number) % 5)
            rule.length = length
            given = X.detach() * 4.0 ** ((7 * number) % 5)
            rule.add(torch.stack([fp8.amax_of(given[(IDS == expert).any(1)]) for expert in range(EXPERTS)]))
            self.assertTrue(torch.equal(histories(layer)["rows_x"]["used"][:, 0], rule.used.float()), number)
        with fp8_autocast(fp8_recipe=Float8CurrentScaling()):
            train(layer)
        self.assertEqual(steps(layer)["act"], 8)  # other recipes leave histories as they are

    def test_contexts_scale_as_layers_with_the_recipe_do(self):
        for recipe in (Float8CurrentScaling(), Float8CurrentScaling(Format.E4M3), DelayedScaling(), FAST):
            layer, twin = plain(), make(recipe)
            for number in range(3):
                with fp8_autocast(fp8_recipe=recipe):
                    y = forward(layer)
                a, b = (torch.autograd.grad(each, X, DY)[0] for each in (y, forward(twin)))
                self.assertTrue(torch.equal(a, b), (recipe, number))
            self.assertTrue(same(layer, twin))

    def test_linear_layers_keep_histories_too(self):
        config = types.SimpleNamespace(params_dtype=torch.bfloat16)
        for kind, rows in ((te.TEColumnParallelLinear, "rows_x"), (te.TERowParallelLinear, "x")):
            layers = [kind(HIDDEN, 96, config=config, bias=True, threads=2, encode=FAST) for _ in range(2)]
            self.assertIsNone(layers[0].get_extra_state())
            layers[0].load_state_dict(layers[1].state_dict())

            def run(layer, repeats=False):
                y = checkpoint(lambda x: layer(x)[0], X[:, None], use_reentrant=False) if repeats else layer(X[:, None])[0]
                return torch.autograd.grad(y, [X, layer.weight], torch.ones_like(y))

            for _ in range(2):
                for a, b in zip(run(layers[0]), run(layers[1], repeats=True)):
                    self.assertTrue(torch.equal(a, b))
            found = torch.load(io.BytesIO(bytes(layers[1].get_extra_state().tolist())))
            self.assertEqual(len(found), 2)
            self.assertIn(rows, found)
            self.assertEqual({each["steps"] for each in found.values()}, {2})
            if kind is te.TEColumnParallelLinear:  # x is gathered again
                options = {"config": config, "threads": 2, "encode": FAST, "keep": "regather"}
                again = kind(HIDDEN, 96, **options)
                again.load_state_dict(layers[0].state_dict())
                other = copy.deepcopy(layers[0])
                for _ in range(2):
                    for a, b in zip(run(other), run(again)):
                        self.assertTrue(torch.equal(a, b))
            fresh = kind(HIDDEN, 96, config=config, bias=True, threads=2, encode=FAST)
            fresh.load_state_dict(layers[0].state_dict())
            for a, b in zip(run(layers[0]), run(fresh)):
                self.assertTrue(torch.equal(a, b))
            before = fresh.get_extra_state()
            with self.assertWarnsRegex(UserWarning, "_extra_state has no histories of amaxes, .*stay as they are"):
                fresh.load_state_dict({**fresh.state_dict(), "_extra_state": torch.zeros(9, dtype=torch.uint8)})
            self.assertTrue(torch.equal(fresh.get_extra_state(), before))
            with self.assertRaisesRegex(ValueError, "amax_history_len of the state is 2, expected 1024"):
                kind(HIDDEN, 96, encode="fp8e4m3:delayed").set_extra_state(layers[0].get_extra_state())

    def test_states_of_models_leave_histories_out(self):
        layer = make()
        train(layer)
        whole = state.reshard([layer.state_dict()], 1)[0]
        self.assertEqual(set(whole), {"gate_up_weight", "down_weight"})
        self.assertEqual([set(each) for each in state.reshard([layer.state_dict()], 2)],
                         [{"gate_up_weight", "down_weight", "expert_range"}] * 2)

    def test_ranks_have_the_largest_amaxes(self):
        core_jobs.run_ranks(self, "largest", 2)

    def test_experts_take_their_histories_along(self):
        core_jobs.run_ranks(self, "moved", 2)

    def test_ranks_with_other_recipes_are_refused_at_all_of_them(self):
        core_jobs.run_ranks(self, "other_recipes", 2)


def largest(rank, size):
    """Copies of a model, each with its own tokens."""
    world = dist.group.WORLD
    for recipe in (FAST, DelayedScaling(amax_history_len=2, reduce_amax=False)):
        for repeats in (False, True):
            layer, alone = plain(), plain()
            for number in range(3):
                for each, group in ((layer, world), (alone, None)):
                    factor = 4.0 ** (number + 3 * rank)
                    with fp8_autocast(fp8_recipe=recipe, fp8_group=group):
                        if repeats:
                            y = checkpoint(lambda x: each(x * factor, IDS, WEIGHTS), X, use_reentrant=True)
                        else:
                            y = forward(each, factor)
                    y.backward(DY * 2.0**rank)
            own, found = torch_free(histories(alone)), torch_free(histories(layer))
            if not recipe.reduce_amax:
                assert own == found
                continue
            both = [None] * size
            dist.all_gather_object(both, (own, found))
            assert both[0][1] == both[1][1] and both[0][0] != both[1][0]
            for name in fp8.ROWS[:1] + fp8.GRADS[:1]:  # others depend on the scales of earlier steps
                expected = torch.maximum(*(torch.tensor(each[name][1]) for each, _ in both))
                assert torch.equal(torch.tensor(found[name][1]), expected), (name, found[name][1], expected)
                assert found[name][2] == 3


def moved(rank, size):
    """Experts at other places have the scales that they had before."""
    given = X.detach(), IDS, WEIGHTS
    layers = [make(ep_group=dist.group.WORLD, spare=spare, timeout=20) for spare in (0, 0, 2)]
    for layer in layers:
        for number in range(2):
            y = layer(given[0] * 4.0**number * (1 + rank), *given[1:])
            y.backward(DY)
    layers[0].place([3, 1, 0, 2])
    with torch.no_grad():
        a, b = (layer.eval()(*given) for layer in layers[:2])
    assert error(a, b.double()) < BOUND / 4, error(a, b.double())
    for layer in (layers[0], layers[2]):  # copies of an expert have the same scale, too
        kept = histories(layer)
        assert all(each["used"].shape == (EXPERTS, 1) and (each["used"] > 0).all() for each in kept.values())
        everyone = [None] * size
        dist.all_gather_object(everyone, torch_free(kept))
        assert everyone[0] == everyone[1]


def other_recipes(rank, size):
    options = {"ep_group": dist.group.WORLD, "timeout": 20}
    for zero, one, names in (
        (FAST, Float8CurrentScaling(), ("moe_layer_fp8e4m3_fp8e5m2", "moe_layer_fp8e4m3_fp8e5m2_max2")),
        (FAST, DelayedScaling(), ("moe_layer_fp8e4m3_fp8e5m2_max1024", "moe_layer_fp8e4m3_fp8e5m2_max2")),
        (
            Float8CurrentScaling(Format.E4M3),
            DelayedScaling(-0.5, 4, Format.E4M3, 16, "most_recent", reduce_amax=False),
            ("moe_layer_fp8e4m3_last16_mm0p5_i4_alone", "moe_layer_fp8e4m3"),
        ),
    ):
        message = "rank 1 is about to make layer '{}', but rank 0 is about to make layer '{}'".format(*names)
        layer = make(one if rank else zero, **options)
        check_refused(lambda: forward(layer), message)
        assert steps(layer) == {}
    layer = make(**options)
    train(layer, 2)
    check_refused(lambda: layer(X, IDS + EXPERTS * rank, WEIGHTS), "expert_ids[")
    assert set(steps(layer).values()) == {2}
    train(layer, 1)


# Before there is a process group: the first call imports torch._dynamo of PyTorch 2.6, which would keep that group.
checkpoint(lambda x: x, X, use_reentrant=True)

if __name__ == "__main__" and not core_jobs.main({"largest": largest, "moved": moved, "other_recipes": other_recipes}):
    unittest.main()
