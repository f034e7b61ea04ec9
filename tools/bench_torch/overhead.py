"""The time of a call through PyTorch beyond the bare call of the C interface, for a layer with almost no work."""

import statistics

import torch

from bench_torch.c_interface import BareLayer
from bench_torch.layers import Shape
from bench_torch.measure import CLOCKS

_TINY = Shape(tokens=1, hidden=32, intermediate=32, experts=2, top_k=1)
_IN_A_ROW = 20  # calls of one kind that are measured, after as many that are not


def measure_overhead(repetitions: int, threads: int, clock: str) -> dict:
    """Microseconds of a forward step without gradients: {"bare": {...}, "op": {...}, "module": {...}}."""
    import sluice_torch
    from sluice_torch import cache, graphs

    torch.set_num_threads(threads)
    moe = sluice_torch.MoE(_TINY.hidden, _TINY.intermediate, _TINY.experts, _TINY.top_k, steps=sluice_torch.Steps(threads=threads))
    x = torch.randn(1, _TINY.hidden).bfloat16()
    ids = torch.zeros(1, 1, dtype=torch.int32)
    weights = torch.ones(1, 1)
    parameters = [moe.gate_up_weight.detach(), moe.down_weight.detach()]
    names = ["gate_up_weight", "down_weight"]

    shape = graphs.LayerShape(_TINY.hidden, _TINY.intermediate, _TINY.experts, _TINY.top_k)
    path = cache.compile_graph(graphs.forward_graph(shape))
    ranks = torch.classes.sluice.Ranks("", 0, 1, threads, 30.0)
    layer = torch.classes.sluice.Layer(ranks, path, names)
    tensors = {"x": x, "expert_ids": ids, "expert_weights": weights, "y": torch.empty_like(x)}
    bare = BareLayer(path, {**tensors, **dict(zip(names, parameters))}, threads)

    calls = {
        "bare": bare.run,
        "op": lambda: torch.ops.sluice.moe(layer, x, ids, weights, parameters, []),
        "module": lambda: moe(x, ids, weights),
    }
    now = CLOCKS[clock]
    times = {name: [] for name in calls}
    with torch.no_grad():
        for repetition in range(repetitions + 1):
            for name, call in calls.items():
                # several calls in a row, because the bare layer has other workers, which do not fall asleep at once
                for number in range(2 * _IN_A_ROW):
                    began = now()
                    call()
                    ended = now()
                    if repetition > 0 and number >= _IN_A_ROW:
                        times[name].append((ended - began) * 1e6)
    return {name: {"median": statistics.median(each), "best": min(each)} for name, each in times.items()}
