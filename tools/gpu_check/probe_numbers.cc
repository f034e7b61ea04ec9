// Probes of products and functions.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>

#include "tools/gpu_check/probes.h"

namespace sluice::tools {
namespace {

using gpu::Major;
using gpu::Probe;

constexpr float kUnwritten = -7777;

// The number must be one that bf16 has exactly.
uint16_t bf16(float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); }
float fromBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

std::vector<uint16_t> smallNumbers(int count, uint32_t seed) {
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = bf16(static_cast<float>((i * 2654435761U + seed) % 17) - 8);
  return values;
}

// A product of a kernel, and its operands in the order in which they lie in memory.
struct ProductCase {
  gpu::ProductForm form;
  int k = 0;  // the first of 16
  std::vector<uint16_t> a, b;
  std::vector<float> sum;  // to which the product is added; empty: none

  float aAt(int row, int d) const {
    return fromBf16(a[static_cast<size_t>(form.a == Major::kK ? row * 64 + d : d * 64 + row)]);
  }
  float bAt(int column, int d) const {
    return fromBf16(
        b[static_cast<size_t>(form.b == Major::kK ? column * 64 + d : d * form.columns + column)]);
  }
};

// c [64, columns]
std::vector<float> multiply(ProbeRun& run, const ProductCase& product) {
  const int columns = product.form.columns;
  const bool bInRows = product.form.b == Major::kK;
  const auto makeMap = [&](const std::vector<uint16_t>& values, int width, int boxRows) {
    const auto* const data = reinterpret_cast<const std::byte*>(run.upload(values));
    const int64_t bytes = static_cast<int64_t>(values.size()) * 2;
    return run.makeMap({.data = data,
                        .columns = width,
                        .rows = bytes / (2 * width),
                        .rowPitch = 2 * width,
                        .outerPitch = bytes,
                        .boxColumns = 64,
                        .boxRows = boxRows});
  };
  const std::vector<float> unwritten(static_cast<size_t>(64 * columns), kUnwritten);
  float* const out = run.upload(unwritten);
  gpu::ProbeLaunch launch{.probe = Probe::kProduct, .form = product.form};
  launch.arguments.maps[0] = makeMap(product.a, 64, 64);
  launch.arguments.maps[1] = makeMap(product.b, bInRows ? 64 : columns, bInRows ? columns : 64);
  if (!product.sum.empty()) launch.arguments.in = reinterpret_cast<const std::byte*>(run.upload(product.sum));
  launch.arguments.out = reinterpret_cast<std::byte*>(out);
  launch.arguments.number = product.k;
  run.launch(launch);
  return run.download(out, unwritten.size());
}

std::vector<float> makeGroupedProduct(const ProductCase& product) {
  std::vector<float> sums;
  for (int row = 0; row < 64; ++row)
    for (int column = 0; column < product.form.columns; ++column) {
      float sum = 0;
      for (int d = product.k; d < product.k + 16; ++d) sum += product.aAt(row, d) * product.bAt(column, d);
      sums.push_back(sum);
    }
  return sums;
}

// The ways to describe the operands, besides the kernels' way, in which the product is right.
std::string describeRightEncodings(ProbeRun& run, ProductCase product, const std::vector<float>& expected) {
  std::string right;
  for (int encoding = 1; encoding < gpu::kEncodings; ++encoding) {
    product.form.encoding = encoding;
    ProbeRun trial = run.another();
    const std::vector<float> found = multiply(trial, product);
    if (!trial.status() || found != expected) continue;
    right += right.empty() ? "right with " : ", or with ";
    std::string what;
    for (const auto& [bit, name] : {std::pair(gpu::kOffsetsExchanged, "leading offset and stride exchanged"),
                                    std::pair(gpu::kLeadingOne, "a leading offset of 1"),
                                    std::pair(gpu::kMajorsInverted, "majors inverted")})
      if ((encoding & bit) != 0) what += (what.empty() ? "" : " and ") + std::string(name);
    right += what;
  }
  return right.empty() ? fmt::format("wrong with all {} encodings", gpu::kEncodings) : right;
}

// "kept" or "0" for values that are one of both each; empty: something else.
std::string keptOrZero(std::span<const float> found, float kept) {
  const auto all = [&](float value) {
    return std::ranges::all_of(found, [value](float each) { return each == value; });
  };
  return all(kept) ? "kept" : all(0) ? "0" : "";
}

// f of each number.
std::vector<uint32_t> applied(ProbeRun& run, Probe probe, const std::vector<float>& numbers) {
  uint32_t* const out = run.upload(std::vector<uint32_t>(numbers.size(), 0x12345678));
  gpu::ProbeLaunch launch{.probe = probe};
  launch.arguments.in = reinterpret_cast<const std::byte*>(run.upload(numbers));
  launch.arguments.out = reinterpret_cast<std::byte*>(out);
  launch.arguments.number = static_cast<int>(numbers.size());
  run.launch(launch);
  return run.download(out, numbers.size());
}

// Compares a function with double precision. Numbers below the smallest normal one may become 0, and beyond
// the largest ones infinite. `bound`: of the relative error at x.
template <class Exact, class Bound>
Expected<std::string> compare(ProbeRun& run, Probe probe, const std::vector<float>& numbers,
                              const Exact& exact, const Bound& bound) {
  const std::vector<uint32_t> found = applied(run, probe, numbers);
  double most = 0;
  float where = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto y = std::bit_cast<float>(found[i]);
    const double value = exact(double{numbers[i]}), size = std::fabs(value), limit = bound(numbers[i]);
    bool isRight = false;
    if (std::isnan(value)) {
      isRight = std::isnan(y);
    } else if (size == 0 || size > 2 * FLT_MAX) {
      isRight = y == static_cast<float>(value);
    } else if (size < FLT_MIN * (1 + limit)) {
      isRight = std::fabs(y) <= FLT_MIN * (1 + 2 * limit);
    } else if (size > FLT_MAX * (1 - limit)) {
      isRight = std::fabs(y) >= FLT_MAX * (1 - 2 * limit) && std::signbit(y) == std::signbit(value);
    } else {
      const double error = std::fabs(y - value) / size;
      isRight = error <= limit;
      if (isRight && error > most) most = error, where = numbers[i];
    }
    if (!isRight)
      return Error{
          fmt::format("of {} found {}, expected {} within {:.1e} of it", numbers[i], y, value, limit)};
  }
  return fmt::format("largest relative error {:.1e}, at {}", most, where);
}

}  // namespace

