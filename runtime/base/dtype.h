// Element types, and the 16-bit float that g++ 12 has no type for.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "runtime/base/enums.h"

namespace sluice {

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
    case DType::kI8:
    case DType::kU8:
    case DType::kF8_E4M3:
    case DType::kF8_E8M0:
      return 1;
  }
  return 0;
}

// The names of safetensors: F32, BF16, F16, I32, I64, I8, U8, F8_E4M3, F8_E8M0.
inline std::string_view dtypeName(DType type) {
  return type > DType::MAX ? "?" : enumNames(type)[static_cast<size_t>(type)] + 1;  // without the k
}

inline std::optional<DType> dtypeFromName(std::string_view name) {
  for (int value = 0; value <= static_cast<int>(DType::MAX); ++value)
    if (const auto type = static_cast<DType>(value); dtypeName(type) == name) return type;
  return std::nullopt;
}

// Whether elements are codes, which count times a scale.
constexpr bool isCodes(DType type) { return type == DType::kI8 || type == DType::kU8; }
// Codes in one element: of U8 two of 4 bits, the first in the lower half. Their scale says what they stand
// for: beside scales that are codes (F8_E8M0, F8_E4M3) they are floats (kTwiceE2m1), else whole numbers.
constexpr int64_t codesPerElement(DType type) { return type == DType::kU8 ? 2 : 1; }
// Bytes of one number.
constexpr double numberBytes(DType type) {
  return static_cast<double>(dtypeBytes(type)) / static_cast<double>(codesPerElement(type));
}
// Products of two codes whose sum is exact in int32.
inline constexpr int64_t kMaxCodes = 65536;
// Products of codes of 8 and of 4 bits that are added before their scale is applied.
inline constexpr int32_t kMaxStretch = 256;
// Whether rows of codes can be multiplied by groups of this length of codes of 4 bits, along a sum of length
// k.
constexpr bool isGroup(int64_t group, int64_t k) {
  return group == k || group == 32 || group == 64 || group == 128 || (group > 0 && group % kMaxStretch == 0);
}

// The upper half of an IEEE binary32. A trivial type: it may be copied with memcpy, and tensors contain it as
// it is.
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

// The number of an IEEE binary16.
constexpr float fromF16(uint16_t bits) {
  const uint32_t magnitude = bits & 0x7fffu, sign = (bits & 0x8000u) << 16;
  const uint32_t normal = (magnitude << 13) + ((magnitude < 0x7c00 ? 112u : 224u) << 23);
  const float x = magnitude < 0x400 ? static_cast<float>(magnitude) * 0x1p-24F : std::bit_cast<float>(normal);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) | sign);
}

// The IEEE binary16 next to a number, ties to even; infinity beyond the largest. A NaN stays a (quiet) NaN.
constexpr uint16_t toF16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu;
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // from half a step beyond 65504 on
  if (magnitude < 0x38800000u) {  // subnormal: the sum has the result in its last bits, rounded
    const float sum = std::bit_cast<float>(magnitude) + 0x1p-1F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13));
}

// The number of a code of E4M3, as OCP and safetensors have it: 1 bit sign, 4 bits exponent, 3 bits mantissa.
constexpr float fromE4m3(uint8_t code) {
  const uint32_t magnitude = code & 0x7fu, sign = (code & 0x80u) << 24;
  if (magnitude == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const float x = magnitude < 8 ? static_cast<float>(magnitude) * 0x1p-9F
                                : std::bit_cast<float>((magnitude << 20) + (uint32_t{120} << 23));
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) | sign);
}

// The code of a number of E4M3; of one between two of them that of the smaller magnitude, of one beyond them
// that of a NaN.
constexpr uint8_t toE4m3(float number) {
  const float magnitude = number < 0 ? -number : number;
  for (int code = 0x7e; code >= 0 && magnitude <= fromE4m3(0x7e); --code)
    if (fromE4m3(static_cast<uint8_t>(code)) <= magnitude)
      return static_cast<uint8_t>(code | (std::bit_cast<uint32_t>(number) >> 24 & 0x80u));
  return 0x7f;
}

// Twice the number of a code of 4 bits, E2M1 as OCP has it: 1 bit sign, 2 bits exponent, 1 bit mantissa. Code
// 8 is 0 as well. Kernels have copies of their own.
constexpr int8_t kTwiceE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// The power of two of a code of E8M0, as OCP has it; code 255 is a NaN.
constexpr float fromE8m0(uint8_t code) {
  if (code == 0xff) return std::numeric_limits<float>::quiet_NaN();
  return code == 0 ? 0x1p-127F : std::bit_cast<float>(uint32_t{code} << 23);
}

// The code of a power of two from 2^-126 on; of another number that of the power below it.
constexpr uint8_t toE8m0(float number) {
  return static_cast<uint8_t>(std::bit_cast<uint32_t>(number) >> 23 & 0xffu);
}

constexpr DType findDType(const float*) { return DType::kF32; }
constexpr DType findDType(const BFloat16*) { return DType::kBF16; }
constexpr DType findDType(const int8_t*) { return DType::kI8; }

// Element `index` as a number.
inline double elementAt(DType type, const void* data, int64_t index) {
  switch (type) {
    case DType::kF32:
      return static_cast<const float*>(data)[index];
    case DType::kBF16:
      return toFloat(static_cast<const BFloat16*>(data)[index]);
    case DType::kI32:
      return static_cast<const int32_t*>(data)[index];
    case DType::kI64:
      return static_cast<double>(static_cast<const int64_t*>(data)[index]);
    case DType::kI8:
      return static_cast<const int8_t*>(data)[index];
    case DType::kU8:
      return static_cast<const uint8_t*>(data)[index];
    case DType::kF8_E4M3:
      return fromE4m3(static_cast<const uint8_t*>(data)[index]);
    case DType::kF8_E8M0:
      return fromE8m0(static_cast<const uint8_t*>(data)[index]);
    case DType::kF16:
      return fromF16(static_cast<const uint16_t*>(data)[index]);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

// Stores a number, which must fit into the type, as element `index`.
inline void setElement(DType type, void* data, int64_t index, float value) {
  switch (type) {
    case DType::kF32:
      static_cast<float*>(data)[index] = value;
      break;
    case DType::kBF16:
      static_cast<BFloat16*>(data)[index] = toBFloat16(value);
      break;
    case DType::kI32:
      static_cast<int32_t*>(data)[index] = static_cast<int32_t>(value);
      break;
    case DType::kI64:
      static_cast<int64_t*>(data)[index] = static_cast<int64_t>(value);
      break;
    case DType::kI8:
      static_cast<int8_t*>(data)[index] = static_cast<int8_t>(value);
      break;
    case DType::kU8:
      static_cast<uint8_t*>(data)[index] = static_cast<uint8_t>(value);
      break;
    case DType::kF8_E4M3:
      static_cast<uint8_t*>(data)[index] = toE4m3(value);
      break;
    case DType::kF8_E8M0:
      static_cast<uint8_t*>(data)[index] = toE8m0(value);
      break;
    case DType::kF16:
      static_cast<uint16_t*>(data)[index] = toF16(value);
      break;
  }
}

}  // namespace sluice
