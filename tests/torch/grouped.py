"""Arguments of sluice_torch.MoE by the names of the fields of its values, so that tests combine them freely."""

import dataclasses

from sluice_torch import Parallel, Steps


def grouped(**options):
    """`options`, of which the fields of Parallel and Steps become `parallel` and `steps`."""
    for argument, kind in (("parallel", Parallel), ("steps", Steps)):
        names = [field.name for field in dataclasses.fields(kind) if field.name in options]
        options[argument] = kind(**{name: options.pop(name) for name in names})
    return options
