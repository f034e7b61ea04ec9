// Element types, and the 16-bit float that g++ 12 has no type for.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace sluice {

enum class DType : uint8_t { kF32 = 0, kBF16 = 1, kF16 = 2, kI32 = 3, kI64 = 4 };

// Bytes of one element.
constexpr int64_t dtypeBytes(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kI64:
      return 8;
  }
  return 0;
}

// The names of safetensors: F32, BF16, F16, I32, I64.
constexpr std::string_view dtypeName(DType type) {
  switch (type) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
  }
  return "?";
}

constexpr std::optional<DType> dtypeFromName(std::string_view name) {
  for (DType type : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kI64})
    if (dtypeName(type) == name) return type;
  return std::nullopt;
}

// The upper half of an IEEE binary32. A trivial type: may be memcpy'd and lies in tensors as it is.
struct BFloat16 {
  uint16_t bits;
  friend constexpr bool operator==(BFloat16, BFloat16) = default;
};

constexpr float toFloat(BFloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

// Rounds to nearest, ties to even; a NaN stays a (quiet) NaN.
constexpr BFloat16 toBFloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace sluice
