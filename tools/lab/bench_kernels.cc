// The speed of every kernel of every instruction set that this machine runs, on one thread, compared with its
// bounds, which are measured in the same run: the register peak of the multiplying unit, and the bandwidth of
// reading and of writing past the caches. Times are of the thread's CPU clock, best and median of
// repetitions. Products run over enough experts that their weights or gradients are larger than the caches.
//
// Usage: bench_kernels [ROWS [H [I [COLUMNS]]]]   (defaults 256 2048 768 256; COLUMNS of one gmm task)
// SLUICE_ISA restricts it to one instruction set.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <vector>

#include "ops/bench/peak.h"
#include "ops/bench/probes.h"
#include "runtime/abi/kernels.h"
#include "runtime/base/clock.h"
#include "runtime/base/tiling.h"
#include "tools/lab/one_thread.h"

namespace sluice::ops {
namespace {

struct Sizes {
  int32_t rows = 256, hidden = 2048, inter = 768, columns = 256;
};

struct Time {
  double best, median;
};

// Over repetitions that together take about 0.3 s, at least five, after one warm-up.
Time measureTime(const std::function<void()>& work) {
  work();
  std::vector<double> times;
  for (double total = 0; times.size() < 5 || total < 0.3; total += times.back())
    times.push_back(threadSeconds(work));
  return {*std::min_element(times.begin(), times.end()), computeMedian(times)};
}

std::vector<BFloat16> randomMatrix(int64_t rows, int64_t cols) {
  std::vector<BFloat16> values(static_cast<size_t>(rows * cols));
  fillRandomly(values);
  return values;
}

// These are the rates of one thread, in bytes per second.
struct Memory {
  double read, write;
};

Memory probeMemory() {
  constexpr int kBytes = 128 << 20;
  std::vector<CacheLine> memory = probedMemory(kBytes);
  volatile uint64_t words;  // uses what was read
  return {kBytes / measureTime([&] { words = readMemory(memory); }).median,
          kBytes / measureTime([&] { streamMemory(memory, 0x3f8ccccd3f8ccccd); }).median};
}

// The number of experts whose matrices of `bytes` bytes are together larger than any cache.
int64_t expertsFor(int64_t bytes) { return std::clamp<int64_t>((int64_t{96} << 20) / bytes, 1, 64); }

class Bench {
 public:
  Bench(const KernelSet& kernels, const Sizes& sizes, double peak, double codesPeak, const Memory& memory)
      : kernels_(kernels), s_(sizes), peak_(peak), codesPeak_(codesPeak), memory_(memory) {
    const int32_t widest = std::max(s_.hidden, 2 * s_.inter);
    size_t bytes = kernels.weightGradScratchBytes(widest, widest);
    for (const GmmKernels& gmm : kernels.gmms) bytes = std::max(bytes, gmm.scratchBytes(widest, widest));
    scratch_.resize(bytes / sizeof(CacheLine) + 1);
  }

  void run() {
    gmm("gmm up", s_.hidden, 2 * s_.inter, false);
    upAndActivation();
    gmm("gmm down", s_.inter, s_.hidden, false);
    gmm("gmm act_grad (transposed)", s_.hidden, s_.inter, true);
    gmm("gmm gate_grad (transposed)", 2 * s_.inter, s_.hidden, true);
    for (const bool packed : {false, true}) {
      packedGmm("gmm up, bf16", kBf16Product, packed);
      if (!packed) packedGmm("gmm up, bf16 by codes", kDecodedProduct, packed);
      packedGmm("gmm up, codes", kCodesProduct, packed);
    }
    quantize();
    weightGrad();
    elementWise();
  }

 private:
  // `bytes`: those that must come from or go to memory; `bandwidth`: the bound for them, or 0 if not shown.
  void print(std::string_view op, double operations, double bytes, double bandwidth, const Time& time,
             double peak = 0) {
    if (peak == 0) peak = peak_;
    fmt::print("{:<9} {:<28} {:>9.1f} us, median {:>9.1f}", isaName(kernels_.isa), op, time.best * 1e6,
               time.median * 1e6);
    if (operations > 0) fmt::print("  {:>7.3f} TFLOP/s", operations / time.median / 1e12);
    if (operations > 0) fmt::print(" {:>3.0f}% of peak", 100 * operations / time.median / peak);
    if (bytes > 0) fmt::print("  {:>6.1f} GB/s", bytes / time.median / 1e9);
    if (bytes > 0 && bandwidth > 0) fmt::print(" {:>3.0f}% of memory", 100 * bytes / time.median / bandwidth);
    fmt::print("\n");
  }

