"""A replaced block equals the original: with weights that are loaded later, in both modes, outputs and gradients."""

import unittest

import torch
from torch import nn

from models.eager_moe import EagerMoE
from models.supported import SUPPORTED
from sluice_torch.graphs import BIASES
from sluice_torch.replacing.replace import replace_moe

ROWS = (2, 150)


def draw_state(block):
    """Sets everything that a block contains to other numbers."""
    generator = torch.Generator().manual_seed(77)
    for tensor in [*block.parameters(), *block.buffers()]:
        if tensor.is_floating_point():
            scale = 0.4 if tensor.dim() < 2 else 2.0 / max(tensor.shape[-2:]) ** 0.5
            tensor.data.copy_(torch.randn(tensor.shape, generator=generator) * scale)


def layer_of(stand):
    return stand.layer if stand.layout.stacked else getattr(stand, stand.layout.experts)


def matrices_of(experts, layout, value):
    """gate_up [E, 2I, H] and down [E, H, I] of a block's original experts, and their biases; value() gives a parameter's tensor."""
    own = dict(experts.named_parameters())
    if layout.stacked:
        found = [value(own[name]) for name in layout.parts]
        found = [each.transpose(1, 2) if layout.transposed and each.dim() == 3 else each for each in found]
        if layout.in_turn:
            found[::2] = [torch.cat((each[:, ::2], each[:, 1::2]), 1) for each in found[::2]]
        return found
    stacked = [torch.stack([value(own[f"{e}.{name}"]) for e in range(layout.count)]) for name in layout.parts]
    return torch.cat(stacked[:-1], 1), stacked[-1]


def parameters_of(layer):
    return [layer.gate_up_weight, layer.down_weight, *(getattr(layer, name) for name in BIASES if hasattr(layer, name))]


def gradient(parameter):
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def copy_state(twin, model, stand, experts):
    """Copies the twin's state to the replaced model: experts to the layer, everything else by name."""
    layer = layer_of(stand)
    with torch.no_grad():
        for place, value in zip(parameters_of(layer), matrices_of(experts, stand.layout, lambda p: p)):
            place.copy_(value)
    missing, _ = model.load_state_dict(twin.state_dict(), strict=False)
    layers = {id(tensor) for tensor in layer.parameters()}
    own = {name for name, tensor in model.named_parameters() if id(tensor) in layers}
    assert set(missing) == own, missing


class EqualTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(6)
        torch.set_num_threads(1)

    def run_step(self, model, x):
        """Outputs, and gradients of x and of parameters, for random numbers that are the same for each model."""
        for parameter in model.parameters():
            parameter.grad = None
        x = x.clone().requires_grad_()
        torch.manual_seed(8)
        outputs = model(x)
        outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
        generator = torch.Generator().manual_seed(9)
        sum((y.float() * torch.randn(y.shape, generator=generator)).sum() for y in outputs).backward()
        return outputs, x.grad

    def assert_near(self, found, expected, dtype, what):
        found, expected = found.detach().float(), expected.detach().float()
        self.assertEqual(found.shape, expected.shape, what)
        if dtype == torch.float32:
            room = 2e-3 * expected.abs().max().item() + 1e-5
            self.assertLessEqual((found - expected).abs().max().item(), room, what)
            return
        scale = expected.abs().amax(-1, keepdim=True) + 1e-2 * expected.abs().max() + 1e-6
        near = ((found - expected).abs() / scale).amax(-1) < 0.1  # a few rows go to other experts
        self.assertGreater(near.float().mean().item(), 0.9 if expected.dim() > 1 else 0, what)

    def compare(self, make, dtype):
        twin, model = make().to(dtype), nn.Sequential(make().to(dtype))
        self.assertEqual(replace_moe(model, layer=EagerMoE), ["0"])
        path, stand = next((name, part) for name, part in model.named_modules() if hasattr(part, "layout"))
        draw_state(twin)
        inner = path.partition(".")[2]
        experts = twin.get_submodule(inner) if inner else getattr(twin, stand.layout.experts)
        copy_state(twin, model[0], stand, experts)
        x = torch.randn(*ROWS, stand.layout.hidden).to(dtype)
        self.compare_runs(twin, model[0], stand, experts, x, dtype)

    def compare_runs(self, twin, model, stand, experts, x, dtype):
        layer = layer_of(stand)
        for training in (False, True):
            found, dx = self.run_step(model.train(training), x)
            expected, expected_dx = self.run_step(twin.train(training), x)
            self.assertEqual([y.shape for y in found], [y.shape for y in expected])
            self.assertEqual([y.dtype for y in found], [y.dtype for y in expected])
            for y, other in zip(found, expected):
                self.assert_near(y, other, dtype, "outputs")
            self.assert_near(dx, expected_dx, dtype, "gradient of x")
            own = dict(model.named_parameters())
            for name, parameter in twin.named_parameters():
                if name in own and dtype == torch.float32:
                    self.assert_near(gradient(own[name]), gradient(parameter), dtype, name)
            places = [gradient(each) for each in parameters_of(layer)]
            for grad, other in zip(places, matrices_of(experts, stand.layout, gradient)):
                if dtype == torch.float32:
                    self.assert_near(grad, other, dtype, "gradient of experts")

    def test_supported_blocks_are_replaced_and_equal_with_weights_loaded_later(self):
        self.assertGreaterEqual(len(SUPPORTED), 20)
        for name, make in SUPPORTED.items():
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(block=name, dtype=dtype):
                    self.compare(make, dtype)


if __name__ == "__main__":
    unittest.main()
