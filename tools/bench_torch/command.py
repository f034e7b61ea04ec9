"""The commands of tools/bench-torch."""

import argparse
import json
import os
import sys

from bench_torch.build import build_needed
from bench_torch.layers import VARIANTS, Shape

SHAPES = [Shape(512, 2048, 768, 16, 8), Shape(64, 2048, 768, 16, 8)]


def main(arguments: list[str], usage: str) -> int:
    if arguments[:1] in (["-h"], ["--help"]):
        print(usage.strip())
        return 0
    commands = {
        "layer": run_layer, "train": run_train, "linear": run_linear, "encodings": run_encodings, "load": run_load, "batches": run_batches
    }  # fmt: skip
    name = arguments[0] if arguments and not arguments[0].startswith("-") else "layer"
    rest = arguments[1:] if arguments and arguments[0] == name else arguments
    if name not in commands:
        print(f"bench-torch: error: found command '{name}', expected {', '.join(commands)}", file=sys.stderr)
        return 2
    try:
        return commands[name](rest)
    except (RuntimeError, ValueError, OSError) as error:
        print(f"bench-torch: error: {error}", file=sys.stderr)
        return 1


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"found {text}, expected a whole number from 1 on")
    return int(text)


def _parser(name: str, about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"bench-torch {name}", description=about)
    parser.add_argument("--threads", type=_positive, default=len(os.sched_getaffinity(0)), help="threads of each variant")
    return parser


def _shape_of(given) -> Shape:
    if given.top_k > given.experts:
        raise ValueError(f"--top-k is {given.top_k}, expected at most the {given.experts} experts")
    return Shape(given.tokens, given.hidden, given.intermediate, given.experts, given.top_k)


def run_layer(arguments: list[str]) -> int:
    parser = _parser("layer", "Times and peak memory of one layer, against the same layer in eager PyTorch.")
    parser.add_argument("--tokens", type=_positive, help="measure one layer with this number of tokens")
    for name, default in (("hidden", 2048), ("intermediate", 768), ("experts", 16), ("top-k", 8)):
        parser.add_argument("--" + name, type=_positive, default=default)
    parser.add_argument("--repetitions", type=_positive, default=9, help="repetitions, whose medians are printed (default 9)")
    parser.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall", help="cpu: processor time of all threads of the process"
    )
    parser.add_argument(
        "--limit", type=_positive, default=60, help="seconds for each variant's memory and for its times: one of which three steps "
        "take longer is left out, and one whose repetitions take longer has fewer (default 60)"
    )
    parser.add_argument("--skip", action="append", default=[], choices=("memory", "overhead", "eager fp32"))
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    given = parser.parse_args(arguments)
    one = _shape_of(given)
    shapes = [one] if given.tokens else SHAPES
    variants = [variant for variant in VARIANTS if variant not in given.skip]
    build_needed()
    results = measure_layers(given, shapes, variants)
    if given.json:
        print(json.dumps(results, indent=1))
    else:
        from bench_torch.report import print_layers

        print_layers(results)
    return 0


def measure_layers(given, shapes: list[Shape], variants: list[str]) -> dict:
    """All results that `bench-torch layer` prints."""
    from bench_torch.measure import blas_is_reference, check_agreement, measure_times
    from bench_torch.memory import peak_of

    results = {"threads": given.threads, "clock": given.clock, "repetitions": given.repetitions, "limit": given.limit}
    results["layers"] = []
    for shape in shapes:
        layer = {"shape": vars(shape) | {"text": str(shape)}}
        memory = {}
        for variant in variants:  # first, while this process is still small; it also tells which variant is too slow here
            if "memory" not in given.skip or variant != "sluice":
                _tell(f"{shape}: memory of {variant}")
                memory[variant] = peak_of(variant, shape, given.threads, given.limit)
        layer["left_out"] = [variant for variant, found in memory.items() if found is None]
        measured = [variant for variant in variants if variant not in layer["left_out"]]
        if "sluice" not in measured:
            raise RuntimeError(f"{shape}: steps of sluice take longer than {given.limit} s, see --limit")
        if "memory" not in given.skip:
            layer["memory"] = {variant: memory[variant] for variant in measured}
        if "eager fp32" not in layer["left_out"]:
            _tell(f"{shape}: whether results agree")
            layer["differences"] = check_agreement(shape, measured, given.threads)
        _tell(f"{shape}: times of {', '.join(measured)}")
        layer["times"] = measure_times(shape, measured, given.repetitions, given.threads, given.clock, given.limit)
        results["layers"].append(layer)
    if "overhead" not in given.skip:
        _tell("overhead of a call")
        from bench_torch.overhead import measure_overhead

        results["overhead"] = measure_overhead(200 * given.repetitions, given.threads, given.clock)
    results["reference_blas"] = blas_is_reference()
    if results["reference_blas"]:
        print(
            "bench-torch: warning: float32 products of this PyTorch go to the reference BLAS (netlib), many times "
            "slower than others: install libopenblas0-pthread before comparing with eager fp32",
            file=sys.stderr,
        )
    return results