Expected<std::string> probeProducts(ProbeRun& run, int columns) {
  for (const Major a : {Major::kK, Major::kMn})
    for (const Major b : {Major::kK, Major::kMn})
      for (const int k : {0, 16, 48}) {
        const ProductCase product{{.columns = columns, .a = a, .b = b},
                                  k,
                                  smallNumbers(64 * 64, 1),
                                  smallNumbers(columns * 64, 3),
                                  {}};
        const std::vector<float> found = multiply(run, product), expected = makeGroupedProduct(product);
        if (!run.status()) return run.status().error();
        const auto [wrong, right] = std::ranges::mismatch(found, expected);
        if (wrong == found.end()) continue;
        const auto place = wrong - found.begin();
        return Error{
            fmt::format("a along {}, b along {}, k from {}: row {}, column {}: found {}, expected {}; {}",
                        a == Major::kK ? "k" : "rows", b == Major::kK ? "k" : "columns", k, place / columns,
                        place % columns, *wrong, *right, describeRightEncodings(run, product, expected))};
      }
  return std::string("both majors of both operands, 16 of 64 k");
}

Expected<std::string> probeSubnormalProducts(ProbeRun& run) {
  std::string text;
  const auto probe = [&](const char* what, float a, float b, float sum) {
    ProductCase product{{}, 0, std::vector<uint16_t>(64 * 64), std::vector<uint16_t>(64 * 64), {}};
    for (size_t row = 0; row < 64; ++row) product.a[row * 64] = bf16(a), product.b[row * 64] = bf16(b);
    product.sum.assign(64 * 64, sum);
    const std::vector<float> found = multiply(run, product);
    const std::string is = keptOrZero(found, a * b + sum);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, is);
    return is.empty()
               ? Status(Error{fmt::format("{}: found {}, expected {} or 0", what, found[0], a * b + sum)})
               : Status();
  };
  Status all = probe("subnormal factors", std::ldexp(1.0F, -130), std::ldexp(1.0F, 20), 0);
  if (all) all = probe("results", std::ldexp(1.0F, -100), std::ldexp(1.0F, -30), 0);
  if (all) all = probe("sums", 0, 1, std::ldexp(1.0F, -130));
  if (!all) return all.error();
  return text;
}

