"""Layers whose weights are codes of 8 or 4 bits: values, gradients, ranks, states and errors."""

import math
import unittest

import core_jobs
import sluice_torch
import torch
import torch.distributed as dist
from decoder import Decoder
from grouped import grouped
from models import layouts
from moe_eager import BOUND, eager, error, route
from sluice_torch import Parallel, Steps
from sluice_torch.encodings import codes
from sluice_torch.graphs import WEIGHTS
from sluice_torch.layers import sharding
from sluice_torch.lora import LoRAConfig

HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 128, 128, 8, 2
# What the codes of rows cost.
OF_ROWS = 3e-2


def all_weights(experts=EXPERTS):
    made = torch.Generator().manual_seed(3)
    gate_up = torch.randn(experts, 2 * INTERMEDIATE, HIDDEN, generator=made) / HIDDEN**0.5
    return gate_up, torch.randn(experts, HIDDEN, INTERMEDIATE, generator=made) / INTERMEDIATE**0.5


INT8 = "int8,rows=int8"
SQUARES, POWERS, FACTOR = "fp8e4m3:128x128", "mxfp4", "nvfp4"
COUNTED, HALVES = "int4:g32z:f16", "int4:g64:bf16,rows=int8"
MIXED, PART = "int4:g32z,weights.down_weight=int8", "weights.gate_up_weight=int8,rows=int8"
KINDS = ("int8", INT8, "int4:g32,rows=int8", "int4:g64z", SQUARES, POWERS, FACTOR, MIXED, PART, COUNTED, HALVES)
# Arguments of quantize() for the same codes.
ARGUMENTS = {
    "int8": {},
    "int4": {"bits": 4},
    "int4:g32": {"bits": 4, "group": 32},
    "int4:g32z": {"bits": 4, "group": 32, "zeros": True},
    "int4:g64z": {"bits": 4, "group": 64, "zeros": True},
    "int4:g32z:f16": {"bits": 4, "group": 32, "zeros": True, "scale_type": torch.float16},
    "int4:g64:bf16": {"bits": 4, "group": 64, "scale_type": torch.bfloat16},
}


def decoded(name, weight, encode=INT8):
    kind = {MIXED: {"gate_up_weight": "int4:g32z", "down_weight": "int8"}, PART: {"gate_up_weight": "int8", "down_weight": "bf16"}}.get(
        encode, {name: encode.split(",")[0]}
    )[name]
    if kind == "bf16":
        return weight.bfloat16().float()
    if kind == SQUARES:
        return codes.dequantize_fp8(*sluice_torch.quantize_fp8(weight), dtype=torch.float32)
    if kind == POWERS:
        return codes.dequantize_mxfp4(*sluice_torch.quantize_mxfp4(weight), dtype=torch.float32)
    if kind == FACTOR:
        return codes.dequantize_nvfp4(*sluice_torch.quantize_nvfp4(weight), dtype=torch.float32)
    return codes.dequantize(*sluice_torch.quantize(weight, **ARGUMENTS[kind]), dtype=torch.float32)


def bound_of(encode):
    return OF_ROWS if "rows=int8" in encode or "grads=int8" in encode else BOUND


def make(encode=INT8, **options):
    layer = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, encode=encode, **grouped(threads=2, **options))
    gate_up, down = all_weights()
    for row, expert in enumerate(layer.local_experts):
        sharding.set_expert(layer, row, *gate_up[expert].chunk(2), down[expert])
    return layer


def batch(tokens=61, seed=1):
    made = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, HIDDEN, generator=made).bfloat16().requires_grad_()
    dy = torch.randn(tokens, HIDDEN, generator=made).bfloat16()
    ids, weights = route(tokens, EXPERTS, TOP_K, seed)
    return x, ids, weights.requires_grad_(), dy


def expected_of(x, ids, weights, dy, kind=INT8):
    """y and the gradients of x and weights, of the layer with the decoded weights, in float32."""
    leaf = x.detach().float().requires_grad_()
    given = weights.detach().clone().requires_grad_()
    y = eager(leaf, ids, given, *(decoded(name, weight, kind) for name, weight in zip(WEIGHTS, all_weights())))
    return y, *torch.autograd.grad(y, [leaf, given], dy.float())


