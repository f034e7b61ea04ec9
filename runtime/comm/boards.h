// Boards: one block of bytes per rank that all ranks can read, replaced again and again.
//
// Blocks are numbered and kept in two halves by the parity of their numbers. A checksum per block detects
// damage on the way before a rank acts on it. Where ranks share memory, rank 0 holds the blocks for all of
// them; otherwise each rank has a copy. The user must know when a block may be read, and when the block two
// numbers back is no longer needed. Used by one thread of the rank at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/comm/transport.h"

namespace sluice {

class Boards {
 public:
  Boards() = default;

  // Collective. Blocks of `bytes`; words() has `wordBytes` per rank that belong to the user.
  static Expected<Boards> create(Transport& transport, size_t bytes, size_t wordBytes = 0);

  // Writes this rank's block. A rank that sees a later signal of this thread also sees the block.
  void put(uint64_t number, std::span<const std::byte> block);

  bool isWhole(uint64_t number, int rank) const;
  // Aligned to 8 bytes; the block of the next rank is stride() bytes further on.
  const std::byte* of(uint64_t number, int rank) const;
  size_t stride() const { return stride_; }

  SymmetricHandle words() const { return memory_; }

 private:
  size_t findOffset(uint64_t number, int rank) const;

  Transport* transport_ = nullptr;
  SymmetricHandle memory_;
  const std::byte* blocks_ = nullptr;  // the memory that this rank reads
  size_t begin_ = 0;                   // offset of the blocks in that memory
  size_t stride_ = 0;
  std::vector<std::byte> message_;  // checksum and block
};

}  // namespace sluice
