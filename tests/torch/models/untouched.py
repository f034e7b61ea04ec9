"""Checks that a model is unchanged: for replacements that are refused, or that fail."""

import torch


def everything_of(model):
    """What a refused replacement must not change: objects, modes, tensors with their values, gradients and
    attributes."""
    found = {}
    for path, part in model.named_modules():
        found[path] = (part, part.training, sorted(vars(part)), list(part._modules))
        for name, tensor in [*part._parameters.items(), *part._buffers.items()]:
            value = None if tensor is None else (tensor, tensor.detach().clone(), tensor.grad)
            found[f"{path}.{name}"] = value
    return found


def assert_untouched(test, model, before):
    """`before`: everything_of() it."""
    now = everything_of(model)
    test.assertEqual(list(now), list(before))
    for name, value in before.items():
        for part, old in zip(now[name] or (), value or ()):
            if isinstance(old, torch.Tensor):
                test.assertTrue(part is old or torch.equal(part, old), name)
            elif isinstance(old, torch.nn.Module):
                test.assertIs(part, old)
            else:
                test.assertEqual(part, old)
