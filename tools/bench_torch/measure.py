"""Times of layers, measured in turn within one process."""

import gc
import statistics
import time

import torch

from bench_torch.layers import Shape, dtype_of, forget, forward, make_inputs, make_layer

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}  # cpu: of all threads of the process


def measure_times(shape: Shape, variants: list[str], repetitions: int, threads: int, clock: str, limit: float) -> dict:
    """Milliseconds by variant and pass: {"forward": {"median", "best"}, "backward": ..., "both": ...}. A variant has no further
    repetition after `limit` seconds, but one."""
    torch.set_num_threads(threads)
    now = CLOCKS[clock]
    layers = {variant: make_layer(variant, shape, threads) for variant in variants}
    inputs = {variant: make_inputs(shape, dtype_of(variant)) for variant in variants}
    times = {variant: {"forward": [], "backward": [], "both": []} for variant in variants}
    took = dict.fromkeys(variants, 0.0)
    gc.disable()
    for repetition in range(repetitions + 2):  # two are not counted: they compile programs and allocate memory
        for variant, layer in layers.items():
            if times[variant]["both"] and took[variant] > limit:
                continue
            forget(layer, inputs[variant])
            began = now()
            y = forward(layer, inputs[variant])
            between = now()
            y.backward(inputs[variant][3])
            ended = now()
            took[variant] += ended - began
            if repetition >= 2 or took[variant] > limit:
                for name, seconds in zip(times[variant], (between - began, ended - between, ended - began)):
                    times[variant][name].append(seconds * 1e3)
    gc.enable()
    return {
        variant: {name: {"median": statistics.median(each), "best": min(each)} for name, each in passes.items()}
        for variant, passes in times.items()
    }


def check_agreement(shape: Shape, variants: list[str], threads: int) -> dict:
    """The largest difference of y and dx from eager fp32's, relative to its largest number, to show that results
    agree."""
    torch.set_num_threads(threads)
    found = {}
    for variant in ["eager fp32", *[each for each in variants if each != "eager fp32"]]:
        layer, inputs = make_layer(variant, shape, threads), make_inputs(shape, dtype_of(variant))
        y = forward(layer, inputs)
        y.backward(inputs[3])
        found[variant] = (y.detach().float(), inputs[0].grad.float())
    expected = found.pop("eager fp32")
    return {
        variant: max(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(result, expected))
        for variant, result in found.items()
    }


def blas_is_reference() -> bool:
    """Whether float32 products use the reference BLAS (netlib), which makes an unfair eager baseline."""
    with open("/proc/self/maps") as maps:
        names = {line.split("/", 1)[1].strip() for line in maps if "/" in line and "blas" in line}
    # Debian's other libraries are selected by the folder of libblas.so.3; the reference one may be loaded for their
    # LAPACK
    chosen = {name for name in names if "/libblas.so" in "/" + name} or names
    fast = ("openblas", "mkl", "blis", "atlas")
    known = any(word in name for name in chosen for word in fast)
    return not known and "BLAS_INFO=mkl" not in torch.__config__.show()
