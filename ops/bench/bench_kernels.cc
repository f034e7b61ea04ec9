// Speed of every kernel of every instruction set this machine runs, on one thread, beside the register peak
// of the multiplying unit measured in the same run.
//
// Usage: bench_kernels [ROWS [H [I [COLUMNS]]]]   (defaults 256 2048 768 256; COLUMNS of one gmm task)
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "ops/abi/kernels.h"
#include "ops/bench/peak.h"
#include "ops/tiling.h"

namespace sluice::ops {
namespace {

struct Sizes {
  int32_t rows = 256, hidden = 2048, inter = 768, columns = 256;
};

double seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The best of repetitions that together take about 0.3 s: the host is shared, and noise only slows down.
double bestSeconds(const std::function<void()>& work) {
  double best = seconds(work), total = best;
  for (int i = 0; i < 3 || total < 0.3; ++i) {
    const double once = seconds(work);
    best = std::min(best, once);
    total += once;
  }
  return best;
}

double peakFlops(double (*run)(int64_t)) {
  double best = 0;
  for (int i = 0; i < 10; ++i) {
    double operations = 0;
    const double time = seconds([&] { operations = run(1 << 18); });
    best = std::max(best, operations / time);
  }
  return best;
}

double peakOf(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return 0;
    case Isa::kAvx2:
      return peakFlops(runAvx2FmaPeak);
    case Isa::kAvx512Bf16:
      return peakFlops(runAvx512DotPeak);
    case Isa::kAmx:
      return peakFlops(runAmxDotPeak);
  }
  return 0;
}

std::vector<BFloat16> randomMatrix(int64_t rows, int64_t cols) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<BFloat16> values(static_cast<size_t>(rows * cols));
  for (BFloat16& value : values) value = toBFloat16(uniform(random));
  return values;
}

struct FreeAligned {
  void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t{64}); }
};

class Bench {
 public:
  Bench(const KernelSet& kernels, const Sizes& sizes, double peak)
      : kernels_(kernels), s_(sizes), peak_(peak) {
    const int32_t widest = std::max(s_.hidden, 2 * s_.inter);
    const size_t bytes =
        std::max(kernels.gmmScratchBytes(widest, widest), kernels.weightGradScratchBytes(widest, widest));
    scratch_.reset(static_cast<std::byte*>(::operator new(bytes, std::align_val_t{64})));
    std::memset(scratch_.get(), 0, bytes);
  }

  void run() {
    gmm("gmm up", s_.hidden, 2 * s_.inter, false);
    upAndActivation();
    gmm("gmm down", s_.inter, s_.hidden, false);
    gmm("gmm act_grad (transposed)", s_.hidden, s_.inter, true);
    gmm("gmm gate_grad (transposed)", 2 * s_.inter, s_.hidden, true);
    weightGrad();
    elementWise();
  }

 private:
  void print(std::string_view op, double operations, double bytes, double time) {
    const double flops = operations / time;
    fmt::print("{:<9} {:<28} {:>9.1f} us {:>7.3f} TFLOP/s", isaName(kernels_.isa), op, time * 1e6,
               flops / 1e12);
    if (peak_ > 0 && bytes == 0) fmt::print("  {:>4.0f}% of peak", 100 * flops / peak_);
    if (bytes > 0) fmt::print("  {:>6.1f} GB/s", bytes / time / 1e9);
    fmt::print("\n");
  }

  // A whole product, task by task: each task packs its weights anew, as in a program.
  void gmm(std::string_view name, int32_t k, int32_t n, bool transposed) {
    const std::vector<BFloat16> a = randomMatrix(s_.rows, k), b = randomMatrix(n, k);
    std::vector<BFloat16> c(static_cast<size_t>(s_.rows) * n);
    const double time = bestSeconds([&] {
      for (int32_t t = 0; t < tileCount(n, s_.columns); ++t) {
        const TileRange columns = tileRange(n, s_.columns, t);
        const BFloat16* const weight = b.data() + (transposed ? int64_t{columns.begin} * k : columns.begin);
        kernels_.gmm({a.data(), k, weight, transposed ? k : n, c.data() + columns.begin, n, s_.rows,
                      columns.length(), k, transposed, scratch_.get()});
      }
    });
    print(name, 2.0 * s_.rows * n * k, 0, time);
  }

