// Boards: a block of bytes of every rank, which all ranks read, again and again.
//
// Blocks are numbered and kept in two halves by the parity of their numbers. Each has a checksum: what went
// wrong on its way is found here, and not in what a rank does by it. Where ranks share their memory, rank 0
// holds the blocks for all of them, else each rank has a copy. When a block may be read, and when the block
// before the last is no longer needed, is for the user to know. Used by one thread of the rank at a time.
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

  // Collective. Blocks of `bytes`, and `wordBytes` at each rank at words(), which are the user's.
  static Expected<Boards> create(Transport& transport, size_t bytes, size_t wordBytes = 0);

  // This rank's block. What this thread signals to a rank after it shows that rank that the block is there.
  void put(uint64_t number, std::span<const std::byte> block);

  bool isWhole(uint64_t number, int rank) const;
  // Aligned by 8; the block of the next rank lies stride() bytes after it.
  const std::byte* of(uint64_t number, int rank) const;
  size_t stride() const { return stride_; }

  SymmetricHandle words() const { return memory_; }

 private:
  size_t offsetOf(uint64_t number, int rank) const;

  Transport* transport_ = nullptr;
  SymmetricHandle memory_;
  const std::byte* blocks_ = nullptr;  // the memory that this rank reads
  size_t begin_ = 0;                   // of the blocks in it
  size_t stride_ = 0;
  std::vector<std::byte> message_;  // checksum and block
};

}  // namespace sluice
