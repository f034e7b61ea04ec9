"""replace_moe() recognises blocks by what they compute, moves their weights, and refuses what it cannot keep."""

import copy
import dataclasses
import pathlib
import unittest
import unittest.mock
import warnings

import torch
from torch import nn

from decoder import Decoder, loss_of
from models import layouts
from models.eager_moe import EagerMoE
from sluice_torch import MoE, Steps
from sluice_torch.lora import LoRAConfig
from sluice_torch.replacing import families, replaced
from sluice_torch.replacing.replace import _Found, replace_moe
from sluice_torch.replacing.structure import Unsupported
from sluice_torch.replacing.trial import try_replacement
from sluice_torch.weights import sources

PAGE = pathlib.Path("docs/MODELS.md")  # from the root of the tree, or of the runfiles


def replace(model, **options):
    return replace_moe(model, layer=EagerMoE, **options)


def tokens():
    return torch.randint(0, 256, (2, 17), generator=torch.Generator().manual_seed(3))


def bytes_of(model):
    """Counts the bytes of all memory that parameters and buffers lie in, each once."""
    tensors = [*model.parameters(), *model.buffers()]
    return sum({tensor.storage().data_ptr(): tensor.storage().nbytes() for tensor in tensors}.values())


def result_of(returned):
    """The rows that a block returns, of which some return the router's logits too."""
    return returned[0] if isinstance(returned, tuple) else returned


