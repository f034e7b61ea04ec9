"""Two micro-batches of a layer whose ranks are on two machines with a slow network, with and without delayed weight gradients."""

import dataclasses
import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist

from bench_torch.layers import Shape, forget, forward, make_inputs

_TWO_MACHINES = pathlib.Path(__file__).parents[2] / "tests" / "torch" / "two_machines.sh"


def run_all(shape: Shape, repetitions: int, rates: list[str]) -> int:
    """Measures at each rate. RuntimeError: a rank failed, or the machine does not permit such a network."""
    print(f"{shape}, tokens per micro-batch and rank; 2 ranks of one thread; ms of two micro-batches, medians", flush=True)
    for rate in rates:
        numbers = map(str, (repetitions, *dataclasses.astuple(shape)))
        command = [_TWO_MACHINES, "--rate", rate, "--own-cores", "yes", __file__, rate, *numbers]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SLUICE_TEST_SECONDS": "600"}
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        _, found, result = ended.stdout.partition("RESULT ")
        if not found:
            raise RuntimeError(f"rate {rate}: {ended.stdout.strip()}")
        print(result.splitlines()[0], flush=True)
    return 0


def measure(rate: str, repetitions: int, shape: Shape):
    """A rank; the first one prints the result."""
    layers = [_make(shape, delays) for delays in (False, True)]
    batches = [make_inputs(shape, torch.bfloat16) for _ in range(2)]
    times = [[_run(layer, batches) for layer in layers] for _ in range(repetitions + 2)][2:]  # two are not counted: they compile, and take memory
    at_once, delayed = (statistics.median(each) for each in zip(*times))
    if dist.get_rank() == 0:
        print(f"RESULT {rate:>9}: {at_once:8.1f} at once, {delayed:8.1f} delayed, ratio {delayed / at_once:.2f}", flush=True)


def _make(shape: Shape, delays: bool):
    import sluice_torch

    sizes = (shape.hidden, shape.intermediate, shape.experts, shape.top_k)
    steps = sluice_torch.Steps(threads=1, delay_wgrad_compute=delays)
    return sluice_torch.MoE(*sizes, parallel=sluice_torch.Parallel(dist.group.WORLD, timeout=60), steps=steps)


def _run(layer, batches: list) -> float:
    """Milliseconds of forward and backward of all batches."""
    for inputs in batches:
        forget(layer, inputs)
    dist.barrier()
    began, waits = time.perf_counter(), []
    for inputs in batches:
        forward(layer, inputs).backward(inputs[3])
        if layer.delay_wgrad_compute:
            waits.append(layer.submit_backward_dw())
    for each in waits:
        each.wait()
    dist.barrier()
    return 1e3 * (time.perf_counter() - began)


if __name__ == "__main__":  # a rank
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    numbers = [int(each) for each in sys.argv[2:]]
    measure(sys.argv[1], numbers[0], Shape(*numbers[1:]))
