"""The op itself: values, gradients, errors, and the lifetime of what a forward pass saves."""

import gc
import json
import unittest

import torch
from core_layers import EXPERTS, HIDDEN, INTERMEDIATE, MAX_TOKENS, TOP_K, WEIGHTS, Tensors, alone, difference, job_name, layer, program

moe = torch.ops.sluice.moe

# bf16 has 8 bits: two roundings on the way to y, three to the gradients.
Y_BOUND, GRADIENT_BOUND = 1e-2, 2e-2


class ValuesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.layer = layer()

    def check(self, tensors):
        y, plain = tensors.run(self.layer), tensors.plain()
        self.assertLess(difference(y, plain), Y_BOUND)
        found = torch.autograd.grad(y, tensors.leaves, tensors.dy)
        expected = torch.autograd.grad(plain, tensors.leaves, tensors.dy.float())
        for name, a, b, leaf in zip(("x", "expert_weights", *WEIGHTS), found, expected, tensors.leaves):
            self.assertLess(difference(a, b), GRADIENT_BOUND, name)
            self.assertEqual((a.dtype, a.shape), (leaf.dtype, leaf.shape), name)

    def test_values_and_gradients_are_those_of_plain_pytorch(self):
        self.check(Tensors())

    def test_any_number_of_tokens_goes(self):
        for tokens in (1, MAX_TOKENS, 5):
            self.check(Tensors(tokens, seed=tokens))

    def test_no_tokens_give_no_rows_and_gradients_of_zero(self):
        tensors = Tensors(0)
        y = tensors.run(self.layer)
        self.assertEqual(y.shape, (0, HIDDEN))
        for grad in torch.autograd.grad(y, tensors.leaves, tensors.dy):
            self.assertEqual(grad.float().abs().sum(), 0)

    def test_masked_pairs_go_to_nobody(self):
        tensors = Tensors()
        tensors.ids[3] = -1
        tensors.ids[7, 1] = -1
        y = tensors.run(self.layer)
        self.assertLess(difference(y, tensors.plain()), Y_BOUND)
        self.assertEqual(y[3].float().abs().sum(), 0)

    def test_ids_of_32_bits_are_the_same_as_of_64(self):
        tensors = Tensors()
        y = tensors.run(self.layer)
        tensors.ids = tensors.ids.int()
        self.assertTrue(torch.equal(y, tensors.run(self.layer)))

    def test_a_gradient_that_is_expanded_or_transposed_goes(self):
        tensors = Tensors()
        grads = torch.autograd.grad(tensors.run(self.layer).sum(), tensors.leaves)
        ones = torch.ones(len(tensors.x), HIDDEN).bfloat16()
        for dy in (ones, ones.t().contiguous().t()):
            again = torch.autograd.grad(tensors.run(self.layer), tensors.leaves, dy)
            for a, b in zip(grads, again):
                self.assertTrue(torch.equal(a, b))

    def test_a_gradient_of_some_tensors_only_is_the_same(self):
        tensors = Tensors()
        whole = torch.autograd.grad(tensors.run(self.layer), tensors.leaves, tensors.dy)
        for wanted in (0, 1, 2, 3):
            (part,) = torch.autograd.grad(tensors.run(self.layer), [tensors.leaves[wanted]], tensors.dy)
            self.assertTrue(torch.equal(part, whole[wanted]))

    def test_tensors_are_not_copied(self):
        tensors = Tensors()
        with torch.no_grad():
            tensors.gate_up.zero_()  # the layer uses the content at the time when it runs
            self.assertEqual(tensors.run(self.layer).float().abs().sum(), 0)

    def test_the_description_has_entries_and_shapes(self):
        told = json.loads(self.layer.describe())
        self.assertEqual([entry["name"] for entry in told["entries"]], ["forward", "backward"])
        shapes = {tensor["name"]: tensor["shape"] for tensor in told["tensors"]}
        self.assertEqual(shapes["x"], ["T", HIDDEN])
        self.assertEqual(shapes["gate_up_weight"], [EXPERTS, 2 * INTERMEDIATE, HIDDEN])
        self.assertEqual((told["top_k"], told["max_tokens"]), (TOP_K, MAX_TOKENS))


