"""kt-kernel's calling code for fine-tuning, as its callers write it, against the same layer in plain PyTorch."""

import inspect
import pathlib
import tempfile
import unittest

import core_jobs
import torch
from page_tables import told
from moe_eager import BOUND, eager, error, route
from sluice_torch.kt import ADAPTERS, BASES, KTMoEWrapper
from write_safetensors import write as write_safetensors

EXPERTS, TOP_K, HIDDEN, INTER, RANK, ALPHA, TOKENS = 6, 2, 64, 128, 4, 8.0, 37
# What codes of weights cost, and rounding of gradients that are themselves products.
OF_CODES = {"AMXBF16_SFT": BOUND, "AMXINT8_SFT": 0.03, "AMXINT4_SFT": 0.25}


def draw(*sizes, scale=1.0, seed=0):
    return (scale * torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))).bfloat16()


def bases():
    ups = [draw(EXPERTS, INTER, HIDDEN, scale=HIDDEN**-0.5, seed=seed) for seed in (1, 2)]
    return [*ups, draw(EXPERTS, HIDDEN, INTER, scale=INTER**-0.5, seed=3)]


def adapters():
    sizes = [(RANK, HIDDEN), (INTER, RANK), (RANK, HIDDEN), (INTER, RANK), (RANK, INTER), (HIDDEN, RANK)]
    return [draw(EXPERTS, *size, scale=0.2, seed=10 + n) for n, size in enumerate(sizes)]


def make(method="AMXBF16_SFT", loaded=True, weight_path=None, **options):
    given = {"mode": "sft", "lora_rank": RANK, "lora_alpha": ALPHA, "group_size": 32, **options}
    wrapper = KTMoEWrapper(3, EXPERTS, TOP_K, HIDDEN, INTER, None, 2, 1, weight_path, TOKENS, method=method, **given)
    if loaded:
        wrapper.load_weights_from_tensors(*bases(), torch.arange(EXPERTS))
    return wrapper


class Adapters:
    """The twelve tensors of a caller."""

    def __init__(self, wrapper=None):
        self.own, self.grads = adapters(), [torch.full_like(each, 9) for each in adapters()]
        if wrapper is not None:
            wrapper.init_lora_weights(*self.own, *self.grads)


class Batch:
    def __init__(self, tokens=TOKENS, seed=5, among=None):
        self.x, self.dy = draw(tokens, HIDDEN, seed=seed), draw(tokens, HIDDEN, seed=seed + 1)
        self.ids, self.weights = route(tokens, EXPERTS, TOP_K, seed, among)

    def expected(self, own=None, limit=None, alpha=0.0, weights=None):
        """y, and gradients of x, of weights, and of the adapters or, without any, of gate, up and down."""
        leaves = [each.float().requires_grad_() for each in (self.x, self.weights, *(own or ()))]
        plain = [each.float().requires_grad_() for each in weights or bases()]
        gate, up, down = plain
        if own:
            pairs = [ALPHA / RANK * b @ a for a, b in zip(leaves[2::2], leaves[3::2])]
            gate, up, down = (each + pair for each, pair in zip(plain, pairs))
        kind = "swiglu_oai" if alpha else "swiglu_clamp" if limit else "swiglu"
        y = eager(leaves[0], self.ids, leaves[1], torch.cat((gate, up), 1), down, kind, limit)
        return [y.detach(), *torch.autograd.grad(y, leaves + ([] if own else plain), self.dy.float())]


