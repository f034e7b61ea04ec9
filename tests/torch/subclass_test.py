"""Tensors without their own memory, which stand for others, are refused by name; the layer stays usable."""

import tempfile
import unittest

import sluice_torch
import torch
from moe_layers import Batch, MoETest, make


class Wrapped(torch.Tensor):
    """As DTensor is made: what it holds is in another tensor."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, requires_grad=held.requires_grad)

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        if "sluice" in str(function):  # down to what computes, as DTensor does with ops of several parts
            return function.decompose(*arguments, **(options or {}))
        held = [each.held if isinstance(each, cls) else each for each in arguments]
        made = function(*held, **(options or {}))
        return cls(made) if isinstance(made, torch.Tensor) else made


def distributed(tensor):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_tensor

    return distribute_tensor(tensor, init_device_mesh("cpu", (1,)), [Replicate()])


class SubclassTest(MoETest):
    def check_refused(self, wrap):
        refused = "is a DTensor or another tensor without its own memory, expected a plain tensor"
        for grad in (False, True):
            layer, batch = make(seed=3), Batch()
            y = batch.run(layer)
            given = [batch.x.detach().requires_grad_(grad), batch.ids, batch.expert_weights.detach()]
            for place, name in enumerate(("x", "expert_ids", "expert_weights")):
                wrapped = [wrap(each.detach()) if at == place else each for at, each in enumerate(given)]
                with self.assertRaisesRegex(ValueError, f"{name} {refused}"):
                    layer(*wrapped)
                names = ("x", "(expert_ids|token_indices)", "(probs|token_probs)")
                with self.assertRaisesRegex(ValueError, f"{names[place]} {refused}"):
                    sluice_torch.exchange.dispatch(*wrapped, 8)
            for name in ("gate_up_weight", "down_weight"):
                broken = make(seed=3)
                setattr(broken, name, torch.nn.Parameter(wrap(getattr(broken, name).detach()), requires_grad=grad))
                with self.assertRaisesRegex((ValueError, RuntimeError), f"{name} is a DTensor"):
                    broken(*given)
            self.assertTrue(torch.equal(batch.run(layer), y))

    def test_subclasses_that_dispatch_in_python_are_refused(self):
        self.check_refused(Wrapped)

    def test_tensors_of_vmap_are_refused(self):
        layer, batch = make(), Batch()
        vmap = getattr(torch, "vmap", None) or __import__("functorch").vmap
        refused = "x is a DTensor or another tensor without its own memory|Batching rule not implemented for sluice::moe"
        with self.assertRaisesRegex(Exception, refused):
            with torch.no_grad():
                vmap(lambda x: layer(x, batch.ids, batch.expert_weights))(batch.x.detach().expand(3, -1, -1))
        batch.run(layer)

    def test_distributed_tensors_are_refused(self):
        if not hasattr(torch.distributed, "device_mesh"):
            self.skipTest(f"SKIP: PyTorch {torch.__version__} has no torch.distributed.tensor")
        with tempfile.TemporaryDirectory() as folder:
            torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
            try:
                self.check_refused(distributed)
            finally:
                torch.distributed.destroy_process_group()


if __name__ == "__main__":
    unittest.main()