class SavedSetsTest(unittest.TestCase):
    def setUp(self):
        self.layer = layer()

    def grads(self, y, tensors, **options):
        return torch.autograd.grad(y, tensors.leaves, tensors.dy, **options)

    def alike(self, found, expected):
        for a, b in zip(found, expected):
            self.assertTrue(torch.equal(a, b))

    def test_two_forwards_go_before_two_backwards_in_either_order(self):
        one, two = Tensors(seed=1), Tensors(50, seed=2)
        expected = [self.grads(each.run(self.layer), each) for each in (one, two)]
        for order in ((0, 1), (1, 0)):
            ys = [one.run(self.layer), two.run(self.layer)]
            self.assertEqual(self.layer.saved_in_use(), 2)
            for i in order:
                self.alike(self.grads(ys[i], (one, two)[i]), expected[i])
            self.assertEqual(self.layer.saved_in_use(), 0)
        self.assertEqual(self.layer.saved_sets(), 2)

    def test_backward_twice_goes_where_the_graph_is_retained(self):
        tensors = Tensors()
        y = tensors.run(self.layer)
        first = self.grads(y, tensors, retain_graph=True)
        Tensors(seed=5).run(self.layer)  # takes another set
        self.assertEqual(self.layer.saved_in_use(), 1)
        self.alike(self.grads(y, tensors), first)
        with self.assertRaisesRegex(RuntimeError, "a second time"):
            self.grads(y, tensors)

    def test_backward_gives_the_set_back_though_the_result_lives_on(self):
        tensors = Tensors()
        losses = []
        for _ in range(4):
            losses.append(tensors.run(self.layer).float().sum())
            losses[-1].backward()
        self.assertEqual((self.layer.saved_sets(), self.layer.saved_in_use()), (1, 0))

    def test_a_graph_that_is_dropped_gives_the_set_back(self):
        tensors = Tensors()
        for _ in range(4):
            y = tensors.run(self.layer)
        self.assertEqual(self.layer.saved_in_use(), 1)  # that of the last
        del y
        gc.collect()
        self.assertEqual(self.layer.saved_in_use(), 0)
        self.assertLessEqual(self.layer.saved_sets(), 2)  # the new y exists before the old one is freed

    def test_without_gradients_nothing_is_kept(self):
        tensors = Tensors()
        y = tensors.run(self.layer)
        with torch.no_grad():
            again = tensors.run(self.layer)
        self.assertIsNone(again.grad_fn)
        self.assertTrue(torch.equal(y, again))
        self.assertEqual(self.layer.saved_in_use(), 1)
        self.grads(y, tensors)  # its set was not touched

    def test_a_layer_without_backward_runs_where_no_gradient_is_asked_for(self):
        tensors, inference = Tensors(), layer(trainable=())
        with torch.no_grad():
            self.assertTrue(torch.equal(tensors.run(inference), tensors.run(self.layer)))
        with self.assertRaisesRegex(RuntimeError, "no entry 'backward'.*no_grad"):
            tensors.run(inference)

    def test_checkpointing_keeps_no_set_until_backward(self):
        from torch.utils.checkpoint import checkpoint

        tensors = Tensors()
        expected = self.grads(tensors.run(self.layer), tensors)
        for reentrant in (False, True):
            y = checkpoint(lambda x: moe(self.layer, x, tensors.ids, tensors.expert_weights,
                                         [tensors.gate_up, tensors.down], []), tensors.x, use_reentrant=reentrant)
            self.assertEqual(self.layer.saved_in_use(), 0, reentrant)
            for leaf in tensors.leaves:
                leaf.grad = None
            y.backward(tensors.dy)
            self.alike([leaf.grad for leaf in tensors.leaves], expected)
            del y
            self.assertEqual(self.layer.saved_in_use(), 0, reentrant)

    def test_hooks_that_copy_what_is_saved_are_noticed(self):
        tensors = Tensors()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            y = tensors.run(self.layer)
        with self.assertRaisesRegex(RuntimeError, "saved set 0 was released: hooks on saved tensors"):
            self.grads(y, tensors)

    def test_sets_outlive_the_name_of_their_layer(self):
        tensors = Tensors()
        expected = self.grads(tensors.run(self.layer), tensors)
        y = tensors.run(self.layer)
        del self.layer
        gc.collect()
        self.alike(self.grads(y, tensors), expected)

    def test_a_weight_changed_between_forward_and_backward_is_noticed(self):
        tensors = Tensors()
        y = tensors.run(self.layer)
        with torch.no_grad():
            tensors.down.mul_(2)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            self.grads(y, tensors)

    def test_x_may_be_changed_where_backward_has_no_need_of_it(self):
        tensors = Tensors()
        expected = self.grads(tensors.run(self.layer), tensors)
        y = tensors.run(self.layer)
        with torch.no_grad():
            tensors.x.zero_()
        self.alike(self.grads(y, tensors), expected)


