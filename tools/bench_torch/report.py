"""Tables for people."""


def print_layers(results: dict):
    clock = "wall time" if results["clock"] == "wall" else "processor time of all threads"
    print(f"{results['threads']} threads, {clock}, medians of {results['repetitions']} repetitions in turn")
    for layer in results["layers"]:
        print(f"\n{layer['shape']['text']}")
        _print_times(layer["times"])
        if "memory" in layer:
            _print_memory(layer["memory"])
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
