// How numbers are stored, sent or rounded: their element, which of them share a scale, and how that is
// chosen. An encoding is a value with a name; docs/PRECISION.md says what each is good for.
//
// Constant data and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/base/dtype.h"
#include "runtime/base/rounding.h"

namespace sluice {

// Whether scales of that type are numbers; others (F8_E8M0, F8_E4M3) are codes themselves.
constexpr bool isNumber(DType scale) {
  return scale == DType::kF32 || scale == DType::kF16 || scale == DType::kBF16;
}

// The type of the zeros beside scales of that type. Zeros of F32 are added to the scaled code. Files with
// scales of 16 bits have instead the code that stands for 0, from which a code is counted.
constexpr DType zeroType(DType scale) { return scale == DType::kF32 ? DType::kF32 : DType::kI8; }

// Where amaxes come from, the largest magnitudes by which rows, and rows of gradients with them, are scaled.
enum class AmaxSource : uint8_t {
  kStep,      // They are measured in the step.
  kReturned,  // They are measured, and are outputs, too.
  kGiven,     // They are inputs, and those of the step are outputs.
};

struct Encoding {
  std::string_view name;
  // Codes in memory, each of which counts times a scale of its block.
  DType element = DType::kBF16;
  int32_t across = 1;  // columns of the product in a block; those at the end may be fewer
  int32_t along = 0;   // numbers of a sum, likewise; 0: all
  bool zeros = false;  // scales have zeros beside them
  DType scale = DType::kF32;
  bool factor = false;  // all scales of a matrix have an fp32 factor beside them
  // Or a factor of products, which is bf16 in memory, and is rounded when it is multiplied.
  Rounding rounding = Rounding::kNone;
  AmaxSource amax = AmaxSource::kStep;

  constexpr bool hasCodes() const { return element != DType::kBF16; }
  constexpr bool rounds() const { return rounding != Rounding::kNone; }
  // Whether rows of integers can be multiplied by the codes themselves, whose sums are scaled afterwards.
  constexpr bool isExact() const { return isCodes(element) && isNumber(scale); }
  // Such codes with one scale for each column of the product.
  constexpr bool isByColumn() const { return isExact() && along == 0 && !zeros; }
};

// E4M3 in squares, each with an fp32 scale, as DeepSeek-V3 and Qwen3 store weights.
inline constexpr int32_t kFp8Square = 128;

inline constexpr Encoding kEncodings[] = {
    {.name = "bf16"},
    {.name = "int8", .element = DType::kI8},
    {.name = "int4", .element = DType::kU8},
    {.name = "int4:z", .element = DType::kU8, .zeros = true},
    {.name = "int4:g32", .element = DType::kU8, .along = 32},
    {.name = "int4:g32z", .element = DType::kU8, .along = 32, .zeros = true},
    {.name = "int4:g64", .element = DType::kU8, .along = 64},
    {.name = "int4:g64z", .element = DType::kU8, .along = 64, .zeros = true},
    {.name = "int4:g128", .element = DType::kU8, .along = 128},
    {.name = "int4:g128z", .element = DType::kU8, .along = 128, .zeros = true},
    {.name = "int4:g32:f16", .element = DType::kU8, .along = 32, .scale = DType::kF16},
    {.name = "int4:g32z:f16", .element = DType::kU8, .along = 32, .zeros = true, .scale = DType::kF16},
    {.name = "int4:g64:f16", .element = DType::kU8, .along = 64, .scale = DType::kF16},
    {.name = "int4:g64z:f16", .element = DType::kU8, .along = 64, .zeros = true, .scale = DType::kF16},
    {.name = "int4:g128:f16", .element = DType::kU8, .along = 128, .scale = DType::kF16},
    {.name = "int4:g128z:f16", .element = DType::kU8, .along = 128, .zeros = true, .scale = DType::kF16},
    {.name = "int4:g32:bf16", .element = DType::kU8, .along = 32, .scale = DType::kBF16},
    {.name = "int4:g32z:bf16", .element = DType::kU8, .along = 32, .zeros = true, .scale = DType::kBF16},
    {.name = "int4:g64:bf16", .element = DType::kU8, .along = 64, .scale = DType::kBF16},
    {.name = "int4:g64z:bf16", .element = DType::kU8, .along = 64, .zeros = true, .scale = DType::kBF16},
    {.name = "int4:g128:bf16", .element = DType::kU8, .along = 128, .scale = DType::kBF16},
    {.name = "int4:g128z:bf16", .element = DType::kU8, .along = 128, .zeros = true, .scale = DType::kBF16},
    {.name = "fp8e4m3:128x128", .element = DType::kF8_E4M3, .across = kFp8Square, .along = kFp8Square},
    {.name = "mxfp4", .element = DType::kU8, .along = 32, .scale = DType::kF8_E8M0},
    {.name = "nvfp4", .element = DType::kU8, .along = 16, .scale = DType::kF8_E4M3, .factor = true},
    {.name = "fp8e4m3", .rounding = Rounding::kE4m3},
    {.name = "fp8e4m3:amax", .rounding = Rounding::kE4m3, .amax = AmaxSource::kReturned},
    {.name = "fp8e4m3:delayed", .rounding = Rounding::kE4m3, .amax = AmaxSource::kGiven},
    {.name = "fp8e5m2", .rounding = Rounding::kE5m2},
    {.name = "mxfp8", .rounding = Rounding::kMxE4m3},
    {.name = "mxfp8:floor", .rounding = Rounding::kMxE4m3Floor},
    {.name = "mxfp8:32x32", .rounding = Rounding::kMxE4m3Square},
    {.name = "mxfp8:32x32:floor", .rounding = Rounding::kMxE4m3SquareFloor},
    {.name = "mxfp8e5m2", .rounding = Rounding::kMxE5m2},
    {.name = "mxfp8e5m2:floor", .rounding = Rounding::kMxE5m2Floor},
};

inline constexpr const Encoding& kBf16 = kEncodings[0];

// Null if there is none.
constexpr const Encoding* findEncoding(std::string_view name) {
  for (const Encoding& each : kEncodings)
    if (each.name == name) return &each;
  return nullptr;
}

// Whether a weight of such codes may have scales of that type.
constexpr bool canScale(DType scale, DType codes) {
  const bool isCode = scale == DType::kF8_E8M0 || scale == DType::kF8_E4M3;
  return scale == DType::kF32 || ((isNumber(scale) || isCode) && codesPerElement(codes) == 2);
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
