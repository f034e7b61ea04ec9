// The seal of a program file: what tells a foreign, a newer, a truncated and a damaged file apart before
// anything else in it is believed. The checksum finds accidents, not attacks: decode() still trusts nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/expected.h"

namespace sluice {

// Files are no longer than this, so that every offset fits FlatBuffers' 31 bits with room to spare.
inline constexpr size_t kMaxFileBytes = size_t{1} << 30;

// FlatBuffers' scalars are read in place: the bytes of a program must begin at a multiple of this.
inline constexpr size_t kFileAlignment = 8;

// Writes the length of the file and its checksum into its seal. `bytes` must hold a whole program file,
// aligned, of which all else is final.
void sealFile(std::span<std::byte> bytes);

// Errors: empty, not a program file, another major version, truncated, damaged. `bytes` must be aligned.
Status checkSeal(std::span<const std::byte> bytes);

}  // namespace sluice
