#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <string>

#include "runtime/program/codec.h"
#include "runtime/program/program.h"
#include "runtime/program/program_generated.h"

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little, "program files are used in place");

constexpr size_t kIdentifierOffset = 4;
constexpr size_t kIdentifierBytes = 4;

// Every step is a bijection of `hash` for a given word, so that a change of any one word changes the result.
uint64_t mix(uint64_t hash, uint64_t word) { return std::rotl((hash ^ word) * 0x9e3779b97f4a7c15u, 29); }

// The checksum of the whole file by words of 8 bytes, the last one padded with zeros; the word at `hole`
// counts as 0.
uint64_t checksum(std::span<const std::byte> bytes, size_t hole) {
  uint64_t hash = bytes.size();
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    if (at != hole) std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
    hash = mix(hash, word);
  }
  return hash;
}

size_t checksumOffset(std::span<const std::byte> bytes, const fbs::Seal& seal) {
  const auto* start = reinterpret_cast<const std::byte*>(&seal);
  return static_cast<size_t>(start - bytes.data()) + 8;  // major, minor and the number of bytes precede it
}

// The bytes in the form of a C string, for a message.
std::string quoted(std::span<const std::byte> bytes) {
  std::string text;
  for (std::byte byte : bytes) {
    const auto c = static_cast<unsigned char>(byte);
    text += c >= 0x20 && c < 0x7f ? std::string(1, static_cast<char>(c)) : fmt::format("\\x{:02x}", c);
  }
  return text;
}

const fbs::Seal* findSeal(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  flatbuffers::Verifier verifier(data, bytes.size(), 2, 2);
  if (!verifier.VerifyBuffer<fbs::Sealed>()) return nullptr;
  return flatbuffers::GetRoot<fbs::Sealed>(data)->seal();
}

}  // namespace

void sealFile(std::span<std::byte> bytes) {
  const fbs::Seal* seal = findSeal(bytes);
  assert(seal && bytes.size() <= kMaxFileBytes);
  const size_t at = checksumOffset(bytes, *seal);
  const auto size = static_cast<uint32_t>(bytes.size());
  std::memcpy(bytes.data() + at - sizeof size, &size, sizeof size);
  const uint64_t sum = checksum(bytes, at);
  std::memcpy(bytes.data() + at, &sum, sizeof sum);
}

uint64_t readChecksum(std::span<const std::byte> sealedFile) { return findSeal(sealedFile)->checksum(); }

Status checkSeal(std::span<const std::byte> bytes) {
  if (bytes.empty()) return Error{"the file is empty, expected a program file"};
  if (bytes.size() < kIdentifierOffset + kIdentifierBytes)
    return Error{fmt::format("not a program file: {} bytes, too short for the identifier '{}'", bytes.size(),
                             fbs::ProgramIdentifier())};
  if (std::memcmp(bytes.data() + kIdentifierOffset, fbs::ProgramIdentifier(), kIdentifierBytes) != 0)
    return Error{fmt::format("not a program file: found '{}' at byte {}, expected the identifier '{}'",
                             quoted(bytes.subspan(kIdentifierOffset, kIdentifierBytes)), kIdentifierOffset,
                             fbs::ProgramIdentifier())};
  if (bytes.size() > kMaxFileBytes)
    return Error{fmt::format("{} bytes, a program file has at most {}", bytes.size(), kMaxFileBytes)};

  const fbs::Seal* seal = findSeal(bytes);
  if (!seal) return Error{fmt::format("truncated or damaged: no seal in {} bytes", bytes.size())};
  if (seal->major() != kFormatMajor)
    return Error{fmt::format("program format {}.{} is {}: this version reads format {}.x", seal->major(),
                             seal->minor(), seal->major() > kFormatMajor ? "newer" : "not known",
                             kFormatMajor)};
  if (seal->bytes() > bytes.size())
    return Error{fmt::format("truncated: {} bytes of {}", bytes.size(), seal->bytes())};
  if (seal->bytes() < bytes.size())
    return Error{fmt::format("damaged: {} bytes, but the seal says {}", bytes.size(), seal->bytes())};
  const uint64_t found = checksum(bytes, checksumOffset(bytes, *seal));
  if (found != seal->checksum())
    return Error{fmt::format("damaged: the checksum of the content is {:016x}, but the seal says {:016x}",
                             found, seal->checksum())};
  return {};
}

}  // namespace sluice