def _tell(what: str):
    print(f"bench-torch: {what}", file=sys.stderr, flush=True)


def run_linear(arguments: list[str]) -> int:
    about = "Parallel linear layers against torch.matmul in bfloat16 and gloo."
    parser = argparse.ArgumentParser(prog="bench-torch linear", description=about)
    for option, default, meaning in (
        ("rows", 4096, "rows of all ranks"),
        ("ins", 4096, "columns of x"),
        ("outs", 8192, "columns of y"),
        ("ranks", 2, "processes"),
        ("threads", 1, "threads of each process"),
        ("repetitions", 5, "repetitions, whose medians are printed"),
    ):
        parser.add_argument("--" + option, type=_positive, default=default, help=f"{meaning} (default {default})")
    given = parser.parse_args(arguments)
    for name in ("rows", "ins", "outs"):
        if getattr(given, name) % given.ranks:
            raise ValueError(f"--{name} is {getattr(given, name)}, expected a multiple of the {given.ranks} ranks")
    build_needed()
    from bench_torch.linear import run_all

    return run_all(given)


def run_batches(arguments: list[str]) -> int:
    about = "Two micro-batches at two ranks with a slow network between them, with and without delayed weight gradients. Needs root."
    parser = argparse.ArgumentParser(prog="bench-torch batches", description=about)
    parser.add_argument("rates", nargs="*", default=["1gbit", "700mbit", "350mbit"], help="of the network, in tc's format")
    for option, default in (("tokens", 256), ("hidden", 2048), ("intermediate", 768), ("experts", 16), ("top-k", 8), ("repetitions", 9)):
        parser.add_argument("--" + option, type=_positive, default=default, help=f"(default {default})")
    given = parser.parse_args(arguments)
    shape = _shape_of(given)
    build_needed()
    from bench_torch.batches import run_all

    return run_all(shape, given.repetitions, given.rates)


def run_train(arguments: list[str]) -> int:
    parser = _parser("train", "Trains a Qwen3-MoE of 4 layers on the bytes of a text, with eager experts and Sluice.")
    parser.add_argument("--steps", type=_positive, default=200)
    parser.add_argument("--out", default="loss.png", help="the picture (default loss.png)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="type of the parameters")
    parser.add_argument("--json", action="store_true", help="print the losses as JSON")
    given = parser.parse_args(arguments)
    if not os.access(os.path.dirname(os.path.abspath(given.out)), os.W_OK):
        raise ValueError(f"--out is {given.out}, whose folder cannot be written")
    build_needed()
    import torch

    from bench_torch.report import print_losses
    from bench_torch.training import BOTH, draw, train_all

    torch.set_num_threads(given.threads)
    losses = train_all(BOTH, given.steps, getattr(torch, given.dtype), given.threads)
    draw(losses, given.out)
    if given.json:
        print(json.dumps(losses))
        return 0
    print_losses(losses)
    print(f"drawn to {given.out}")
    return 0


def run_encodings(arguments: list[str]) -> int:
    about = "Trains the model of `bench-torch train` in each encoding of products, from the same start."
    parser = _parser("encodings", about)
    parser.add_argument("--steps", type=_positive, default=200)
    parser.add_argument("--json", action="store_true", help="print the losses as JSON")
    given = parser.parse_args(arguments)
    build_needed()
    import torch

    from bench_torch.report import print_differences, print_losses
    from bench_torch.training import ENCODED, train_all

    torch.set_num_threads(given.threads)
    losses = train_all(ENCODED, given.steps, threads=given.threads)
    if given.json:
        print(json.dumps(losses))
        return 0
    print_losses(losses)
    print_differences(losses)
    return 0


def run_load(arguments: list[str]) -> int:
    about = "Loads a layer of 4-bit experts from a file, by default of DeepSeek-V3's size, against reading the file."
    parser = _parser("load", about)
    for option, default in (("experts", 256), ("hidden", 7168), ("intermediate", 2048)):
        parser.add_argument("--" + option, type=_positive, default=default, help=f"(default {default})")
    parser.add_argument("--group", type=int, choices=(32, 64, 128), default=32, help="numbers that share a scale (default 32)")
    parser.add_argument("--folder", help="folder of the file, which is removed again (default: the folder of temporary files)")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    given = parser.parse_args(arguments)
    for name in ("hidden", "intermediate"):
        if getattr(given, name) % given.group:
            raise ValueError(f"--{name} is {getattr(given, name)}, expected a multiple of the group, {given.group}")
    build_needed()
    from bench_torch.load import Experts, measure, print_load

    found = measure(Experts(given.experts, given.hidden, given.intermediate, given.group), given.folder, given.threads)
    print(json.dumps(found, indent=1)) if given.json else print_load(found)
    return 0
