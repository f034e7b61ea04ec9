"""Peak memory of a training step; each variant runs in its own process."""

import multiprocessing

import torch

from bench_torch.layers import Shape, dtype_of, forget, forward, make_inputs, make_layer

STEPS = 3


def peak_of(variant: str, shape: Shape, threads: int, limit: float) -> dict | None:
    """MiB: {"before": with weights and inputs, "peak": of forward and backward steps, including gradients}. None: so few
    steps take longer than `limit` seconds."""
    fresh = multiprocessing.get_context("spawn")
    ours, theirs = fresh.Pipe(duplex=False)
    process = fresh.Process(target=_send, args=(theirs, variant, shape, threads))
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(limit) else None
    except EOFError as error:
        process.join()
        raise RuntimeError(f"{variant}: the process that measures its memory ended with status {process.exitcode}") from error
    finally:
        process.kill()
        process.join()


def _send(pipe, variant: str, shape: Shape, threads: int):
    pipe.send(_measure(variant, shape, threads))


def _measure(variant: str, shape: Shape, threads: int) -> dict:
    torch.set_num_threads(threads)
    layer, inputs = make_layer(variant, shape, threads), make_inputs(shape, dtype_of(variant))
    before = field("VmRSS")
    forget_peak()  # making the weights raised it
    for _ in range(STEPS):
        forget(layer, inputs)
        forward(layer, inputs).backward(inputs[3])
    return {"before": before, "peak": field("VmHWM")}


def forget_peak():
    """VmHWM becomes what VmRSS is."""
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")


def field(name: str, path: str = "/proc/self/status") -> float:
    """The value of a line of such a file, in MiB."""
    with open(path) as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name + ":")) / 1024