class Kept(nn.Module):
    """A part that a replaced block keeps as it is: it computes in bfloat16, also in a block of double precision."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        returned = self.part(x.bfloat16())
        if isinstance(returned, tuple):
            return tuple(each.double() if each.is_floating_point() else each for each in returned)
        return returned.double()


def in_double(block):
    """A copy of the block whose experts, and what it adds to their sum, are computed in double precision."""
    twin = copy.deepcopy(block)
    for name, part in list(twin.named_children()):
        setattr(twin, name, part.double() if name == "experts" else Kept(part))
    return twin


def line_of(row):
    """The line of docs/MODELS.md about a family."""
    parts = ", ".join(f"`{part}`" for part in (*row.parts, *row.biases))
    form = " transposed" * (row.form == "transposed") + ", gate and up in turn" * row.in_turn
    experts = f"`{row.experts}`: " + (f"a list of {parts}" if row.form == "list" else f"{parts}{form}")
    if row.form != "list":
        routing = "any, `[T, E]` weights" if row.scattered else "any, `[T, K]` weights"
    elif row.scores == "given":
        routing = f"`{row.router}` gives ids and weights"
    else:
        routing = f"`{row.router}`, {row.scores}, {'normalised' if row.normalise else 'not normalised'}"
    beside = ", ".join(f"`{name}`" for name in (row.shared, row.shared_gate) if name)
    return f"| {row.models} | `{row.block}` | {experts} | {routing} | {beside} | {row.activation} | {row.architecture} |"


def wrong(row):
    """Rows with the names of this one, each with another fact."""
    facts = {"activation": "silu" if len(row.parts) == 2 and row.form == "list" else "reglu"}
    if len(row.parts) == 3:
        facts["parts"] = (row.parts[1], row.parts[0], row.parts[2])
    if row.form != "list":
        facts.update(parts=row.parts[::-1], scattered=not row.scattered, in_turn=not row.in_turn)
        facts.update(form="stacked" if row.form == "transposed" else "transposed")
        if row.biases:
            facts["biases"] = row.biases[::-1]
    else:
        facts["scores"] = "sigmoid" if row.scores == "softmax" else "softmax"
        if row.scores == "softmax":
            facts["normalise"] = not row.normalise
        if row.shared_gate:
            facts.update(shared=row.shared_gate, shared_gate=row.shared)
    for name, value in facts.items():
        both = {"shared": row.shared_gate, "shared_gate": row.shared} if name.startswith("shared") else {name: value}
        yield name, dataclasses.replace(row, **both)


class ReplaceTest(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        torch.manual_seed(1)

    def test_every_layout_is_found_and_gives_the_same_loss(self):
        for name, block in layouts.LAYOUTS.items():
            with self.subTest(layout=name):
                model = Decoder(block)
                before = loss_of(model, tokens()).item()
                self.assertEqual(replace(model), ["layers.0.mlp", "layers.1.mlp"])
                self.assertAlmostEqual(loss_of(model, tokens()).item(), before, 5)
                kinds = [type(part) for part in model.modules()]
                self.assertEqual(kinds.count(EagerMoE), 2)

    def test_blocks_in_bfloat16_give_what_double_precision_gives_for_the_same_rows(self):
        # Not the loss: roundings of one block change the rows of the next by an ulp, and scores of its router that
        # are nearly equal, or equal in bfloat16, then choose another expert. Not the eager block in bfloat16 either:
        # some CPUs have no products of it whose sums are float32.
        for name, block in layouts.LAYOUTS.items():
            with self.subTest(layout=name):
                model = Decoder(block).bfloat16()
                seen = self.rows_of_blocks(model)
                twins = [in_double(layer.mlp) for layer in model.layers]
                replace(model)
                for layer, twin, rows in zip(model.layers, twins, seen):
                    found, expected = result_of(layer.mlp(rows)).double(), result_of(twin(rows.double()))
                    # A part of the result is rounded by at most 2^-9 three times: the sum of experts and the routing
                    # weights, or the gate of the shared expert and what it multiplies; then the sum of both.
                    self.assertLess(((found - expected).norm() / expected.norm()).item(), 2**-7)

    @staticmethod
    def rows_of_blocks(model):
        """The rows that each block receives for tokens()."""
        seen = []
        hooks = [layer.mlp.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach())) for layer in model.layers]
        model(tokens())
        for hook in hooks:
            hook.remove()
        return seen

    def assert_same(self, found, expected, what):
        """Results and gradients of two blocks for the same rows, in both modes."""
        x = torch.randn(3, 40, 64, generator=torch.Generator().manual_seed(5))
        for training in (False, True):
            seen = []
            for block in (found, expected):
                rows = x.clone().requires_grad_()
                y = block.train(training)(rows)
                result_of(y).square().sum().backward()
                seen.append([*(y if isinstance(y, tuple) else (y,)), rows.grad])
            self.assertEqual(len(seen[0]), len(seen[1]), what)
            for one, other in zip(*seen):
                self.assertLessEqual((one - other).abs().max().item(), 1e-4 * other.abs().max().item(), what)

    def test_every_family_is_replaced_by_its_row_alone_and_gives_the_same(self):
        self.assertEqual([row.models for row in families.FAMILIES], list(layouts.FAMILIES))
        for row in families.FAMILIES:
            with self.subTest(family=row.models):
                block = layouts.FAMILIES[row.models]()
                model, tried = nn.Sequential(copy.deepcopy(block)), []
                real = _Found._recognise
                with unittest.mock.patch.object(_Found, "_recognise", lambda found, small: tried.append(found.family) or real(found, small)):
                    found = replace(model)
                self.assertEqual((list(found), found.families, tried), (["0"], {"0": row}, [row]))
                self.assert_same(model[0], block, row.models)

    def test_a_row_with_a_wrong_fact_is_refused_by_the_trial_and_the_search_finds_the_block(self):
        for row in families.FAMILIES:
            for fact, other in wrong(row):
                with self.subTest(family=row.models, fact=fact):
                    block = layouts.FAMILIES[row.models]()
                    if hasattr(block, "norm_topk_prob"):
                        block.norm_topk_prob = True
                    model = nn.Sequential(copy.deepcopy(block))
                    with unittest.mock.patch.object(families, "FAMILIES", (other,)):
                        self.assertEqual(families.find_rows(block, row.experts, row.router), [other])
                        found = replace(model)
                    self.assertEqual(found.families, {"0": None})
                    self.assert_same(model[0], block, row.models)

    def test_a_block_with_the_names_of_a_family_that_computes_something_else_is_searched_or_refused(self):
        for block in (layouts.Qwen3Block(act=nn.ReLU()), layouts.MixtralBlock()):
            block.dropout = nn.Identity()  # another part
            model = nn.Sequential(copy.deepcopy(block))
            self.assertEqual(replace(model).families, {"0": None})
            self.assert_same(model[0], block, "another part")
        self.assertIsNone(replace(nn.Sequential(layouts.Qwen3Block(act=nn.ReLU()))).families["0"])

        class Scaled(layouts.DeepseekBlock):
            def forward(self, x):
                return super().forward(x) * 1.25

        self.refused(Scaled(), "computes something else than top-k")

    def test_the_search_does_not_repeat_a_trial_that_has_refused_a_row(self):
        class Dropping(layouts.Qwen3Block):
            def forward(self, x):
                y, logits = super().forward(x)
                return nn.functional.dropout(y, 0.1, self.training), logits

        with unittest.mock.patch("sluice_torch.replacing.replace.try_replacement", side_effect=try_replacement) as tried:
            with self.assertRaisesRegex(Unsupported, "another result each time in training mode"):
                replace(nn.Sequential(Dropping()))
        self.assertEqual(tried.call_count, 2)  # with few intermediate columns, and with all

    def test_the_page_lists_the_families(self):
        lines = PAGE.read_text().split("\n")
        first = lines.index(line_of(families.FAMILIES[0]))
        found = lines[first : lines.index("", first)]
        self.assertEqual(found, [line_of(row) for row in families.FAMILIES])

    def test_loading_has_the_names_of_the_families(self):
        self.assertEqual(sources.LISTED, (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2")))
        names, biases = ("gate_up_proj", "down_proj"), ("gate_up_proj_bias", "down_proj_bias")
        self.assertEqual(sources.STACKED, ((names, (), False), (names, biases, True)))

    def test_gradients_reach_router_shared_expert_and_weights(self):
        model, twin = Decoder(layouts.DeepseekBlock), Decoder(layouts.DeepseekBlock)
        twin.load_state_dict(model.state_dict())
        replace(model)
        loss_of(model, tokens()).backward()
        loss_of(twin, tokens()).backward()
        for new, old in zip(model.layers, twin.layers):
            new, old = new.mlp, old.mlp
            torch.testing.assert_close(new.gate.weight.grad, old.gate.weight.grad)
            torch.testing.assert_close(
                new.shared_experts.down_proj.weight.grad, old.shared_experts.down_proj.weight.grad
            )
            for number, expert in enumerate(old.experts):
                if expert.down_proj.weight.grad is not None:
                    torch.testing.assert_close(new.experts.down_weight.grad[number], expert.down_proj.weight.grad)
                    gate_up = torch.cat([expert.gate_proj.weight.grad, expert.up_proj.weight.grad])
                    torch.testing.assert_close(new.experts.gate_up_weight.grad[number], gate_up)

    def test_a_shared_expert_that_runs_beside_the_step_changes_no_bit(self):
        """As between machines: there the step is submitted first (replaced._rows_travel)."""
        for kind in ("qwen2", "deepseek"):
            torch.manual_seed(1)
            model = nn.Sequential(layouts.LAYOUTS[kind]())
            replace_moe(model, steps=Steps(threads=1))
            found, submitted = [], []
            submit = MoE.submit_forward
            for travel in (False, True):
                x = torch.randn(3, 20, 64, generator=torch.Generator().manual_seed(2)).requires_grad_()
                with unittest.mock.patch.object(replaced, "_rows_travel", lambda layer, travel=travel: travel), unittest.mock.patch.object(
                    MoE, "submit_forward", lambda *arguments: submitted.append(1) or submit(*arguments)
                ):
                    y = result_of(model(x))
                y.sum().backward()
                found.append([y, x.grad, *(each.grad for each in model.parameters())])
                model.zero_grad(set_to_none=True)
            self.assertEqual(len(submitted), 1)
            for number, (first, second) in enumerate(zip(*found)):
                self.assertTrue(torch.equal(first, second), (kind, number))

    def test_weights_are_moved_and_stacked_ones_are_not_even_copied(self):
        for name, block in layouts.LAYOUTS.items():
            with self.subTest(layout=name):
                model = Decoder(block)
                experts = [layer.mlp.experts for layer in model.layers]
                before = bytes_of(model)
                place = [parameter.data_ptr() for parameter in experts[0].parameters()]
                replace(model)
                self.assertEqual(bytes_of(model), before)
                self.assertEqual(name == "stacked", place[:2] == [p.data_ptr() for p in self.weights(model)])
                if name != "stacked":
                    self.assertEqual(sum(p.numel() for part in experts for p in part.parameters()), 0)

    @staticmethod
    def weights(model):
        layer = next(part for part in model.modules() if isinstance(part, EagerMoE))
        return [layer.gate_up_weight, layer.down_weight]

    def test_activations_are_told_from_each_other_even_where_weights_are_zero(self):
        def clamped(x):
            return nn.functional.silu(x.clamp(max=7.0))

        class Clamp(layouts.GatedMlp):
            limit = 7.0

            def forward(self, x):
                return self.down_proj(clamped(self.gate_proj(x)) * self.up_proj(x).clamp(-7.0, 7.0))

        acts = {"swiglu": nn.SiLU(), "geglu": nn.GELU(approximate="tanh"), "reglu": nn.ReLU()}
        for expected, act in acts.items():
            block = layouts.Qwen3Block(act=act)
            nn.init.zeros_(block.experts[0].down_proj.weight)
            model = nn.Sequential(block)
            replace(model)
            self.assertEqual(model[0].experts.activation, expected)
        block = layouts.Qwen3Block()
        block.experts = nn.ModuleList(Clamp(64, 48) for _ in range(8))
        model = nn.Sequential(block)
        replace(model)
        self.assertEqual((model[0].experts.activation, model[0].experts.limit), ("swiglu_clamp", 7.0))

    def test_routing_without_normalised_weights_is_kept(self):
        for norm in (True, False):
            model = nn.Sequential(layouts.Qwen3Block(norm_topk_prob=norm))
            replace(model)
            self.assertEqual(model[0].routing.normalise, norm)

    def refused(self, block, *words):
        """The error names the block, and the model is unchanged."""
        model = nn.Sequential(nn.Identity(), block, layouts.Qwen3Block())
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        with self.assertRaises(Unsupported) as caught:
            replace(model)
        for word in ("block '1'", *words):
            self.assertIn(word, str(caught.exception))
        after = model.state_dict()
        self.assertEqual(list(before), list(after))
        self.assertTrue(all(torch.equal(before[name], after[name]) for name in before))
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            self.assertEqual(replace(model, strict=False), ["2"])
        self.assertIn("it is left unchanged", str(seen[0].message))

    def test_another_activation_is_refused(self):
        self.refused(layouts.Qwen3Block(act=nn.GELU()), "act_fn GELU", "compute none of swiglu")
        self.refused(layouts.StackedBlock(act=torch.tanh), "act_fn tanh", "gate_up_proj [8, 96, 64]")

    def test_biases_of_experts_are_refused(self):
        self.refused(layouts.Qwen3Block(bias=True), "gate_proj.bias of shape [48]")
        block = layouts.StackedBlock()
        block.experts.down_bias = nn.Parameter(torch.zeros(8, 64))
        self.refused(block, "down_bias of shape [8, 64]")

    def test_experts_of_two_matrices_are_replaced_if_their_activation_is_known(self):
        def block(act):
            made = layouts.Qwen3Block()
            made.experts = nn.ModuleList(
                nn.Sequential(nn.Linear(64, 48, bias=False), act, nn.Linear(48, 64, bias=False)) for _ in range(8)
            )
            return made

        model = nn.Sequential(block(nn.SiLU()))
        self.assertEqual(replace(model), ["0"])
        self.assertEqual((model[0].experts.activation, model[0].layout.parts), ("silu", ["0.weight", "2.weight"]))
        self.refused(block(nn.Tanh()), "0.weight [48, 64], 2.weight [64, 48] compute none of", "or down(act(up(x)))")

    def test_a_router_of_another_kind_is_refused(self):
        class Hashed(layouts.Qwen3Block):
            def forward(self, x):
                y, logits = super().forward(x)
                return y * 1.25, logits

        self.refused(Hashed(), "computes something else")

    def test_noise_dropout_hooks_and_experts_trained_in_part_are_refused(self):
        noisy = layouts.MixtralBlock()
        noisy.jitter_noise = 0.1
        self.refused(noisy, "jitter_noise 0.1")
        dropping = layouts.MixtralBlock()
        dropping.dropout = nn.Dropout(0.2)
        self.refused(dropping, "dropout 0.2")
        hooked = layouts.MixtralBlock()
        hooked.register_forward_hook(lambda *_: None)
        self.refused(hooked, "has hooks")
        partly = layouts.MixtralBlock()
        partly.experts[3].w1.weight.requires_grad_(False)
        self.refused(partly, "trains some", "w1.weight")
        wide = layouts.MixtralBlock()
        wide.experts.double()
        self.refused(wide, "torch.float64")

    def test_frozen_experts_stay_frozen_and_adapters_freeze_them(self):
        model = Decoder(layouts.MixtralBlock).requires_grad_(False)
        replace(model)
        self.assertFalse(any(parameter.requires_grad for parameter in model.parameters()))
        model = nn.Sequential(layouts.StackedBlock())
        replace(model, lora=LoRAConfig(4, 8))
        trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        self.assertNotIn("0.experts.layer.down_weight", trained)
        self.assertIn("0.experts.layer.down_lora_b", trained)

    def test_a_block_in_two_places_is_replaced_in_both(self):
        block = layouts.Qwen3Block()
        model = nn.Sequential(block, nn.ModuleDict({"again": block}))
        self.assertEqual(replace(model), ["0"])
        self.assertIs(model[0], model[1]["again"])
        self.assertIsNot(model[0], block)

    def test_a_replaced_block_remembers_where_its_weights_were(self):
        for name, block in layouts.LAYOUTS.items():
            model = nn.Sequential(block())
            original = {key: tensor.shape for key, tensor in model.state_dict().items()}
            replace(model)
            path, layout = next((n, part.layout) for n, part in model.named_modules() if hasattr(part, "layout"))
            sizes = {(48, 64), (64, 48)} if not layout.stacked else {(8, 96, 64), (8, 64, 48), (8, 64, 96), (8, 48, 64), (8, 96), (8, 64)}
            inner = [""] if layout.stacked else [f"{layout.experts}.{e}." for e in range(layout.count)]
            keys = {f"{path}.{place}{own}" for place in inner for own in layout.parts}
            self.assertTrue(all(tuple(original[key]) in sizes for key in keys), name)
            self.assertEqual(set(original) - set(model.state_dict()), keys)
            self.assertEqual((layout.stacked, layout.transposed), (name in ("stacked", "transposed", "gpt-oss"), name in ("transposed", "gpt-oss")))
            self.assertEqual((layout.in_turn, len(layout.biases)), (True, 2) if name == "gpt-oss" else (False, 0))

    def test_a_model_that_is_a_block_has_no_place_for_another(self):
        with self.assertRaisesRegex(Unsupported, "is the model itself"):
            replace(layouts.Qwen3Block())
        self.assertEqual(replace(layouts.StackedBlock()), [""])

    def test_a_model_without_experts_and_the_random_state_stay_as_they_are(self):
        plain = nn.Sequential(*[layouts.GatedMlp(64, 48) for _ in range(4)], nn.ModuleList([nn.Linear(8, 8)] * 3))
        self.assertEqual(replace(plain), [])
        model = Decoder(layouts.StackedBlock).train()
        torch.manual_seed(5)
        expected = torch.rand(1)
        torch.manual_seed(5)
        with self.assertRaises(KeyboardInterrupt):  # when the blocks are recognised, and nothing is replaced
            replace_moe(model, layer=interrupt)
        self.assertEqual(torch.rand(1), expected)
        self.assertTrue(all(part.training for part in model.modules()))


def interrupt(*_, **__):
    raise KeyboardInterrupt


if __name__ == "__main__":
    unittest.main()
