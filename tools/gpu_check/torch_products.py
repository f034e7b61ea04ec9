"""Times PyTorch's own products of bf16 on the GPU, in the same minutes as Sluice's: one of 8192^3, and where PyTorch has it a
grouped one of the rows of n2048. The last line is the summary; the exit status is 3 where there is no PyTorch that finds a GPU."""
import sys


def main():
    try:
        import torch
    except ImportError as error:
        return skip(str(error))
    if not torch.cuda.is_available():
        return skip(f"PyTorch {torch.__version__} finds no GPU")

    def milliseconds(multiply):
        times = []
        for _ in range(6):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            multiply()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return sorted(times[1:])[2]

    def rate(flops, ms):
        return f"{ms:.3f} ms, {flops / ms * 1e-9:.0f} TFLOP/s"

    def random(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

    a, b = random(8192, 8192), random(8192, 8192)
    texts = [f"PyTorch {torch.__version__}: 8192^3 {rate(2 * 8192**3, milliseconds(lambda: a @ b))}"]
    del a, b
    experts, rows, hidden, inter = 64, 32768 * 4, 4096, 2048
    if hasattr(torch, "_grouped_mm"):
        x, w = random(rows, hidden), random(experts, hidden, 2 * inter)
        ends = torch.arange(1, experts + 1, device="cuda", dtype=torch.int32) * (rows // experts)
        try:
            ms = milliseconds(lambda: torch._grouped_mm(x, w, offs=ends))
            texts.append(f"grouped {rows} x {hidden} x {2 * inter} by {experts} experts {rate(4 * rows * hidden * inter, ms)}")
        except RuntimeError as error:
            texts.append(f"grouped: {str(error).splitlines()[0]}")
    print("; ".join(texts))
    return 0


def skip(why):
    print(why)
    return 3


if __name__ == "__main__":
    sys.exit(main())