Expected<std::string> probeSubnormalAdditions(ProbeRun& run) {
  std::string text;
  const auto probe = [&](const char* what, float old, float more) {
    const std::vector<float> values(8 * 32, old);
    float* const matrix = run.upload(values);
    gpu::ProbeLaunch launch{.probe = Probe::kStoreBox};
    launch.arguments.maps[0] = run.makeMap({.data = reinterpret_cast<const std::byte*>(matrix),
                                            .elementBytes = 4,
                                            .columns = 32,
                                            .rows = 8,
                                            .rowPitch = 128,
                                            .outerPitch = 1024,
                                            .boxColumns = 32,
                                            .boxRows = 8});
    launch.arguments.in = reinterpret_cast<const std::byte*>(run.upload(std::vector<float>(8 * 32, more)));
    launch.arguments.number = 1;
    run.launch(launch);
    const std::vector<float> found = run.download(matrix, values.size());
    const std::string is = keptOrZero(found, old + more);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, is);
    return is.empty()
               ? Status(Error{fmt::format("{}: found {}, expected {} or 0", what, found[0], old + more)})
               : Status();
  };
  const float tiny = std::ldexp(1.0F, -130);
  Status all = probe("subnormal addends", 0, tiny);
  // not to be told from an addition that did not happen: so more than a sum of 0
  if (all) all = probe("sums", tiny, 2 * tiny);
  if (all) all = probe("results", 1.5F * FLT_MIN, -FLT_MIN);
  if (!all) return all.error();
  return text;
}

// The bound is the one of __expf() in the CUDA C++ Programming Guide, "Intrinsic Functions": 2 +
// floor(abs(1.173 x)) units in the last place.
Expected<std::string> probeExponential(ProbeRun& run) {
  std::vector<float> numbers{0, -0.0F, NAN, INFINITY, -INFINITY, 1e-30F, FLT_MAX, -FLT_MAX};
  for (int i = -110 * 64; i <= 95 * 64; ++i) numbers.push_back(static_cast<float>(i) / 64 * 1.0007F);
  return compare(
      run, Probe::kExponential, numbers, [](double x) { return std::exp(x); },
      [](float x) { return (2 + std::floor(std::fabs(1.173 * x))) * FLT_EPSILON; });
}

Expected<std::string> probeReciprocal(ProbeRun& run) {
  std::vector<float> numbers{0, -0.0F, NAN, INFINITY, -INFINITY, FLT_MAX, FLT_MIN, 1, -1};
  for (int i = 0; i < 8192; ++i) {
    const float mantissa = 1 + static_cast<float>(i) / 8192;
    numbers.push_back(std::ldexp(i % 2 == 0 ? mantissa : -mantissa, i % 250 - 125));
  }
  return compare(
      run, Probe::kReciprocal, numbers, [](double x) { return 1 / x; },
      [](float /*x*/) { return 2 * FLT_EPSILON; });
}

Expected<std::string> probeRounding(ProbeRun& run) {
  std::vector<float> numbers{0, -0.0F, INFINITY, -INFINITY, NAN, FLT_MAX, -FLT_MAX, FLT_MIN};
  for (uint32_t i = 0; i < 4096; ++i)  // with ties, in both directions
    numbers.push_back(std::bit_cast<float>(0x3f800000 + i * 0x4000 + i % 3 - 1));
  const std::vector<uint32_t> found = applied(run, Probe::kPackBf16, numbers);
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto bits = std::bit_cast<uint32_t>(numbers[i]);
    const uint32_t expected = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    const bool isRight = std::isnan(numbers[i])
                             ? std::isnan(std::bit_cast<float>(found[i] & 0xffff0000))
                             : (found[i] & 0xffff0000) == expected && (found[i] & 0xffff) == 0x3f80;
    if (!isRight)
      return Error{
          fmt::format("of {:#010x} found {:#010x}, expected {:#010x}", bits, found[i], expected | 0x3f80)};
  }
  return std::string("ties to even, NaN stays NaN");
}

}  // namespace sluice::tools