class CodesTest(unittest.TestCase):
    def test_many_rows_get_the_codes_of_single_rows(self):
        weight = torch.randn(2, 600, 512, generator=torch.Generator().manual_seed(3))
        for make in (lambda w: codes.quantize(w, 4, 32, True), codes.quantize, codes.quantize_mxfp4):
            found = make(weight)
            for row in (0, 255, 256, 599):
                for made, expected in zip(found, make(weight[:, row : row + 1])):
                    self.assertTrue(torch.equal(made[:, row : row + 1], expected), row)

    def test_codes_are_the_nearest_numbers_of_their_channel(self):
        weight = torch.randn(3, 5, 40, generator=torch.Generator().manual_seed(1))
        weight[0, 0], weight[1, 1] = 0, 2.0**-125
        made, scale = sluice_torch.quantize(weight)
        self.assertEqual((made.dtype, scale.dtype), (torch.int8, torch.float32))
        self.assertEqual((made.shape, scale.shape), ((3, 5, 40), (3, 5, 1)))
        off = (made * scale - weight).abs()
        self.assertTrue((off <= scale / 2 * (1 + 1e-5)).all())
        self.assertEqual(made.abs().amax(-1)[2].tolist(), [127] * 5)
        for row in ((0, 0), (1, 1)):
            self.assertEqual((made[row].abs().max().item(), scale[row].item()), (0, 1))
        for bad in (float("nan"), float("inf")):
            weight[2, 3, 7] = bad
            with self.assertRaisesRegex(ValueError, "NaN or infinity"):
                sluice_torch.quantize(weight)

    def test_fine_tuning_takes_numbers_for_each_kind_of_codes(self):
        gate_up, down = all_weights()
        x, ids, given, dy = batch()
        for encode in KINDS:
            with self.subTest(encode=encode):
                tuning = sluice_torch.FineTuning(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, encode=encode, steps=Steps(threads=2))
                with self.assertRaisesRegex(RuntimeError, r"with gate and up \[8, 128, 128\] and down \[8, 128, 128\]"):
                    tuning.forward(x, ids, given)
                gate, up = gate_up.chunk(2, 1)
                with self.assertRaisesRegex(ValueError, r"up has shape \[8, 128, 64\], expected \[8, 128, 128\]"):
                    tuning.load_weights(gate, up[:, :, ::2], down)
                with self.assertRaisesRegex(ValueError, "down is of type list, expected"):
                    tuning.load_weights(gate, up, [1])
                tuning.load_weights(gate, up, down)
                y = tuning.forward(x.detach(), ids, given.detach())
                grads = tuning.backward(dy)
                for a, b in zip((y, grads["x"], grads["expert_weights"]), expected_of(x, ids, given, dy, encode)):
                    self.assertLess(error(a, b), bound_of(encode))

    def test_values_and_gradients_are_those_of_the_decoded_weights(self):
        for encode in KINDS:
            for pack_frozen in (False, True):
                layer = make(encode, pack_frozen=pack_frozen)
                for seed in range(2):  # the second step finds packed weights
                    x, ids, given, dy = batch(seed=seed)
                    y = layer(x, ids, given)
                    for a, b in zip((y, *torch.autograd.grad(y, [x, given], dy)), expected_of(x, ids, given, dy, encode)):
                        self.assertLess(error(a, b), bound_of(encode))
                with torch.no_grad():
                    self.assertTrue(torch.equal(layer(x, ids, given), y))
                    self.assertTrue(torch.equal(layer.submit_forward(x, ids, given).wait(), y))

    def test_gradients_of_codes_are_those_of_the_decoded_weights(self):
        for encode in (INT8, "int8", "int4,rows=int8", "int4"):
            for pack_frozen in (False, True):
                layer, plain = make(f"{encode},grads=int8", pack_frozen=pack_frozen), make(encode)
                for seed in range(2):
                    x, ids, given, dy = batch(seed=seed)
                    y = layer(x, ids, given)
                    grads = torch.autograd.grad(y, [x, given], dy)
                    want = plain(x, ids, given)
                    self.assertTrue(torch.equal(y, want))  # the forward is the same
                    for a, b in zip(grads, torch.autograd.grad(want, [x, given], dy)):
                        self.assertLess(error(a, b), OF_ROWS)
                        self.assertFalse(torch.equal(a, b))
                with torch.no_grad():
                    self.assertTrue(torch.equal(layer(x, ids, given), y))
        self.assertIn("encode='int4,grads=int8'", repr(layer))
        layer = make("int8,rows=int8,grads=int8", lora=LoRAConfig(4, targets=("down",)))
        x, ids, given, dy = batch()
        layer(x.detach(), ids, given.detach()).backward(dy)  # no product with codes in the backward
        self.assertTrue(all(each.grad is not None for name, each in layer.named_parameters() if "lora" in name))
        for encode, said in (
            ("int8,grads=int4", "encode: grads=int4, expected one of bf16, int8,"),
            ("grads=int8", "encode: grads=int8, expected weights of int8 or int4"),
            ("int4:g32,grads=int8", "encode: grads=int8, expected bf16 with weights=int4:g32: gradients are multiplied by one scale"),
            ("int4:z,grads=int8", "encode: grads=int8, expected bf16 with weights=int4:z: gradients are multiplied by one scale"),
        ):
            with self.assertRaisesRegex(ValueError, said):
                make(encode)

    def test_codes_of_4_bits_are_the_nearest_numbers_of_their_group(self):
        weight = torch.randn(3, 5, 128, generator=torch.Generator().manual_seed(1)) + 0.3
        weight[0, 0], weight[1, 1] = 0, 2.0**-125
        for group in (0, 32, 64, 128):
            for zeros in (False, True):
                made = sluice_torch.quantize(weight, 4, group, zeros)
                self.assertEqual((made[0].dtype, made[0].shape), (torch.uint8, (3, 5, 64)))
                for beside in made[1:]:
                    self.assertEqual((beside.dtype, beside.shape), (torch.float32, (3, 5, 128 // (group or 128))))
                steps = made[1].repeat_interleave(group or 128, -1)
                off = (codes.dequantize(*made, dtype=torch.float32) - weight).abs()
                self.assertTrue((off <= steps / 2 * (1 + 1e-5)).all())
                high, low = made[0] >> 4, made[0] & 15
                self.assertEqual((max(high.max(), low.max()), min(high.min(), low.min())), (15, 0 if zeros else 1))
        with self.assertRaisesRegex(ValueError, "a weight with 5 columns, expected a multiple of 2"):
            sluice_torch.quantize(torch.ones(2, 5), 4)
        with self.assertRaisesRegex(ValueError, "a weight with 48 columns, expected a multiple of 32"):
            sluice_torch.quantize(torch.ones(2, 48), 4, 32)
        for bad in ({"bits": 5}, {"bits": 8, "group": 32}, {"bits": 4, "group": 16}, {"bits": 8, "zeros": True}):
            with self.assertRaisesRegex(ValueError, "expected 8 bits, or 4 with one of the groups"):
                sluice_torch.quantize(weight, **bad)

    def test_codes_beside_scales_of_16_bits_are_the_nearest_numbers_to_what_these_are(self):
        weight = torch.randn(3, 5, 128, generator=torch.Generator().manual_seed(1)) + 0.3
        weight[0, 0], weight[1, 1], weight[2, 2] = 0, 2.0**-125, weight[2, 2].abs() + 7
        for dtype in (torch.float16, torch.bfloat16):
            for zeros in (False, True):
                made, scale, *zero = sluice_torch.quantize(weight, 4, 32, zeros, dtype)
                self.assertEqual((made.dtype, scale.dtype, scale.shape), (torch.uint8, dtype, (3, 5, 4)))
                self.assertEqual([(each.dtype, each.shape) for each in zero], [(torch.int8, (3, 5, 4))] * zeros)
                least, most = weight.unflatten(-1, (4, 32)).amin(-1).clamp(max=0), weight.unflatten(-1, (4, 32)).amax(-1).clamp(min=0)
                exact = (most - least) / 15 if zeros else torch.maximum(most, -least) / 7
                self.assertTrue(((scale.float() - exact).abs() <= exact * 2.0 ** (-11 if dtype == torch.float16 else -8)).logical_or(exact < 1e-7).all())
                steps = scale.float().repeat_interleave(32, -1)
                off = (codes.dequantize(made, scale, *zero, dtype=torch.float32) - weight).abs()
                # what scales are rounded by moves the ends, where codes end, too
                self.assertTrue((off <= steps * (0.5 + 15 * 2.0 ** (-11 if dtype == torch.float16 else -8))).all())
                pairs = torch.stack((made & 15, made >> 4), -1).flatten(-2)
                counted = zero[0].repeat_interleave(32, -1) if zeros else 8
                self.assertTrue(torch.equal(pairs, (torch.round(weight / steps) + counted).clamp(0, 15).to(torch.uint8)))
                for row in ((0, 0), (1, 1)):
                    self.assertEqual(pairs[row].unique().tolist(), [zero[0][row].max().item() if zeros else 8])
        with self.assertRaisesRegex(ValueError, "a weight with a scale of 1.43e\\+05 has none of torch.float16"):
            sluice_torch.quantize(torch.full((1, 32), 1e6), 4, 32, False, torch.float16)
        for bad in ({"bits": 8, "scale_type": torch.float16}, {"bits": 4, "scale_type": torch.float64}):
            with self.assertRaisesRegex(ValueError, "expected one of torch.float32, torch.float16, torch.bfloat16, with 8 bits the first"):
                sluice_torch.quantize(weight, **bad)

    def test_codes_of_fp8_are_the_nearest_numbers_of_their_square(self):
        weight = torch.randn(3, 130, 200, generator=torch.Generator().manual_seed(1))
        weight[0, :128, :128], weight[1, 128:, 128:] = 0, 2.0**-125
        made, scale = sluice_torch.quantize_fp8(weight)
        self.assertEqual((made.dtype, made.shape, scale.dtype, scale.shape), (torch.uint8, (3, 130, 200), torch.float32, (3, 2, 2)))
        for square, count in (((0, slice(0, 128), slice(0, 128)), (0, 0, 0)), ((1, slice(128, None), slice(128, None)), (1, 1, 1))):
            self.assertEqual((made[square].max().item(), scale[count].item()), (0, 1))
        known = codes.e4m3()
        self.assertEqual((known[0x38].item(), known[0x7E].item(), known[1].item(), known[0xC0].item()), (1, 448, 2.0**-9, -2))
        finite = known[known.isfinite()].unique()
        for expert in range(3):
            of = scale[expert].repeat_interleave(128, 0)[:130].repeat_interleave(128, 1)[:, :200]
            nearest = (weight[expert].double() / of.double())[..., None].sub(finite.double()).abs().amin(-1)
            off = (weight[expert].double() / of.double() - known[made[expert].long()].double()).abs()
            self.assertLess((off - nearest).max().item(), 1e-4)  # but for the rounding of the quotient
        ties = torch.tensor([[448, 17, 18.5, 19, 3 * 2.0**-10, -(2.0**-10)]])  # between two codes the even one
        self.assertEqual(sluice_torch.quantize_fp8(ties)[0].tolist(), [[0x7E, 0x58, 0x59, 0x5A, 2, 0x80]])
        with self.assertRaisesRegex(ValueError, "NaN or infinity"):
            sluice_torch.quantize_fp8(torch.tensor([[float("nan")]]))

    def test_codes_of_mxfp4_are_the_nearest_numbers_of_their_block(self):
        weight = torch.randn(3, 5, 64, generator=torch.Generator().manual_seed(1)) * 2.0 ** torch.arange(-60, 60, 8).view(3, 5, 1)
        weight[0, 0], weight[1, 1] = 0, 2.0**-140
        made, powers = sluice_torch.quantize_mxfp4(weight)
        self.assertEqual((made.dtype, made.shape, powers.dtype, powers.shape), (torch.uint8, (3, 5, 32), torch.uint8, (3, 5, 2)))
        self.assertEqual((made[0, 0].max().item(), powers[0, 0].max().item(), powers[1, 1].max().item()), (0, 0, 0))
        known = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.double)
        for row, numbers in zip(weight.view(-1, 2, 32).double(), codes.dequantize_mxfp4(made, powers, torch.double).view(-1, 2, 32)):
            for block, found in zip(row, numbers):
                if block.abs().max() < 2.0**-100:
                    continue
                power = 2.0 ** (math.floor(math.log2(block.abs().max())) - 2)
                nearest = (block.abs() / power)[:, None].sub(known).abs().amin(-1)
                self.assertTrue(torch.equal((block - found).abs() / power, nearest))
        ties = torch.zeros(1, 32)  # between two codes the even one
        ties[0, :8] = torch.tensor([4, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, -5])
        self.assertEqual(codes.dequantize_mxfp4(*sluice_torch.quantize_mxfp4(ties))[0, :8].tolist(), [4, 0, 1, 1, 2, 2, 4, -4])
        largest = torch.full((1, 32), torch.finfo(torch.float32).max)
        self.assertEqual(sluice_torch.quantize_mxfp4(largest)[1].tolist(), [[127 + 125]])
        with self.assertRaisesRegex(ValueError, "NaN or infinity"):
            sluice_torch.quantize_mxfp4(torch.full((1, 32), float("nan")))
        with self.assertRaisesRegex(ValueError, "a weight with 48 columns, expected a multiple of 32"):
            sluice_torch.quantize_mxfp4(torch.ones(2, 48))

    def test_codes_of_nvfp4_are_the_nearest_numbers_of_their_block(self):
        weight = torch.randn(3, 5, 64, generator=torch.Generator().manual_seed(1)) * 2.0 ** torch.arange(-7, 8).view(3, 5, 1)
        weight[0, 0], weight[1, 1], weight[2] = 0, 2.0**-60, 0
        made, scales, factor = sluice_torch.quantize_nvfp4(weight)
        self.assertEqual((made.dtype, made.shape, scales.dtype, scales.shape), (torch.uint8, (3, 5, 32), torch.uint8, (3, 5, 4)))
        self.assertEqual((factor.dtype, factor.shape, factor[2].item()), (torch.float32, (3, 1), 1))
        for zero in (made[0, 0], scales[0, 0], scales[1, 1], made[2], scales[2]):
            self.assertEqual(zero.max().item(), 0)
        self.assertTrue(torch.allclose(factor[:2, 0], weight[:2].flatten(1).abs().amax(1) / (6 * 448), rtol=1e-6))
        known, of_scales = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.double), codes.e4m3().double()
        finite = of_scales[of_scales.isfinite()].unique()
        found = codes.dequantize_nvfp4(made, scales, factor, torch.double)
        for expert in range(2):
            blocks, numbers = (each[expert].double().view(-1, 16) for each in (weight, found))
            step = of_scales[scales[expert].long()].view(-1) * factor[expert].double()
            wanted = blocks.abs().amax(1) / 6 / factor[expert].double()
            off = (of_scales[scales[expert].long()].view(-1) - wanted).abs()
            self.assertTrue(torch.equal(off, (wanted[:, None] - finite).abs().amin(1)))
            nearest = ((blocks.abs()[..., None] - known * step[:, None, None]).abs()).amin(-1)
            self.assertLess(((blocks - numbers).abs() - nearest).abs().max().item(), 1e-12)
        with self.assertRaisesRegex(ValueError, "NaN or infinity"):
            sluice_torch.quantize_nvfp4(torch.full((1, 16), float("nan")))
        with self.assertRaisesRegex(ValueError, "a weight with 40 columns, expected a multiple of 16"):
            sluice_torch.quantize_nvfp4(torch.ones(2, 40))

    def test_packed_codes_take_half_of_packed_bfloat16_or_a_third(self):
        x, ids, given, _ = batch(200)
        packed = {}
        for encode in ("bf16", INT8, "int4:g32,rows=int8"):
            layer = make(encode, pack_frozen=True).requires_grad_(False)
            with torch.no_grad():
                layer(x, ids, given)
            packed[encode] = sum(held.op.packed_bytes() for held in layer._layers.values())
            self.assertGreater(packed[encode], 0)
        self.assertLessEqual(packed[INT8], 0.52 * packed["bf16"])
        self.assertLessEqual(packed["int4:g32,rows=int8"], 0.33 * packed["bf16"])

    def test_a_packed_scale_that_changes_takes_effect(self):
        x, ids, given, _ = batch()
        layer, plain = make("int4:g32,rows=int8", pack_frozen=True), make("int4:g32,rows=int8")
        with torch.no_grad():
            before = layer(x, ids, given)
            for each in (layer, plain):
                each.down_weight_scales.mul_(0.5)
            self.assertFalse(torch.equal(layer(x, ids, given), before))
            self.assertTrue(torch.equal(layer(x, ids, given), plain(x, ids, given)))

    def test_codes_cost_what_the_documentation_says(self):
        """Checks the errors of a layer on Gaussian data: docs/ENCODING_COSTS.md, *Weights of 8 or 4 bits*."""
        x, ids, given, _ = batch(200)
        with torch.no_grad():
            expected = eager(x.float(), ids, given, *all_weights())
            for encode, bound in (
                (INT8, 0.035),
                ("int8", 0.02),
                ("int4,rows=int8", 0.32),
                ("int4:g128,rows=int8", 0.27),
                ("int4:g32,rows=int8", 0.22),
                ("int4:g32z,rows=int8", 0.18),
                ("int4:g32", 0.22),
                ("int4:g32:f16", 0.22),
                ("int4:g32z:bf16", 0.18),
                (SQUARES, 0.06),
                (POWERS, 0.25),
                (FACTOR, 0.2),
            ):
                found = error(make(encode)(x, ids, given), expected)
                self.assertLess(found, bound, encode)
                self.assertGreater(found, bound / 3, encode)

    def test_adapters_are_trained_on_codes(self):
        torch.manual_seed(1)
        for encode in ("int8", "int4:g64z", SQUARES, POWERS, FACTOR, MIXED, COUNTED):
            layer, other = make(encode, lora=LoRAConfig(4)), make("bf16", lora=LoRAConfig(4))
            with torch.no_grad():
                for name, parameter in layer.named_parameters():
                    if "lora" in name:
                        parameter.copy_(0.1 * torch.randn(parameter.shape))
                        getattr(other, name).copy_(parameter)
                for name, weight in zip(WEIGHTS, all_weights()):
                    getattr(other, name).copy_(decoded(name, weight, encode))
            trained = [name for name, parameter in layer.named_parameters() if parameter.requires_grad]
            self.assertEqual(len(trained), 6)
            x, ids, given, dy = batch()
            steps = []
            for each in (layer, other):
                y = each(x, ids, given)
                steps.append([y, *torch.autograd.grad(y, [x, given, *(getattr(each, name) for name in trained)], dy)])
            for name, a, b in zip(["y", "x", "expert_weights", *trained], *steps):
                self.assertLess(error(a, b), BOUND, (encode, name))

    def test_states_have_codes_and_scales(self):
        layer = make()
        self.assertEqual(
            sorted(layer.state_dict()), ["down_weight", "down_weight_scale", "gate_up_weight", "gate_up_weight_scale"]
        )
        of_groups = sorted(make("int4:g32z,rows=int8").state_dict())
        self.assertEqual(of_groups[:3], ["down_weight", "down_weight_scales", "down_weight_zeros"])
        of_channels = sorted(make("int4:z,rows=int8").state_dict())
        self.assertEqual(of_channels[:3], ["down_weight", "down_weight_scale", "down_weight_zero"])
        torch.manual_seed(9)
        other = sluice_torch.MoE(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, encode=INT8, steps=Steps(threads=2))
        x, ids, given, _ = batch()
        with torch.no_grad():
            self.assertFalse(torch.equal(other(x, ids, given), layer(x, ids, given)))
            other.load_state_dict(layer.state_dict())
            self.assertTrue(torch.equal(other(x, ids, given), layer(x, ids, given)))

    def test_blocks_of_models_get_codes_and_give_them_back(self):
        for number, (name, block) in enumerate(layouts.LAYOUTS.items()):
            encode = (INT8, "int4:z,rows=int8")[number % 2]
            bounds = (5e-2, 2e-2) if number % 2 == 0 else (0.35, 0.2)
            with self.subTest(layout=name):
                torch.manual_seed(2)
                model, plain = Decoder(block), Decoder(block)
                plain.load_state_dict(model.state_dict())
                names = sluice_torch.replace_moe(model, encode=encode, steps=Steps(threads=2))
                sluice_torch.replace_moe(plain, steps=Steps(threads=2))
                for module in model.modules():
                    if isinstance(module, sluice_torch.MoE):
                        self.assertFalse(module.gate_up_weight.is_floating_point())
                        self.assertFalse(any(parameter.requires_grad for parameter in module.parameters()))
                rows = torch.randn(40, 64, generator=torch.Generator().manual_seed(5))
                for path in names:
                    made, expected = (each.get_submodule(path) for each in (model, plain))
                    if not isinstance(made, sluice_torch.MoE) and "experts" not in path:
                        found, wanted = (each(rows[None]) for each in (made, expected))
                        found, wanted = (each[0] if isinstance(each, tuple) else each for each in (found, wanted))
                        self.assertLess(error(found, wanted), bounds[0])
                original, before = sluice_torch.state.to_original(model), sluice_torch.state.to_original(plain)
                self.assertEqual(set(original), set(before))
                for key, value in before.items():
                    self.assertEqual(original[key].shape, value.shape, key)
                    self.assertLess(error(original[key], value), bounds[1], key)
                again = sluice_torch.state.from_original(model, before)
                self.assertEqual(set(again), set(model.state_dict()))
                model.load_state_dict(again)

    def test_tuning_makes_codes_of_the_weights_it_loads(self):
        gate_up, down = all_weights()
        x, ids, given, dy = batch()
        gradients = []
        for encode in (INT8, "int8,rows=int8,grads=int8"):
            tuning = sluice_torch.FineTuning(HIDDEN, INTERMEDIATE, EXPERTS, TOP_K, encode=encode, steps=Steps(threads=2))
            tuning.load_weights(gate_up[:, :INTERMEDIATE], gate_up[:, INTERMEDIATE:], down)
            y, found = tuning.forward(x, ids, given), tuning.backward(dy)
            for a, b in zip((y, found["x"], found["expert_weights"]), expected_of(x, ids, given, dy)):
                self.assertLess(error(a, b), OF_ROWS)
            gradients.append(found["x"])
        self.assertFalse(torch.equal(*gradients))

    def test_what_is_wrong_is_refused(self):
        for making, said in (
            (lambda: make("int5"), "encode: found 'int5', expected an encoding"),
            (lambda: make("int4:g48"), "encode: found 'int4:g48', expected an encoding"),
            (lambda: make("weights=int8:g32"), "encode: weights=int8:g32, expected one of bf16, int8, int4, int4:z, int4:g32,"),
            (lambda: make("fp8e4m3:128x128,grads=int8"), "encode: grads=int8, expected bf16 with weights=fp8e4m3:128x128"),
            (lambda: make("fp8e4m3:128x128,rows=int8"), "encode: rows=int8, expected bf16 with weights=fp8e4m3:128x128"),
            (
                lambda: sluice_torch.MoE(HIDDEN, 96, EXPERTS, TOP_K, encode=SQUARES),
                "intermediate columns of a rank: 96, expected a multiple of 128 for fp8e4m3:128x128",
            ),
            (lambda: make("mxfp4,rows=int8"), "encode: rows=int8, expected bf16 with weights=mxfp4"),
            (lambda: make("nvfp4,rows=int8"), "encode: rows=int8, expected bf16 with weights=nvfp4"),
            (
                lambda: sluice_torch.MoE(48, INTERMEDIATE, EXPERTS, TOP_K, encode=POWERS),
                "hidden: 48, expected a multiple of 32 for gate_up_weight of mxfp4",
            ),
            (
                lambda: sluice_torch.MoE(96, INTERMEDIATE, EXPERTS, TOP_K, encode="int4:g64"),
                "hidden: 96, expected a multiple of 64 for gate_up_weight of int4:g64",
            ),
            (
                lambda: sluice_torch.MoE(HIDDEN, 48, EXPERTS, TOP_K, encode="weights.down_weight=mxfp4"),
                "intermediate columns of a rank: 48, expected a multiple of 32 for down_weight of mxfp4",
            ),
            (lambda: make("int8,weights.down=int8"), "encode: found weights.down, expected a name of gate_up_weight, down_weight"),
            (lambda: make("int8,rows=int8,weights.down_weight=mxfp4"), "expected bf16 with weights.down_weight=mxfp4"),
        ):
            with self.assertRaisesRegex(ValueError, said):
                making()
        layer = make()
        with self.assertRaisesRegex(RuntimeError, "floating point"):
            layer.gate_up_weight.requires_grad_(True)
        x, ids, given, _ = batch()
        layer.gate_up_weight_scale.data = layer.gate_up_weight_scale.data.bfloat16()
        with self.assertRaisesRegex(ValueError, "gate_up_weight_scale has type BFloat16, expected Float"):
            layer(x, ids, given)
        layer.gate_up_weight_scale.data = torch.ones(EXPERTS, 3, 1)
        with self.assertRaisesRegex(ValueError, r"gate_up_weight_scale has shape \[8, 3, 1\], expected \[8, 256, 1\]"):
            layer(x, ids, given)

    def test_ranks_share_codes(self):
        for size in (2, 4):
            with self.subTest(ranks=size):
                core_jobs.run_ranks(self, "ranks", size)


def check_state(layer):
    """Shards of codes, joined, are the codes of whole experts."""
    whole = sluice_torch.state.full(torch.nn.ModuleList([layer]))
    for name, weight in zip(WEIGHTS, all_weights()):
        for each, tensor in codes.tensors_of(layer.shape.stored(name), name, weight).items():
            found = whole[f"0.{each}"]
            assert torch.equal(found, tensor.to(found.dtype)), (layer.shape.encodings, each)
    layer.reset_parameters()  # at random, with the same scales at all shards
    sluice_torch.state.full(torch.nn.ModuleList([layer]))


def check_replaced():
    """A model whose experts ranks share gives back its weights, and takes them again, as near as codes of whole experts are."""
    torch.manual_seed(2)
    model = torch.nn.Sequential(layouts.Qwen3Block())
    original = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    sluice_torch.replace_moe(model, encode="int8", parallel=Parallel(dist.group.WORLD, tp=2, timeout=20), steps=Steps(threads=1))
    state = sluice_torch.state.full(model)
    found = sluice_torch.state.to_original(model, state)
    for name, tensor in original.items():
        assert error(found[name], tensor) < 0.02, (name, error(found[name], tensor))
    model.load_state_dict(sluice_torch.state.from_original(model, original))
    for name, tensor in sluice_torch.state.full(model).items():
        assert torch.equal(tensor, state[name]), name


def ranks(rank, size):
    check_replaced()
    for encode in (*KINDS, "int8,rows=int8,grads=int8", "int8,grads=int8"):
        weights = encode.removesuffix(",grads=int8")
        for options in ({}, {"tp": 2}, {"tp": 2, "tokens": "same"}, {"spare": size}):
            if encode == SQUARES and "tp" in options:
                continue  # a shard would have half a square
            layer = make(encode, ep_group=dist.group.WORLD, timeout=20, **options)
            number = rank // layer.shape.tp if layer.shape.tokens == "same" else rank
            x, ids, given, dy = batch(tokens=(40, 0, 23, 9)[number], seed=number)
            y = layer(x, ids, given)
            for a, b in zip((y, *torch.autograd.grad(y, [x, given], dy)), expected_of(x, ids, given, dy, weights)):
                assert error(a, b) < bound_of(encode) or not len(x), (encode, options, error(a, b))
            if "tp" in options:
                check_state(layer)
            if "spare" in options:
                layer.place([*range(EXPERTS - 1, -1, -1), *range(size)])
                moved = layer(x, ids, given)
                assert torch.equal(moved, y), "moved experts give other bits"


if __name__ == "__main__" and not core_jobs.main({"ranks": ranks}):
    unittest.main()
