// The seal of a program file, by which a reader distinguishes a foreign, a newer, a truncated and a damaged
// file before it uses anything else. The checksum finds accidents, not attacks: decode() still trusts
// nothing.
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

// Writes the length of the file and its checksum into its seal. `bytes` must be a whole program file,
// aligned, whose other bytes are final.
void sealFile(std::span<std::byte> bytes);

// That checksum: equal for equal programs.
uint64_t readChecksum(std::span<const std::byte> sealedFile);

// Errors: empty, not a program file, another major version, truncated, damaged. `bytes` must be aligned.
Status checkSeal(std::span<const std::byte> bytes);

}  // namespace sluice
