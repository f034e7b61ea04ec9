"""Tables for people."""

from bench_torch.training import smoothed


def print_layers(results: dict):
    clock = "wall time" if results["clock"] == "wall" else "processor time of all threads"
    print(f"{results['threads']} threads, {clock}, medians of up to {results['repetitions']} repetitions in turn")
    for layer in results["layers"]:
        print(f"\n{layer['shape']['text']}")
        _print_times(layer["times"])
        if "memory" in layer:
            _print_memory(layer["memory"])
        for variant in layer["left_out"]:
            print(f"  {variant}: left out, because three steps take longer than {results['limit']} s (--limit)")
        if "differences" in layer:
            differences = ", ".join(f"{name} {value:.4f}" for name, value in layer["differences"].items())
            print(f"  largest difference of y and dx from eager fp32: {differences}")
    if "overhead" in results:
        _print_overhead(results["overhead"])


def _print_times(times: dict):
    print(f"  {'ms':<12}{'forward':>10}{'backward':>10}{'both':>10}{'of both, against sluice':>26}")
    base = times["sluice"]["both"]["median"]
    for variant, passes in times.items():
        medians = "".join(f"{passes[name]['median']:>10.2f}" for name in ("forward", "backward", "both"))
        print(f"  {variant:<12}{medians}{passes['both']['median'] / base:>25.2f}x")
    if eager := [variant for variant in times if variant != "sluice"]:
        faster = min(eager, key=lambda variant: times[variant]["both"]["median"])
        ratios = (f"{name} {times[faster][name]['median'] / times['sluice'][name]['median']:.2f}x" for name in ("forward", "both"))
        print(f"  the faster eager, {faster}, against sluice: {', '.join(ratios)}")


def _print_memory(memory: dict):
    print(f"  {'MiB':<12}{'layer':>10}{'peak':>10}{'step':>10}{'of step, against sluice':>26}")
    base = memory["sluice"]["peak"] - memory["sluice"]["before"]
    for variant, each in memory.items():
        step = each["peak"] - each["before"]
        print(f"  {variant:<12}{each['before']:>10.1f}{each['peak']:>10.1f}{step:>10.1f}{step / base:>25.2f}x")


def _print_overhead(overhead: dict):
    bare = overhead["bare"]["median"]
    print(f"\na layer of one token: the bare call of the C interface takes {bare:.1f} us (best "
          f"{overhead['bare']['best']:.1f})")
    for name, what in (("op", "torch.ops.sluice.moe"), ("module", "sluice_torch.MoE")):
        each = overhead[name]
        print(f"  {what}: {each['median']:.1f} us (best {each['best']:.1f}), {each['median'] - bare:.1f} us more")


def print_losses(losses: dict[str, list[float]]):
    """The mean of 10 steps at some of them, by variant."""
    widths = {name: max(8, len(name)) for name in losses}
    print(f"{'step':>6} {' '.join(f'{name:>{width}}' for name, width in widths.items())}   loss, mean of 10 steps")
    means = {name: smoothed(values, 10) for name, values in losses.items()}
    steps = len(next(iter(losses.values())))
    for step in sorted({0, *range(9, steps, max(1, steps // 10)), steps - 1}):
        print(f"{step + 1:>6} {' '.join(f'{means[name][step]:>{width}.4f}' for name, width in widths.items())}")


def print_differences(losses: dict[str, list[float]]):
    """How far the losses of the other variants are from the first variant's."""
    (first, base), *others = losses.items()
    print(f"against {first}: loss of the last 10 steps, and the mean magnitude of the difference of a step")
    for name, values in others:
        last = smoothed(values, 10)[-1] - smoothed(base, 10)[-1]
        mean = sum(abs(a - b) for a, b in zip(values, base)) / len(base)
        print(f"  {name:<20} {last:>+8.4f} {mean:>8.4f}")
