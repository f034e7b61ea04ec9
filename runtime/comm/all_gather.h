// AllGather: a block of bytes from every rank to every rank, again and again.
//
// A rank can be one gather ahead of another, never two: so two halves of boards are enough. Used by one
// thread of the rank at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/expected.h"
#include "runtime/comm/boards.h"

namespace sluice {

// What a rank waits for, in the words of a report: "the counts" of a rank "before entry 'forward' (step 3)".
struct Awaited {
  std::string_view what;
  std::string_view when;
};

class AllGather {
 public:
  AllGather() = default;

  // Collective. `bytes` of each rank.
  static Expected<AllGather> create(Transport& transport, size_t bytes);

  // Posts this rank's block and returns when those of all ranks are there. Errors: a rank that has left or
  // was lost, another rank's abort; a damaged block, and what takes longer than the limit, abort the
  // transport.
  Status gather(std::span<const std::byte> own, const Awaited& awaited, double timeoutSeconds);

  // Its two halves. Between them isThere() says whether the block of `rank` has come, and is whole.
  void post(std::span<const std::byte> own);
  Status await(const Awaited& awaited, double timeoutSeconds);
  bool isThere(int rank) const { return hasCome(rank) && boards_.isWhole(number_, rank); }

  // The block of `rank` as last gathered; valid until the next gather.
  const std::byte* of(int rank) const { return boards_.of(number_, rank); }

 private:
  size_t wordOf(int source) const;
  bool hasCome(int source) const;
  Status awaitRank(int source, const Awaited& awaited, int64_t deadline, double timeoutSeconds);
  std::string missingRanks() const;
  Status fail(const std::string& message) const;

  Transport* transport_ = nullptr;
  Boards boards_;  // their words: the number of the last block of each rank in either half
  uint64_t number_ = 0;
};

}  // namespace sluice