class KtTest(unittest.TestCase):
    def assert_near(self, found, expected, bound=BOUND):
        for number, (a, b) in enumerate(zip(found, expected, strict=True)):
            self.assertLess(error(a, b), bound, f"tensor {number}")

    def test_the_page_tells_every_name_and_argument(self):
        rows = told(page="docs/KT.md")
        public = {name for name, each in vars(KTMoEWrapper).items() if not name.startswith("_") and name != "layer"}
        self.assertEqual(set(rows), public | {"KTMoEWrapper"})
        for name, (arguments, _) in rows.items():
            each = KTMoEWrapper if name == "KTMoEWrapper" else getattr(KTMoEWrapper, name)
            self.assertEqual(arguments, [a for a in inspect.signature(each).parameters if a != "self"], name)

    def test_forward_and_backward_with_adapters(self):
        for method, bound in OF_CODES.items():
            with self.subTest(method=method):
                wrapper, batch = make(method), Batch()
                self.assertTrue(wrapper._weights_loaded and not wrapper._lora_initialized)
                given = Adapters(wrapper)
                self.assertTrue(wrapper._lora_initialized)
                y = wrapper.forward(batch.x, batch.ids, batch.weights)
                dx, dw = wrapper.backward(batch.dy)
                self.assertEqual((y.dtype, dx.dtype, dw.dtype), (torch.bfloat16, torch.bfloat16, torch.float32))
                self.assert_near([y, dx, dw, *given.grads], batch.expected(given.own), bound)

    def test_without_adapters(self):
        for method in OF_CODES:
            wrapper, batch = make(method + "_SkipLoRA"), Batch()
            y = wrapper.forward(batch.x, batch.ids, batch.weights)
            self.assert_near([y, *wrapper.backward(batch.dy)], batch.expected()[:3], OF_CODES[method])
            with self.assertRaisesRegex(RuntimeError, "init_lora_weights of a layer without adapters"):
                Adapters(wrapper)

    def test_methods_are_seen_in_bytes_and_in_the_error(self):
        batch, found = Batch(), {}
        for method in OF_CODES:
            wrapper = make(method + "_SkipLoRA")
            size = sum(each.numel() * each.element_size() for each in wrapper.layer.parameters())
            found[method] = size, error(wrapper.forward(batch.x, batch.ids, batch.weights, False), batch.expected()[0])
        self.assertLess(found["AMXINT8_SFT"][0], 0.55 * found["AMXBF16_SFT"][0])
        self.assertLess(found["AMXINT4_SFT"][0], 0.45 * found["AMXBF16_SFT"][0])  # scales and zeros of groups of 32
        self.assertLess(found["AMXINT8_SFT"][1], found["AMXINT4_SFT"][1])
        self.assertLess(found["AMXBF16_SFT"][1], found["AMXINT8_SFT"][1])

    def test_adapters_are_kept_and_not_copied(self):
        wrapper, batch = make(), Batch()
        given = Adapters(wrapper)
        wrapper.forward(batch.x, batch.ids, batch.weights, False)
        for each in given.own:
            each.data.mul_(-0.5)
        wrapper.update_lora_weights()
        y = wrapper.forward(batch.x, batch.ids, batch.weights)
        wrapper.backward(batch.dy)
        expected = batch.expected(given.own)
        self.assert_near([y, *given.grads], [expected[0], *expected[3:]])

    def test_gradients_are_written_anew_with_zeros_for_idle_experts(self):
        wrapper, batch = make(), Batch(among=3)
        given = Adapters(wrapper)
        for _ in range(2):
            wrapper.forward(batch.x, batch.ids, batch.weights)
            wrapper.backward(batch.dy, optimizer_grad_scale=0.25)
        for found, expected in zip(given.grads, batch.expected(given.own)[3:]):
            self.assertLess(error(found, 0.25 * expected), BOUND)
            self.assertEqual(found[3:].count_nonzero(), 0)

    def test_steps_that_are_submitted(self):
        wrapper, batch = make(max_cache_depth=2), Batch()
        given = Adapters(wrapper)
        x, dy = batch.x.clone(), batch.dy.clone()
        wrapper.submit_forward(x, batch.ids, batch.weights)
        x.zero_()
        with self.assertRaisesRegex(RuntimeError, "submit_forward while a forward is running: call sync_forward first"):
            wrapper.submit_forward(x, batch.ids, batch.weights)
        with self.assertRaisesRegex(RuntimeError, "sync_backward while a forward is running"):
            wrapper.sync_backward()
        y = wrapper.sync_forward()
        wrapper.submit_backward_repack()
        wrapper.wait_backward_repack()
        wrapper.submit_backward_async(dy)
        dy.zero_()
        self.assert_near([y, *wrapper.sync_backward(), *given.grads], batch.expected(given.own))
        for call in (wrapper.sync_forward, wrapper.sync_backward):
            with self.assertRaisesRegex(RuntimeError, "while nothing is running, expected a .* that was submitted"):
                call()

    def test_forwards_are_a_stack(self):
        wrapper, batches = make("AMXBF16_SFT_SkipLoRA", max_cache_depth=2), [Batch(seed=5), Batch(20, seed=8)]
        for batch in batches:
            wrapper.forward(batch.x, batch.ids, batch.weights)
        with self.assertRaisesRegex(RuntimeError, "2 forwards are saved, as many as depth allows"):
            wrapper.forward(batch.x, batch.ids, batch.weights)
        wrapper.forward(batch.x, batch.ids, batch.weights, save_for_backward=False)
        for batch in reversed(batches):
            self.assert_near(wrapper.backward(batch.dy), batch.expected()[1:3])
        with self.assertRaisesRegex(RuntimeError, "backward without a saved forward"):
            wrapper.backward(batch.dy)

    def test_windows_of_gradients_that_an_optimizer_owns(self):
        wrapper, batch = make(), Batch()
        given = Adapters(wrapper)
        expected = batch.expected(given.own)[3:]
        self.assertEqual(wrapper.validate_authoritative_optimizer_grad_state(), "empty")
        self.assertFalse(wrapper._uses_authoritative_optimizer_grads)
        flat = torch.full((sum(each.numel() for each in given.own),), 7.0)
        views = [part.view_as(each) for part, each in zip(flat.split([each.numel() for each in given.own]), given.own)]
        masters = [torch.nn.Parameter(each.float()) for each in given.own]
        for name, master, view in zip(ADAPTERS, masters, views):
            master.grad = torch.zeros_like(master)
            wrapper.register_authoritative_optimizer_grad(name, master, view)
            self.assertIsNone(master.grad)
        self.assertTrue(wrapper._uses_authoritative_optimizer_grads)
        for window in range(2):
            self.assertEqual(wrapper.validate_authoritative_optimizer_grad_state(), "closed")
            for times in (1, 2):
                wrapper.forward(batch.x, batch.ids, batch.weights)
                wrapper.backward(batch.dy, optimizer_grad_scale=0.5)
                self.assert_near(views, [0.5 * times * each for each in expected])
                self.assertEqual(wrapper.validate_authoritative_optimizer_grad_state(), "open")
                self.assertTrue(all(master.grad is view for master, view in zip(masters, views)))
            with self.assertRaisesRegex(RuntimeError, "register gate_lora_a while gradients are being added"):
                wrapper.register_authoritative_optimizer_grad(ADAPTERS[0], masters[0], views[0])
            wrapper.release_authoritative_optimizer_grads()
            self.assertTrue(all(master.grad is None for master in masters))
        self.assertTrue(all(torch.equal(each, torch.full_like(each, 9)) for each in given.grads))
        masters[2].grad = torch.zeros_like(masters[2])
        with self.assertRaisesRegex(RuntimeError, "the .grad of up_lora_a is another tensor, expected None"):
            wrapper.validate_authoritative_optimizer_grad_state()
        for arguments, said in (
            (("gate", masters[0], views[0]), "name is 'gate', expected one of gate_lora_a"),
            ((ADAPTERS[0], masters[1], views[1]), "parameter of gate_lora_a has shape"),
            ((ADAPTERS[0], masters[0], views[0].bfloat16()), "grad_view of gate_lora_a is torch.bfloat16, expected torch.float32"),
        ):
            with self.assertRaisesRegex(ValueError, said):
                wrapper.register_authoritative_optimizer_grad(*arguments)

    def test_gradients_of_whole_weights_and_their_update(self):
        for method in ("AMXBF16_SFT", "AMXBF16_SFT_SkipLoRA"):
            wrapper, batch = make(method, full_weight_grad=True), Batch()
            self.assertTrue(wrapper._full_weight_grad)
            given = None if "Skip" in method else Adapters(wrapper)
            wrapper.init_full_weight_grad_buffers(*bases())
            wrapper.forward(batch.x, batch.ids, batch.weights)
            wrapper.backward(batch.dy)
            found = [getattr(wrapper, f"grad_{name}_buf") for name in BASES]
            if given is None:
                self.assert_near(found, batch.expected()[3:])
            before = wrapper.forward(batch.x, batch.ids, batch.weights, False)
            for name, grad in zip(BASES, found):
                getattr(wrapper, f"{name}_buf").data.add_(grad, alpha=-0.5)  # as an optimizer does that autograd does not see
            own = given and given.own
            self.assertTrue(torch.equal(wrapper.forward(batch.x, batch.ids, batch.weights, False), before))
            wrapper._base_weights_dirty = True
            after = wrapper.forward(batch.x, batch.ids, batch.weights)
            self.assertFalse(wrapper._base_weights_dirty)
            expected = batch.expected(own, weights=[getattr(wrapper, f"{name}_buf").detach() for name in BASES])
            self.assert_near([after, *wrapper.backward(batch.dy)], expected[:3])
            self.assertGreater(error(after, before), 0.05)

    def test_activations_with_limits(self):
        for alpha in (0.0, 1.702):
            wrapper, batch = make("AMXBF16_SFT_SkipLoRA", swiglu_limit=0.5, swiglu_alpha=alpha), Batch()
            y = wrapper.forward(batch.x, batch.ids, batch.weights)
            self.assert_near([y], batch.expected(limit=0.5, alpha=alpha)[:1])

    def test_weights_of_a_file_by_a_map(self):
        order, (gate, up, down), batch = [5, 3, 1, 0, 2, 4], bases(), Batch()
        with tempfile.TemporaryDirectory() as folder:
            tensors = {}
            for expert in range(EXPERTS):
                for name, each in zip(BASES, (gate, up, down)):
                    tensors[f"model.layers.3.mlp.experts.{expert}.{name}.weight"] = ("BF16", tuple(each.shape[1:]), each[expert].float().flatten().tolist())
            write_safetensors(pathlib.Path(folder) / "model.safetensors", tensors)
            wrapper = make("AMXBF16_SFT_SkipLoRA", loaded=False, weight_path=folder)
            wrapper.load_weights(torch.tensor(order))
            other = make("AMXBF16_SFT_SkipLoRA", loaded=False)
            other.load_weights_from_tensors(gate, up, down, torch.tensor(order))
            third = make("AMXBF16_SFT_SkipLoRA", loaded=False)
            third.gate_proj, third.up_proj, third.down_proj = (each[order] for each in (gate, up, down))
            third.load_weights(torch.arange(EXPERTS))
            results = [each.forward(batch.x, batch.ids, batch.weights, False) for each in (wrapper, other, third)]
        self.assertTrue(torch.equal(results[0], results[1]) and torch.equal(results[0], results[2]))
        self.assert_near(results[:1], batch.expected(weights=[each[order] for each in (gate, up, down)])[:1])

    def test_an_output_for_a_checkpoint(self):
        wrapper, y = make("AMXBF16_SFT_SkipLoRA"), draw(8, HIDDEN)
        wrapper.validate_checkpoint_cache_empty()
        with self.assertRaisesRegex(RuntimeError, "layer 3 keeps none as the output of a checkpoint, expected one of 5 tokens"):
            wrapper.get_checkpoint_output(5)
        kept = y.clone()
        wrapper.cache_checkpoint_output(y, 5)
        y.zero_()
        wrapper.validate_checkpoint_output(5)
        self.assertTrue(torch.equal(wrapper.get_checkpoint_output(5, "cpu"), kept[:5]))
        with self.assertRaisesRegex(RuntimeError, "layer 3 keeps an output of 5 tokens of a checkpoint, expected none"):
            wrapper.validate_checkpoint_cache_empty()
        wrapper.poison_checkpoint_output(RuntimeError("a rank failed"))
        with self.assertRaisesRegex(RuntimeError, "is not valid: a rank failed"):
            wrapper.get_checkpoint_output(5)
        wrapper.clear_checkpoint_output()
        wrapper.validate_checkpoint_cache_empty()
        KTMoEWrapper.clear_sft_buffer_cache()

    def test_calls_too_early_and_what_is_wrong(self):
        wrapper, batch = make(loaded=False), Batch()
        with self.assertRaisesRegex(RuntimeError, "the adapters of layer 3 are not initialised"):
            wrapper.forward(batch.x, batch.ids, batch.weights)
        given = Adapters(wrapper)
        with self.assertRaisesRegex(RuntimeError, "weights of 6 experts are not loaded"):
            wrapper.forward(batch.x, batch.ids, batch.weights)
        with self.assertRaisesRegex(ValueError, "weight_path is None, and gate_proj"):
            wrapper.load_weights(None)
        wrapper.load_weights_from_tensors(*bases())
        large = Batch(TOKENS + 1)
        for call, said in (
            (lambda: wrapper.forward(large.x, large.ids, large.weights), "x has 38 tokens, expected at most max_tokens, which is 37"),
            (lambda: wrapper.forward(batch.x[:, :-1], batch.ids, batch.weights), r"\[37, 63\]"),
            (lambda: wrapper.forward(None, batch.ids, batch.weights), "hidden_states is of type NoneType"),
            (lambda: wrapper.load_weights_from_tensors(*bases(), torch.tensor([9])), r"physical_to_logical_map_cpu is \[9\], expected 6"),
            (lambda: wrapper.load_weights_from_tensors(*reversed(bases())), "gate has shape"),
            (lambda: wrapper.init_lora_weights(*given.own[:5], given.own[0], *given.grads), "down_lora_b is torch.bfloat16"),
            (lambda: wrapper.init_lora_weights(*given.own, *(g.float() for g in given.grads)), "grad_gate_lora_a is torch.float32"),
            (lambda: wrapper.backward(batch.dy, optimizer_grad_scale=float("nan")), "optimizer_grad_scale is nan"),
            (lambda: make(mode="inference"), "mode is 'inference', expected 'sft'"),
            (lambda: make("AMXINT4"), "method is 'AMXINT4', expected one of AMXBF16_SFT"),
            (lambda: make("AMXINT4_SFT", group_size=48), "found 'int4:g48z'"),
            (lambda: make(cpu_save=True), "cpu_save is True, expected False"),
            (lambda: make(lora_dropout=0.1), "lora_dropout is 0.1, expected 0"),
            (lambda: make(num_gpu_experts=2), "num_gpu_experts is 2, expected 0"),
            (lambda: make(swiglu_alpha=2.0, swiglu_limit=7.0), "swiglu_alpha is 2.0, expected 0 or 1.702"),
            (lambda: make(swiglu_alpha=1.702), "swiglu_limit is 0.0, expected a positive number"),
            (lambda: make("AMXINT8_SFT", full_weight_grad=True), "full_weight_grad with method 'AMXINT8_SFT'"),
            (lambda: KTMoEWrapper(0, 4, 2, 64, 64, torch.tensor([False, True, False, True]), 1, 1, None, 8, mode="sft", method="AMXBF16_SFT"),
             r"gpu_experts_mask has experts \[1, 3\]"),
        ):
            with self.assertRaisesRegex(ValueError, said):
                call()
        with self.assertRaisesRegex(RuntimeError, "made without full_weight_grad=True"):
            wrapper.init_full_weight_grad_buffers(*bases())
        wrapper.forward(batch.x, batch.ids, batch.weights)  # it still works

    def test_rank_0_alone_may_call_it(self):
        core_jobs.run_ranks(self, "ranks", 2)


def ranks(rank, size):
    if rank == 0:
        wrapper, batch = make("AMXBF16_SFT_SkipLoRA"), Batch()
        y = wrapper.forward(batch.x, batch.ids, batch.weights)
        for a, b in zip([y, *wrapper.backward(batch.dy)], batch.expected()):
            assert error(a, b) < BOUND
    torch.distributed.barrier()


if __name__ == "__main__" and not core_jobs.main({"ranks": ranks}):
    unittest.main()