  // A whole product, task by task. Each task packs its weights again, as in a program.
  void gmm(std::string_view name, int32_t k, int32_t n, bool transposed) {
    const int64_t experts = expertsFor(int64_t{2} * n * k), weight = int64_t{n} * k;
    const std::vector<BFloat16> a = randomMatrix(s_.rows, k), b = randomMatrix(experts * n, k);
    std::vector<BFloat16> c(static_cast<size_t>(s_.rows) * n);
    const Operand rows(a.data(), k);
    const Result product(c.data(), n);
    const Time time = measureTime([&] {
      for (int64_t expert = 0; expert < experts; ++expert)
        for (int32_t t = 0; t < tileCount(n, s_.columns); ++t) {
          const TileRange columns = tileRange(n, s_.columns, t);
          const int64_t at = expert * weight + (transposed ? int64_t{columns.begin} * k : columns.begin);
          const Operand part(b.data() + at, transposed ? k : n);
          kernels_.gmm({rows, part, product.from(0, columns.begin), s_.rows, columns.length(), k, transposed,
                        scratch_.data()});
        }
    });
    print(name, 2.0 * experts * s_.rows * weight, 2.0 * experts * weight, memory_.read, time);
  }

  // The first product with transposed weights of either type, which are packed beforehand or in each task.
  void packedGmm(std::string_view name, const ProductTypes& types, bool packed) {
    const int32_t k = s_.hidden, n = 2 * s_.inter;
    const int64_t bytes = dtypeBytes(types.b) * n * k, experts = expertsFor(bytes);
    // the bits of bf16 numbers serve as codes, too
    const std::vector<BFloat16> a = randomMatrix(s_.rows, k), b = randomMatrix(experts * n, k);
    const std::vector<float> scale(static_cast<size_t>(std::max(n, s_.rows)), 0.01F);
    std::vector<BFloat16> c(static_cast<size_t>(s_.rows) * n);
    const int32_t tiles = tileCount(n, s_.columns);
    const size_t ofTile = kernels_.packedWeightBytes(s_.columns, k, types);
    std::vector<CacheLine> panels(packed ? ofTile * experts * tiles / sizeof(CacheLine) + 1 : 0);
    const auto locatePanel = [&](int64_t expert, int32_t tile) {
      return reinterpret_cast<std::byte*>(panels.data()) + (expert * tiles + tile) * ofTile;
    };
    const auto forTiles = [&](const auto& body) {
      for (int64_t expert = 0; expert < experts; ++expert)
        for (int32_t t = 0; t < tiles; ++t) {
          const TileRange columns = tileRange(n, s_.columns, t);
          body(Operand(b.data(), k, types.b).from(expert * n + columns.begin, 0), columns,
               locatePanel(expert, t));
        }
    };
    if (packed)
      forTiles([&](const Operand& part, TileRange columns, std::byte* panel) {
        kernels_.packWeight({part, columns.length(), k, true, panel, types.a});
      });
    const Time time = measureTime([&] {
      forTiles([&](const Operand& part, TileRange columns, std::byte* panel) {
        kernels_.gmm({.a = {a.data(), k, types.a},
                      .b = part,
                      .c = Result(c.data(), n).from(0, columns.begin),
                      .rows = s_.rows,
                      .n = columns.length(),
                      .k = k,
                      .transposeB = true,
                      .scratch = scratch_.data(),
                      .packedB = packed ? panel : nullptr,
                      .rowScale = scale.data(),
                      .scaleB = {scale.data(), 1, 1, k, columns.begin, 0}});
      });
    });
    print(fmt::format("{}{}", name, packed ? ", packed" : ""), 2.0 * experts * s_.rows * n * k,
          static_cast<double>(experts * bytes), memory_.read, time,
          types == kCodesProduct ? codesPeak_ : peak_);
  }

