#include <algorithm>
#include <functional>
#include <vector>

#include "ops/bench/probes.h"
#include "tools/calibrate/fit_product.h"
#include "tools/calibrate/measure.h"

namespace sluice::tools {
namespace {

using Scratch = std::vector<ops::CacheLine>;

Scratch makeScratch(size_t bytes) { return Scratch(bytes / sizeof(ops::CacheLine) + 1); }

std::vector<BFloat16> randomMatrix(int64_t elements) {
  std::vector<BFloat16> values(static_cast<size_t>(elements));
  uint32_t state = 1;
  for (BFloat16& value : values) {
    state = state * 1664525u + 1013904223u;
    value = toBFloat16(static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f);
  }
  return values;
}

double countPasses(int32_t m, int32_t rowBlock) { return (m + rowBlock - 1) / rowBlock; }

// Products that stay in the caches, with a few rows up to more than one block.
std::vector<TimedProduct> timeGmm(const ops::KernelSet& kernels, bool transposed, const Effort& effort) {
  constexpr int32_t kWidest = 512, kLongest = 2048, kMaxRows = 512;
  const std::vector<BFloat16> a = randomMatrix(int64_t{kMaxRows} * kLongest);
  const std::vector<BFloat16> b = randomMatrix(int64_t{kWidest} * kLongest);
  std::vector<BFloat16> c(size_t{kMaxRows} * kWidest);
  Scratch scratch = makeScratch(kernels.gmmScratchBytes(kWidest, kLongest));
  std::vector<TimedProduct> timed;
  for (int32_t k : {256, 768, 2048})
    for (int32_t n : {64, 128, 256, 512})
      for (int32_t rows : {16, 32, 64, 128, 256, 384, 512}) {
        if (int64_t{n} * k > int64_t{1} << 19) continue;  // the weight would not fit the cache of a core
        const double seconds = bestSeconds(effort.run, [&] {
          kernels.gmm({.a = {a.data(), k},
                       .b = {b.data(), transposed ? k : n},
                       .c = {c.data(), n},
                       .rows = rows,
                       .n = n,
                       .k = k,
                       .transposeB = transposed,
                       .scratch = scratch.data()});
        });
        timed.push_back(
            {double(rows), double(n), double(k), countPasses(rows, kernels.blocks.rows), seconds});
      }
  return timed;
}

// The rows of a result that is not written past the caches: no whole lines.
constexpr int32_t unevenRows(int32_t columns) { return columns + 1; }

std::vector<TimedProduct> timeWeightGrad(const ops::KernelSet& kernels, const Effort& effort) {
  constexpr int32_t kMost = 512, kMaxRows = 512;
  const std::vector<BFloat16> a = randomMatrix(int64_t{kMost} * kMaxRows);
  const std::vector<BFloat16> b = randomMatrix(int64_t{kMost} * kMaxRows);
  std::vector<float> c(size_t{kMost} * unevenRows(kMost));
  Scratch scratch = makeScratch(kernels.weightGradScratchBytes(kMost, kMost));
  std::vector<TimedProduct> timed;
  for (int32_t rows : {16, 64, 256, 512})
    for (int32_t m : {64, 128, 256, 512})
      for (int32_t n : {64, 128, 256, 512}) {
        if (m * n > 1 << 17) continue;
        const double seconds = bestSeconds(effort.run, [&] {
          kernels.gmmWeightGrad({.a = {a.data(), m},
                                 .b = {b.data(), n},
                                 .scale = nullptr,
                                 .c = {c.data(), unevenRows(n)},
                                 .rows = rows,
                                 .m = m,
                                 .n = n,
                                 .scratch = scratch.data()});
        });
        timed.push_back({double(m), double(n), double(rows), countPasses(m, kernels.blocks.rows), seconds});
      }
  return timed;
}

// From the time of a narrow product, with and without.
double roundingRate(const ops::KernelSet& kernels, double budget) {
  constexpr int32_t kRows = 256, kSum = 1024, kColumns = 64;
  const std::vector<BFloat16> a = randomMatrix(kRows * kSum), b = randomMatrix(kSum * kColumns);
  std::vector<BFloat16> c(size_t{kRows} * kColumns);
  Scratch scratch = makeScratch(kernels.gmmScratchBytes(kColumns, kSum));
  const auto seconds = [&](Rounding round) {
    return bestSeconds(budget, [&] {
      kernels.gmm({.a = {a.data(), kSum},
                   .b = {b.data(), kColumns},
                   .c = {c.data(), kColumns},
                   .rows = kRows,
                   .n = kColumns,
                   .k = kSum,
                   .transposeB = false,
                   .scratch = scratch.data(),
                   .roundA = round});
    });
  };
  const double plain = seconds(Rounding::kNone), rounded = seconds(Rounding::kMxE4m3);
  return kRows * kSum / std::max(rounded - plain, plain * 1e-3);  // the clock of a busy machine may go back
}

}  // namespace

double referenceSeconds(const ops::KernelSet& kernels, const Effort& effort) {
  constexpr int32_t kRows = 256, kSize = 512;
  const std::vector<BFloat16> a = randomMatrix(kRows * kSize), b = randomMatrix(kSize * kSize);
  std::vector<BFloat16> c(size_t{kRows} * kSize);
  Scratch scratch = makeScratch(kernels.gmmScratchBytes(kSize, kSize));
  return bestSeconds(2 * effort.run, [&] {
    kernels.gmm({.a = {a.data(), kSize},
                 .b = {b.data(), kSize},
                 .c = {c.data(), kSize},
                 .rows = kRows,
                 .n = kSize,
                 .k = kSize,
                 .transposeB = false,
                 .scratch = scratch.data()});
  });
}

MeasuredMatrix measureMatrix(const ops::KernelSet& kernels, const Effort& effort) {
  MeasuredMatrix out;
  const auto fit = [&](const std::vector<TimedProduct>& timed) {
    const ProductRate rate = fitProduct(timed);
    out.worstError = std::max(out.worstError, worstError(rate, timed));
    return rate;
  };
  out.rates.gmm = fit(timeGmm(kernels, false, effort));
  out.rates.gmmTransposed = fit(timeGmm(kernels, true, effort));
  out.rates.weightGrad = fit(timeWeightGrad(kernels, effort));
  out.rates.rowUnit = 1;
  out.rates.columnUnit = kernels.blocks.columns;
  out.rates.rowBlock = kernels.blocks.rows;
  out.rates.sumBlock = kernels.blocks.sum;
  return out;
}

VectorRates measureVector(const ops::KernelSet& kernels, const Effort& effort) {
  constexpr int32_t kRows = 64, kInter = 1024, kSummed = 8;
  const std::vector<BFloat16> gateUp = randomMatrix(kRows * 2 * kInter), grad = randomMatrix(kRows * kInter);
  std::vector<BFloat16> out(size_t{kRows} * 2 * kInter);
  std::vector<float> weight(kRows, 0.3f), rowGrad(kRows);
  std::vector<int32_t> position(kRows);
  for (int32_t i = 0; i < kRows; ++i) position[static_cast<size_t>(i)] = i * 7 % kRows;
  const double budget = 5 * effort.run;
  const auto rate = [&](double elements, const std::function<void()>& work) {
    return elements / bestSeconds(budget, work);
  };
  VectorRates rates;
  rates.activation = rate(kRows * kInter, [&] {
    kernels.activation({.gateUp = gateUp.data(),
                        .ldGateUp = 2 * kInter,
                        .act = out.data(),
                        .ldAct = kInter,
                        .rows = kRows,
                        .inter = kInter});
  });
  rates.activationGrad = rate(kRows * kInter, [&] {
    kernels.activationGrad({.actGrad = grad.data(),
                            .ldActGrad = kInter,
                            .gateUp = gateUp.data(),
                            .ldGateUp = 2 * kInter,
                            .rowWeight = weight.data(),
                            .gateUpGrad = out.data(),
                            .ldGateUpGrad = 2 * kInter,
                            .rowWeightGrad = rowGrad.data(),
                            .rows = kRows,
                            .inter = kInter});
  });
  rates.sum = rate(double(kRows) * kInter, [&] {
    kernels.weightedSum({.src = gateUp.data(),
                         .ldSrc = kInter,
                         .position = position.data(),
                         .weight = weight.data(),
                         .y = out.data(),
                         .ldY = kInter,
                         .tokens = kRows / kSummed,
                         .topK = kSummed,
                         .n = kInter});
  });
  rates.copy = rate(double(kRows) * kInter, [&] {
    kernels.gatherRows({.src = reinterpret_cast<const std::byte*>(gateUp.data()),
                        .srcStride = kInter * 2,
                        .index = position.data(),
                        .divisor = 1,
                        .dst = reinterpret_cast<std::byte*>(out.data()),
                        .dstStride = kInter * 2,
                        .bytes = kInter * 2,
                        .rows = kRows});
  });
  rates.round = roundingRate(kernels, budget);
  return rates;
}

}  // namespace sluice::tools
