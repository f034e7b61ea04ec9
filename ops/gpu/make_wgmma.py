#!/usr/bin/python3
"""Writes ops/gpu/wgmma_ptx.h: the instruction of each width of multiply(), with its list of 32 to 128 sums.

usage: make_wgmma.py > wgmma_ptx.h
"""
WIDTHS = (64, 128, 192, 256)

HEADER = """\
// Made by ops/gpu/make_wgmma.py: the instructions of multiply() in ops/gpu/hw.h, by the number of sums.
#pragma once

namespace sluice::gpu::ptx {
"""

FUNCTION = """
template <int kTransposeA, int kTransposeB>
SLUICE_DEVICE void multiply(float (&sum)[{sums}], uint64_t a, uint64_t b, int add) {{
  asm volatile(
      "{{\\n"
      ".reg .pred adds;\\n"
      "setp.ne.b32 adds, %{add}, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n{width}k16.f32.bf16.bf16 {{"
{registers}
      "}}, %{a}, %{b}, adds, 1, 1, %{transpose_a}, %{transpose_b};\\n"
      "}}\\n"
      : {operands}
      : "l"(a), "l"(b), "r"(add), "n"(kTransposeA), "n"(kTransposeB));
}}
"""

FOOTER = """
}  // namespace sluice::gpu::ptx
"""


def in_lines(items, per_line):
    """The items with commas between them, as a list of lines."""
    lines = [", ".join(items[i:i + per_line]) for i in range(0, len(items), per_line)]
    return [line + ", " for line in lines[:-1]] + lines[-1:]


def function(width):
    sums = width // 2
    registers = in_lines([f"%{i}" for i in range(sums)], 16)
    operands = in_lines([f'"+f"(sum[{i}])' for i in range(sums)], 6)
    return FUNCTION.format(
        width=width, sums=sums, a=sums, b=sums + 1, add=sums + 2, transpose_a=sums + 3, transpose_b=sums + 4,
        registers="\n".join(f'      "{line}"' for line in registers),
        operands="\n        ".join(line.rstrip() for line in operands))


if __name__ == "__main__":
    print(HEADER + "".join(function(width) for width in WIDTHS) + FOOTER, end="")