  // gmm and activation as two families, and as one that keeps at most 192 rows of its product in scratch.
  void upAndActivation() {
    const int32_t k = s_.hidden, n = s_.inter, rowsAtOnce = equalTile(s_.rows, 192, 16);
    const std::vector<BFloat16> a = randomMatrix(s_.rows, k), b = randomMatrix(k, 2 * n);
    std::vector<BFloat16> gateUp(static_cast<size_t>(s_.rows) * 2 * n), act(static_cast<size_t>(s_.rows) * n);
    std::vector<BFloat16> kept(static_cast<size_t>(rowsAtOnce) * 2 * s_.columns);
    const auto product = [&](int32_t row, int32_t rows, TileRange columns, BFloat16* c, int64_t ldc) {
      kernels_.gmm({a.data() + int64_t{row} * k, k, b.data() + columns.begin, 2 * n, c, ldc, rows,
                    columns.length(), k, false, scratch_.get()});
    };
    const double operations = 4.0 * s_.rows * n * k;
    double time = bestSeconds([&] {
      for (int32_t t = 0; t < tileCount(2 * n, s_.columns); ++t) {
        const TileRange columns = tileRange(2 * n, s_.columns, t);
        product(0, s_.rows, columns, gateUp.data() + columns.begin, 2 * n);
      }
      kernels_.activation({gateUp.data(), 2 * n, act.data(), n, s_.rows, n});
    });
    print("gmm up, then swiglu", operations, 0, time);
    time = bestSeconds([&] {
      for (int32_t t = 0; t < tileCount(n, s_.columns); ++t)
        for (int32_t row = 0; row < s_.rows; row += rowsAtOnce) {
          const TileRange gate = tileRange(n, s_.columns, t);
          const int32_t rows = std::min(rowsAtOnce, s_.rows - row), width = gate.length();
          product(row, rows, gate, kept.data(), 2 * width);
          product(row, rows, {n + gate.begin, n + gate.end}, kept.data() + width, 2 * width);
          kernels_.activation(
              {kept.data(), 2 * width, act.data() + int64_t{row} * n + gate.begin, n, rows, width});
        }
    });
    print("gmm up with swiglu in it", operations, 0, time);
  }

  void weightGrad() {
    const int32_t m = s_.hidden, n = 2 * s_.inter;
    const std::vector<BFloat16> a = randomMatrix(s_.rows, m), b = randomMatrix(s_.rows, n);
    const std::vector<float> scale(s_.rows, 0.7f);
    std::vector<float> c(static_cast<size_t>(m) * n);
    const double time = bestSeconds([&] {
      for (int32_t i = 0; i < m; i += s_.columns)
        for (int32_t j = 0; j < n; j += s_.columns)
          kernels_.gmmWeightGrad({a.data() + i, m, b.data() + j, n, scale.data(),
                                  c.data() + int64_t{i} * n + j, n, s_.rows, std::min(s_.columns, m - i),
                                  std::min(s_.columns, n - j), scratch_.get()});
    });
    print("gmm_weight_grad gate_up", 2.0 * s_.rows * m * n, 0, time);
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
    double time =
        bestSeconds([&] { kernels_.activation({gateUp.data(), 2 * n, act.data(), n, s_.rows, n}); });
    print("swiglu", 0, elements * 6, time);
    time = bestSeconds([&] {
      kernels_.activationGrad({act.data(), n, gateUp.data(), 2 * n, weight.data(), grad.data(), 2 * n,
                               rowGrad.data(), s_.rows, n});
    });
    print("swiglu_grad", 0, elements * 10, time);
    time = bestSeconds([&] {
      kernels_.gatherRows({reinterpret_cast<const std::byte*>(rows.data()), h * 2, index.data(), 1,
                           reinterpret_cast<std::byte*>(y.data()), h * 2, h * 2, s_.rows});
    });
    print("gather rows", 0, 4.0 * s_.rows * h, time);
    if (s_.rows < k) return;
    time = bestSeconds([&] {
      kernels_.weightedSum({rows.data(), h, index.data(), weight.data(), y.data(), h, tokens, k, h});
    });
    print("weighted sum of 8 rows", 0, 2.0 * tokens * h * (k + 1), time);
  }

  const KernelSet& kernels_;
  Sizes s_;
  double peak_;
  std::unique_ptr<std::byte, FreeAligned> scratch_;
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
  fmt::print("one thread, rows {}, H {}, I {}, {} columns a task\n", sizes.rows, sizes.hidden, sizes.inter,
             sizes.columns);
  for (Isa isa : supportedIsas()) {
    const double peak = peakOf(isa);
    if (peak > 0) fmt::print("{:<9} register peak {:.3f} TFLOP/s\n", isaName(isa), peak / 1e12);
    Bench(**kernelsFor(isa), sizes, peak).run();
  }
  return 0;
}

}  // namespace
}  // namespace sluice::ops

int main(int argc, char** argv) { return sluice::ops::runBench(argc, argv); }
