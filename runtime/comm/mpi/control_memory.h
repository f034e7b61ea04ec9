// ControlMemory: what ranks write to each other besides puts. It has one section per source: the mailbox of
// the source's messages, the number of this rank's messages that the source has taken, and its abort message.
//
// Resource type. The layout is the same at all ranks. Other ranks write to it only through MPI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/base/cache_line.h"
#include "runtime/comm/mpi/mailbox.h"

namespace sluice::mpi {

class ControlMemory {
 public:
  static constexpr size_t kTakenOffset = kMailboxWords * sizeof(uint64_t);
  static constexpr size_t kAbortOffset = kTakenOffset + kCacheLine;
  static constexpr size_t kSectionBytes = kAbortOffset + network::kMaxAbortText;

  explicit ControlMemory(int ranks) : words_(static_cast<size_t>(ranks) * kSectionBytes / sizeof(uint64_t)) {}

  std::byte* data() { return reinterpret_cast<std::byte*>(words_.data()); }
  size_t size() const { return words_.size() * sizeof(uint64_t); }
  static size_t sectionOffset(int source) { return static_cast<size_t>(source) * kSectionBytes; }
  std::byte* section(int source) { return data() + sectionOffset(source); }

 private:
  std::vector<uint64_t> words_;  // zeros
};

}  // namespace sluice::mpi
