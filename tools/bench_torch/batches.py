"""Two micro-batches of a layer whose ranks are on two machines with a slow network, with and without delayed weight gradients."""

import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist

_TWO_MACHINES = pathlib.Path(__file__).parents[2] / "tests" / "torch" / "two_machines.sh"
_SIZES = ("tokens", "hidden", "intermediate", "experts", "top_k", "repetitions")


def run_all(given) -> int:
    """Measures at each rate. RuntimeError: a rank failed, or the machine does not permit such a network."""
    print(f"{given.tokens} tokens per micro-batch and rank, 2 ranks of one thread; ms of two micro-batches, medians", flush=True)
    for rate in given.rates:
        command = [_TWO_MACHINES, "--rate", rate, "--own-cores", "yes", __file__, rate, *(str(getattr(given, name)) for name in _SIZES)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SLUICE_TEST_SECONDS": "600"}
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        _, found, result = ended.stdout.partition("RESULT ")
        if not found:
            raise RuntimeError(f"rate {rate}: {ended.stdout.strip()}")
        print(result.splitlines()[0], flush=True)
    return 0


def measure(rate: str, tokens: int, hidden: int, intermediate: int, experts: int, top_k: int, repetitions: int):
    import sluice_torch
    from sluice_torch import Parallel, Steps

    def make(delays: bool):
        steps = Steps(threads=1, delay_wgrad_compute=delays)
        return sluice_torch.MoE(hidden, intermediate, experts, top_k, parallel=Parallel(dist.group.WORLD, timeout=60), steps=steps)

    made = torch.Generator().manual_seed(dist.get_rank())

    def draw() -> tuple:
        x, dy = (torch.randn(tokens, hidden, generator=made).bfloat16() for _ in range(2))
        ids = torch.rand(tokens, experts, generator=made).topk(top_k).indices
        return x.requires_grad_(), ids, torch.rand(tokens, top_k, generator=made), dy

    batches = [draw(), draw()]

    def run(layer) -> float:
        layer.zero_grad(set_to_none=True)
        dist.barrier()
        began, waits = time.perf_counter(), []
        for x, ids, weights, dy in batches:
            layer(x, ids, weights).backward(dy)
            if layer.delay_wgrad_compute:
                waits.append(layer.submit_backward_dw())
        for each in waits:
            each.wait()
        dist.barrier()
        return 1e3 * (time.perf_counter() - began)

    layers = [make(False), make(True)]
    times = [[run(layer) for layer in layers] for _ in range(repetitions + 2)][2:]  # two are not counted: they compile, and take memory
    at_once, delayed = (statistics.median(each) for each in zip(*times))
    if dist.get_rank() == 0:
        print(f"RESULT {rate:>9}: {at_once:8.1f} at once, {delayed:8.1f} delayed, ratio {delayed / at_once:.2f}", flush=True)


if __name__ == "__main__":  # a rank
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    measure(sys.argv[1], *map(int, sys.argv[2:]))