  void quantize() {
    const int32_t n = s_.hidden;
    const std::vector<BFloat16> a = randomMatrix(s_.rows, n);
    std::vector<int8_t> codes(a.size());
    std::vector<float> scale(static_cast<size_t>(s_.rows));
    const std::vector<float> columnScale(static_cast<size_t>(n), 0.01F);
    for (const float* columns : {static_cast<const float*>(nullptr), columnScale.data()}) {
      const Time time = measureTime(
          [&] { kernels_.quantize({a.data(), n, codes.data(), n, scale.data(), s_.rows, n, columns}); });
      print(columns == nullptr ? "quantize" : "quantize, columns scaled", 0, 3.0 * s_.rows * n, 0, time);
    }
  }

  // gmm and activation as two families, and as one that keeps at most 256 rows of its product in scratch.
  void upAndActivation() {
    const int32_t k = s_.hidden, n = s_.inter, rowsAtOnce = equalTile(s_.rows, 256, 16);
    const std::vector<BFloat16> a = randomMatrix(s_.rows, k), b = randomMatrix(k, 2 * n);
    std::vector<BFloat16> gateUp(static_cast<size_t>(s_.rows) * 2 * n), act(static_cast<size_t>(s_.rows) * n);
    std::vector<BFloat16> kept(static_cast<size_t>(rowsAtOnce) * 2 * s_.columns);
    const Operand all(a.data(), k), weight(b.data(), 2 * n);
    const auto product = [&](int32_t row, int32_t rows, TileRange columns, const Result& c) {
      kernels_.gmm({all.from(row, 0), weight.from(0, columns.begin), c, rows, columns.length(), k, false,
                    scratch_.data()});
    };
    const double operations = 4.0 * s_.rows * n * k;
    Time time = measureTime([&] {
      for (int32_t t = 0; t < tileCount(2 * n, s_.columns); ++t) {
        const TileRange columns = tileRange(2 * n, s_.columns, t);
        product(0, s_.rows, columns, {gateUp.data() + columns.begin, 2 * n});
      }
      kernels_.activation({gateUp.data(), 2 * n, act.data(), n, s_.rows, n});
    });
    print("gmm up, then swiglu", operations, 0, 0, time);
    time = measureTime([&] {
      for (int32_t t = 0; t < tileCount(n, s_.columns); ++t)
        for (int32_t row = 0; row < s_.rows; row += rowsAtOnce) {
          const TileRange gate = tileRange(n, s_.columns, t);
          const int32_t rows = std::min(rowsAtOnce, s_.rows - row), width = gate.length();
          product(row, rows, gate, {kept.data(), 2 * width});
          product(row, rows, {n + gate.begin, n + gate.end}, {kept.data() + width, 2 * width});
          kernels_.activation(
              {kept.data(), 2 * width, act.data() + int64_t{row} * n + gate.begin, n, rows, width});
        }
    });
    print("gmm up with swiglu in it", operations, 0, 0, time);
  }

  void weightGrad() {
    const int32_t m = s_.hidden, n = 2 * s_.inter;
    const int64_t experts = expertsFor(int64_t{4} * m * n), gradient = int64_t{m} * n;
    const std::vector<BFloat16> a = randomMatrix(s_.rows, m), b = randomMatrix(s_.rows, n);
    const std::vector<float> scale(s_.rows, 0.7f);
    std::vector<CacheLine> memory(static_cast<size_t>(experts * gradient) / 16 + 1);
    auto* const c = reinterpret_cast<float*>(memory.data());
    const Operand rows(a.data(), m), others(b.data(), n);
    for (const bool accumulate : {false, true}) {
      const Time time = measureTime([&] {
        for (int64_t expert = 0; expert < experts; ++expert)
          for (int32_t i = 0; i < m; i += s_.columns)
            for (int32_t j = 0; j < n; j += s_.columns)
              kernels_.gmmWeightGrad({rows.from(0, i), others.from(0, j), scale.data(),
                                      Result(c + expert * gradient, n).from(i, j), s_.rows,
                                      std::min(s_.columns, m - i), std::min(s_.columns, n - j),
                                      scratch_.data(), accumulate});
      });
      print(accumulate ? "gmm_weight_grad, added" : "gmm_weight_grad gate_up",
            2.0 * experts * s_.rows * gradient, 4.0 * experts * gradient, accumulate ? 0 : memory_.write,
            time);
    }
  }

