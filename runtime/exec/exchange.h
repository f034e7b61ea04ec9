// The start of a step: every rank tells every rank what it is about to run and its counts by expert.
//
// A rank's counts are the permission to write to it: it posts them when it has finished the step before,
// cleared its counters and has its memory ready. What a peer says is checked before anything is done by it.
//
// Used by one thread of the rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/comm/all_gather.h"
#include "runtime/program/program.h"

namespace sluice {

// What a rank says of itself before a step; compared by all.
struct StepOffer {
  EntryId entry;
  int64_t tokens = 0;
  uint64_t routing = 0;  // digest() of the routing that the entry uses, where that is of an earlier one
  std::string failure;   // not empty: it cannot run the step, and why
  uint64_t memory = 0;   // digest of the symmetric memory that the step writes to
  uint32_t saved = 0;    // number of the saved set, which may differ where the memory is the same
};

class Exchange {
 public:
  // Collective. All ranks have the same program, which outlives this.
  static Expected<Exchange> create(Transport& transport, const TaskProgram& program);

  // Posts and collects one step; all() then has the counts of all ranks [ranks][experts]. Errors, the same at
  // every rank: a rank that failed before the step, runs another entry, or uses another routing or other
  // memory. Counts that no rank can have abort the transport, as does a timeout. An entry that uses the
  // routing of an earlier one posts counts of no meaning.
  Status step(const StepOffer& offer, const std::vector<int32_t>& counts, double timeoutSeconds);

  const std::vector<int32_t>& all() const { return all_; }

  // Of the step's number and counts: equal at ranks that have the same.
  uint64_t digest() const;

 private:
  struct Header;

  Header headerOf(int rank) const;
  Status compare(int source) const;
  Status checkCounts(int source) const;
  std::string entryName(uint32_t entry) const;

  Transport* transport_ = nullptr;
  const TaskProgram* program_ = nullptr;
  AllGather boards_;
  size_t counts_ = 0;
  uint64_t step_ = 0;
  std::vector<int32_t> all_;
  std::vector<std::byte> message_;
  std::string when_;  // of the step, for messages
};

}  // namespace sluice
