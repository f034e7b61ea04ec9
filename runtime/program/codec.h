// The program file: FlatBuffers, schema in program.fbs, file identifier "SLUP".
//
// Same program, same bytes. Reading is safe for untrusted bytes: every offset is checked before it is
// followed, sizes are bounded by the bytes given, and a program that decodes may still be refused by
// verify().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/program/program.h"

namespace sluice {

// The program as the bytes of a file.
std::vector<std::byte> encode(const TaskProgram& program);

// Errors: not a program file, truncated or damaged, a newer major version (names both), a value that no enum
// has.
Expected<TaskProgram> decode(std::span<const std::byte> bytes);

// Reads and decodes the file; the message begins with the path.
Expected<TaskProgram> readProgram(const std::string& path);

// Encodes and writes the file by temporary file and rename: a reader sees the old file or the new one.
// Errors: also a program that decode() would refuse.
Status writeProgram(const TaskProgram& program, const std::string& path);

// Files are no longer than this, so that every offset fits FlatBuffers' 31 bits with room to spare.
inline constexpr size_t kMaxFileBytes = size_t{1} << 30;

// FlatBuffers' scalars are read in place: the bytes of a program must begin at a multiple of this.
inline constexpr size_t kFileAlignment = 8;

// Writes the length of the file and its checksum into its seal, by which a reader distinguishes a foreign, a
// newer, a truncated and a damaged file before it uses anything else. The checksum finds accidents, not
// attacks: decode() still trusts nothing. `bytes` must be a whole program file, aligned, whose other bytes
// are final.
void sealFile(std::span<std::byte> bytes);

// The checksum of a sealed file: equal for equal programs.
uint64_t readChecksum(std::span<const std::byte> sealedFile);

// Errors: empty, not a program file, another major version, truncated, damaged. `bytes` must be aligned.
Status checkSeal(std::span<const std::byte> bytes);

}  // namespace sluice