  void elementWise() {
    const int32_t n = s_.inter, h = s_.hidden, k = 8, tokens = std::max(1, s_.rows / k);
    const std::vector<BFloat16> gateUp = randomMatrix(s_.rows, 2 * n), rows = randomMatrix(s_.rows, h);
    std::vector<BFloat16> act(static_cast<size_t>(s_.rows) * n), grad(static_cast<size_t>(s_.rows) * 2 * n);
    std::vector<BFloat16> y(static_cast<size_t>(s_.rows) * h);
    std::vector<float> rowGrad(s_.rows), weight(s_.rows, 0.3f);
    std::vector<int32_t> index(s_.rows);
    for (int32_t i = 0; i < s_.rows; ++i) index[i] = static_cast<int32_t>(int64_t{i} * 7 % s_.rows);
    const double elements = 1.0 * s_.rows * n;
    Time time = measureTime([&] { kernels_.activation({gateUp.data(), 2 * n, act.data(), n, s_.rows, n}); });
    print("swiglu", 0, elements * 6, 0, time);
    time = measureTime([&] {
      kernels_.activationGrad({act.data(), n, gateUp.data(), 2 * n, weight.data(), grad.data(), 2 * n,
                               rowGrad.data(), s_.rows, n});
    });
    print("swiglu_grad", 0, elements * 10, 0, time);
    time = measureTime([&] {
      kernels_.gatherRows({reinterpret_cast<const std::byte*>(rows.data()), h * 2, index.data(), 1,
                           reinterpret_cast<std::byte*>(y.data()), h * 2, h * 2, s_.rows});
    });
    print("gather rows", 0, 4.0 * s_.rows * h, 0, time);
    if (s_.rows < k) return;
    time = measureTime([&] {
      kernels_.weightedSum({rows.data(), h, index.data(), weight.data(), y.data(), h, tokens, k, h});
    });
    print("weighted sum of 8 rows", 0, 2.0 * tokens * h * (k + 1), 0, time);
  }

  const KernelSet& kernels_;
  Sizes s_;
  double peak_;
  double codesPeak_;
  Memory memory_;
  std::vector<CacheLine> scratch_;
};

// The value of `text`, or 0.
int32_t parseSize(std::string_view text) {
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value <= 1 << 16 ? value : 0;
}

int runBench(int argc, char** argv) {
  Sizes sizes;
  int32_t* const fields[] = {&sizes.rows, &sizes.hidden, &sizes.inter, &sizes.columns};
  for (int i = 1; i < argc; ++i) {
    if (i > 4 || parseSize(argv[i]) < 1) {
      fmt::print(stderr, "usage: bench_kernels [ROWS [H [I [COLUMNS]]]], sizes from 1 to 65536\n");
      return 2;
    }
    *fields[i - 1] = parseSize(argv[i]);
  }
  fmt::print("one thread, rows {}, H {}, I {}, {} columns per task\n", sizes.rows, sizes.hidden, sizes.inter,
             sizes.columns);
  const Memory memory = probeMemory();
  fmt::print("memory    read {:.1f} GB/s, written past the caches {:.1f} GB/s\n", memory.read / 1e9,
             memory.write / 1e9);
  std::vector<Isa> isas = supportedIsas();
  if (const char* const name = std::getenv("SLUICE_ISA"); name != nullptr && *name != '\0') {
    const Expected<const KernelSet*> chosen = selectKernels();
    if (!chosen) {
      fmt::print(stderr, "bench_kernels: error: {}\n", chosen.error().message);
      return 1;
    }
    isas = {(*chosen)->isa};
  }
  for (Isa isa : isas) {
    const double peak = findPeak(isa, runPeak), codesPeak = findPeak(isa, runCodesPeak);
    fmt::print("{:<9} register peak {:.3f} TFLOP/s, of codes {:.3f}\n", isaName(isa), peak / 1e12,
               codesPeak / 1e12);
    Bench(**kernelsFor(isa), sizes, peak, codesPeak, memory).run();
  }
  return 0;
}

}  // namespace
}  // namespace sluice::ops

int main(int argc, char** argv) { return sluice::ops::runBench(argc, argv); }
