// AllGather: repeatedly exchanges one block of bytes per rank between all ranks.
//
// A rank can be one gather ahead of another, but never two, so two halves of boards are enough. Used by one
// thread of the rank at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/expected.h"
#include "runtime/comm/boards.h"

namespace sluice {

// What a rank waits for, as error messages put it: "the counts" of a rank "before entry 'forward' (step 3)".
struct Awaited {
  std::string_view what;
  std::string_view when;
};

class AllGather {
 public:
  AllGather() = default;

  // Collective. `bytes` per rank.
  static Expected<AllGather> create(Transport& transport, size_t bytes);

  // Posts this rank's block and returns when the blocks of all ranks have arrived. Errors: a rank left or was
  // lost; another rank aborted; a block is damaged or the time limit has passed (these two abort the
  // transport).
  Status gather(std::span<const std::byte> own, const Awaited& awaited, double timeoutSeconds);

  // The two halves of gather(). Between them isThere() returns whether the block of `rank` has arrived
  // undamaged.
  void post(std::span<const std::byte> own);
  Status await(const Awaited& awaited, double timeoutSeconds);
  bool isThere(int rank) const { return hasCome(rank) && boards_.isWhole(number_, rank); }

  // The block of `rank` from the last gather; valid until the next gather.
  const std::byte* of(int rank) const { return boards_.of(number_, rank); }

 private:
  size_t wordOffset(int source) const;
  bool hasCome(int source) const;
  Status awaitRank(int source, const Awaited& awaited, int64_t deadline, double timeoutSeconds);
  std::string missingRanks() const;
  Status fail(const std::string& message) const;

  Transport* transport_ = nullptr;
  Boards boards_;  // its words: per rank and half, the number of the last block
  uint64_t number_ = 0;
};

}  // namespace sluice
