"""Peak memory of a training step; each variant runs in its own process."""

import json
import subprocess
import sys

import torch

from bench_torch.layers import Shape, dtype_of, forget, forward, make_inputs, make_layer

STEPS = 3


def peak_of(variant: str, shape: Shape, threads: int, script: str) -> dict:
    """MiB: {"before": with weights and inputs, "peak": of forward and backward steps, including gradients}."""
    command = [sys.executable, script, "memory-child", "--variant", variant, "--threads", str(threads)]
    for name in ("tokens", "hidden", "intermediate", "experts", "top_k"):
        command += ["--" + name.replace("_", "-"), str(getattr(shape, name))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"measuring the memory of {variant} ended with status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def child(variant: str, shape: Shape, threads: int):
    """Prints the figures that peak_of() reads."""
    torch.set_num_threads(threads)
    layer, inputs = make_layer(variant, shape, threads), make_inputs(shape, dtype_of(variant))
    before = _field("VmRSS")
    with open("/proc/self/clear_refs", "w") as clear:  # resets the peak, which making the weights raised
        clear.write("5")
    for _ in range(STEPS):
        forget(layer, inputs)
        forward(layer, inputs).backward(inputs[3])
    print(json.dumps({"before": before, "peak": _field("VmHWM")}))


def _field(name: str) -> float:
    """The value of a line of /proc/self/status, in MiB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name + ":")) / 1024
