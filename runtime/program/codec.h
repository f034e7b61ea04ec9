// The program file: FlatBuffers, schema in program.fbs, file identifier "SLUP".
//
// Same program, same bytes. Reading is safe for untrusted bytes: every offset is checked before it is
// followed, sizes are bounded by the bytes given, and a program that decodes may still be refused by
// verify().
#pragma once

#include <cstddef>
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

}  // namespace sluice
