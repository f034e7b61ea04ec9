// The start of a step: every rank tells every rank what it is about to run and its counts by expert.
//
// A rank's counts are the permission to write to it: it posts them when it has finished the step before,
// cleared its counters and has its memory ready.
//
// Used by one thread of the rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/comm/all_gather.h"

namespace sluice {

// What a rank says of itself before a step; compared by all.
struct StepOffer {
  uint64_t fingerprint = 0;  // of its program
  uint32_t entry = 0;
  std::string failure;  // not empty: it cannot run the step, and why
};

class Exchange {
 public:
  // Collective. `counts` is the number of int32 each rank posts.
  static Expected<Exchange> create(Transport& transport, int64_t counts);

  // Posts and collects one step; all() then has the counts of all ranks [ranks][counts]. Errors, the same at
  // every rank: a rank that failed before the step, or runs another program or entry. On a timeout, aborts.
  // `entryName` is for messages.
  Status step(const StepOffer& offer, const std::vector<int32_t>& counts, const std::string& entryName,
              double timeoutSeconds);

  const std::vector<int32_t>& all() const { return all_; }

 private:
  struct Header;

  Header headerOf(int rank) const;
  Status compare(int source) const;

  Transport* transport_ = nullptr;
  AllGather boards_;
  size_t counts_ = 0;
  uint64_t step_ = 0;
  std::vector<int32_t> all_;
  std::vector<std::byte> message_;
  std::string when_;  // of the step, for messages
};

}  // namespace sluice
