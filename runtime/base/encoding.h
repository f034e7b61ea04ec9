// How the numbers of a weight that is not trained lie in memory: their codes, and which of them share a
// scale.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/base/dtype.h"

namespace sluice {

struct Encoding {
  std::string_view name;
  DType element = DType::kBF16;
  int32_t across = 1;  // columns of the product that share a scale; those at the end may be fewer
  int32_t along = 0;   // numbers of a sum that do, likewise; 0: all, or a group that is chosen beside

  bool hasGroups() const { return element == DType::kU8; }
};

// E4M3 in squares, each with an fp32 scale, as DeepSeek-V3 and Qwen3 store weights; and codes of 8 and 4 bits
// with a scale per column, or per group of 4 bits along the sum.
inline constexpr int32_t kFp8Square = 128;
inline constexpr Encoding kEncodings[] = {
    {"int8", DType::kI8},
    {"int4", DType::kU8},
    {"fp8", DType::kF8_E4M3, kFp8Square, kFp8Square},
};

constexpr std::optional<Encoding> findEncoding(std::string_view name) {
  for (const Encoding& each : kEncodings)
    if (each.name == name) return each;
  return {};
}

// The scales of a dimension of so many numbers, of which `each` share one; the last may have fewer.
constexpr int64_t scalesFor(int64_t numbers, int64_t each) { return (numbers - 1) / each + 1; }

// How many numbers of a dimension share one of `scales` scales; none if codes of that type cannot have so
// many.
constexpr std::optional<int64_t> numbersPerScale(DType codes, int64_t numbers, int64_t scales) {
  if (codes == DType::kF8_E4M3) {
    if (scales != scalesFor(numbers, kFp8Square)) return {};
    return kFp8Square;
  }
  if (scales < 1 || numbers % scales != 0) return {};
  return numbers / scales;
}

}  // namespace sluice