class MainGradsTest(unittest.TestCase):
    def setUp(self):
        self.layer = layer(accumulate=True)
        self.tensors = Tensors()
        self.expected = torch.autograd.grad(self.tensors.plain(), self.tensors.leaves, self.tensors.dy.float())
        self.main = [torch.zeros_like(weight, dtype=torch.float32) for weight in self.tensors.leaves[2:]]

    def test_gradients_are_added_to_main_grads_and_autograd_has_none(self):
        for steps in (1, 2, 3):
            self.tensors.run(self.layer, self.main).backward(self.tensors.dy)
            for main, expected in zip(self.main, self.expected[2:]):
                self.assertLess(difference(main, steps * expected), GRADIENT_BOUND)
        self.assertIsNone(self.tensors.gate_up.grad)
        self.assertIsNone(self.tensors.down.grad)
        self.assertIsNotNone(self.tensors.x.grad)

    def test_one_main_grad_leaves_the_other_weight_to_autograd(self):
        self.tensors.run(self.layer, [None, self.main[1]]).backward(self.tensors.dy)
        self.assertLess(difference(self.main[1], self.expected[3]), GRADIENT_BOUND)
        self.assertLess(difference(self.tensors.gate_up.grad, self.expected[2]), GRADIENT_BOUND)
        self.assertIsNone(self.tensors.down.grad)

    def test_a_backward_that_asks_for_x_alone_leaves_main_grads_as_they_are(self):
        y = self.tensors.run(self.layer, self.main)
        torch.autograd.grad(y, [self.tensors.x], self.tensors.dy)
        self.assertEqual(sum(main.abs().sum() for main in self.main), 0)

    def test_main_grads_that_do_not_fit_are_refused(self):
        with self.assertRaisesRegex(ValueError, r"main_grads\[1\] \(of down_weight\) has shape \[3\]"):
            self.tensors.run(self.layer, [None, torch.zeros(3)])
        with self.assertRaisesRegex(ValueError, "1 main_grads are given for 2 weights"):
            self.tensors.run(self.layer, [None])
        with self.assertRaisesRegex(RuntimeError, "does not accumulate"):
            self.tensors.run(layer(), self.main)


class RefusedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.layer = layer()

    def setUp(self):
        self.tensors = Tensors()

    def refuse(self, kind, message, **changed):
        given = dict(x=self.tensors.x, ids=self.tensors.ids, expert_weights=self.tensors.expert_weights,
                     weights=[self.tensors.gate_up, self.tensors.down])
        given.update(changed)
        for run in (lambda *a: moe(*a, []), lambda *a: torch.ops.sluice.submit_moe(*a, [])[1].wait()):
            with self.assertRaisesRegex(kind, message):
                run(self.layer, *given.values())
        self.tensors.run(self.layer)  # goes on

    def test_types_are_named(self):
        self.refuse(ValueError, "x has type Float, expected BFloat16", x=self.tensors.x.float())
        self.refuse(ValueError, "expert_ids has type Float, expected Int", ids=self.tensors.ids.float())
        self.refuse(ValueError, "expert_weights has type BFloat16, expected Float",
                    expert_weights=self.tensors.expert_weights.bfloat16())
        self.refuse(ValueError, "down_weight has type Double, expected BFloat16",
                    weights=[self.tensors.gate_up, self.tensors.down.double()])

    def test_shapes_are_named(self):
        self.refuse(ValueError, rf"x has shape \[37\], expected \[any, {HIDDEN}\]", x=self.tensors.x[:, 0])
        self.refuse(ValueError, r"x has shape \[37, 63\]", x=self.tensors.x[:, 1:])
        self.refuse(ValueError, r"expert_ids has shape \[5, 2\], expected \[37, 2\]", ids=self.tensors.ids[:5])
        self.refuse(ValueError, r"gate_up_weight has shape \[7, 96, 64\], expected \[8, 96, 64\]",
                    weights=[self.tensors.gate_up[1:], self.tensors.down])
        self.refuse(ValueError, "1 weights are given, but the layer has 2", weights=[self.tensors.gate_up])
        many = Tensors(MAX_TOKENS + 1)
        self.refuse(ValueError, f"x has {MAX_TOKENS + 1} tokens.* at most {MAX_TOKENS}", x=many.x, ids=many.ids,
                    expert_weights=many.expert_weights)

    def test_strides_and_devices_are_named(self):
        self.refuse(ValueError, r"x is not contiguous \(shape \[37, 64\], strides \[1, 37\]\): call .contiguous\(\)",
                    x=self.tensors.x.detach().t().contiguous().t())
        self.refuse(ValueError, "x is on device meta, expected cpu", x=self.tensors.x.to("meta"))
        self.refuse(ValueError, "x is not a dense tensor", x=self.tensors.x.detach().to_sparse())

    def test_a_device_that_is_not_there_or_has_several_ranks_is_named(self):
        ranks = torch.classes.sluice.Ranks
        for name in ("gpu", "meta", "cuda:", "cuda:x"):
            with self.assertRaisesRegex(ValueError, f"device '{name}': expected cpu, cuda or cuda:N"):
                ranks("", 0, 1, 1, 20.0, name)
        with self.assertRaisesRegex(RuntimeError, "device 'cuda:1000': .*CUDA"):
            ranks("", 0, 1, 1, 20.0, "cuda:1000")
        with self.assertRaisesRegex(RuntimeError, "device 'cuda': found 2 ranks, expected a rank alone"):
            ranks(job_name(), 0, 2, 1, 20.0, "cuda")
        self.assertEqual(ranks("", 0, 1, 1, 20.0, "cpu").threads(), 1)

    def test_ids_out_of_range_or_repeated_are_named(self):
        for ids in (self.tensors.ids.clone(), self.tensors.ids.int()):
            ids[4, 1] = EXPERTS
            self.refuse((ValueError, RuntimeError), rf"expert_ids\[4, ?1\] is {EXPERTS}", ids=ids)
        ids = self.tensors.ids.clone()
        ids[4, 1] = 2**32  # whose lower half is an expert
        self.refuse(ValueError, r"expert_ids\[4, 1\] is 4294967296", ids=ids)
        ids[4] = 3
        with self.assertRaisesRegex(RuntimeError, "expert_ids.*4.* 3"):
            moe(self.layer, self.tensors.x, ids, self.tensors.expert_weights, self.tensors.leaves[2:], [])

    def test_gradients_that_the_program_lacks_are_named_where_the_layer_runs(self):
        frozen = layer(trainable=("x", "expert_weights"))
        with self.assertRaisesRegex(RuntimeError, "gate_up_weight requires a gradient"):
            self.tensors.run(frozen)
        self.tensors.gate_up.requires_grad_(False)
        self.tensors.down.requires_grad_(False)
        expected = torch.autograd.grad(self.tensors.run(self.layer), self.tensors.leaves[:2], self.tensors.dy)
        found = torch.autograd.grad(self.tensors.run(frozen), self.tensors.leaves[:2], self.tensors.dy)
        for a, b in zip(found, expected):
            self.assertTrue(torch.equal(a, b))

    def test_a_second_derivative_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "no second derivative"):
            torch.autograd.grad(self.tensors.run(self.layer).sum(), [self.tensors.x], create_graph=True)

    def test_ranks_and_layers_that_cannot_be_are_refused(self):
        make = torch.classes.sluice
        for arguments, message in (
            (("", 1, 1, 1, 1.0), "rank 1 of 1"),
            (("", 0, 0, 1, 1.0), "0 ranks, expected 1 to"),
            (("", 0, 1, -1, 1.0), "-1 threads"),
            (("", 0, 1, 1, 0.0), "time limit of 0"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                make.Ranks(*arguments)
        ranks = alone()
        with self.assertRaisesRegex(RuntimeError, "/nowhere.slp: cannot open"):
            make.Layer(ranks, "/nowhere.slp", WEIGHTS)
        with self.assertRaisesRegex(ValueError, "no input 'bias'"):
            make.Layer(ranks, program(), ["bias"])
        with self.assertRaisesRegex(ValueError, "compiled for 2 ranks, but there are 1"):
            make.Layer(ranks, program(ranks=2), WEIGHTS)


if __name__ == "__main__":
    unittest.main()
