// Exchange: the counts by expert of all ranks, for a step that routes.
//
// A rank's counts are the permission to write to it: it puts them when it has finished the previous step,
// cleared its counters and prepared its memory, and then joins the meeting of the step, which shows that they
// have arrived. They are kept in two halves by the parity of steps: no rank joins a meeting before all have
// taken the counts of the step before the last. Counts of a peer are checked before they are used.
//
// Used by one thread of the rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/comm/boards.h"
#include "runtime/exec/meeting.h"
#include "runtime/program/program.h"
#include "runtime/routing/routing.h"

namespace sluice {

class Exchange {
 public:
  // Collective. All ranks have the same program, which outlives this.
  static Expected<Exchange> create(Transport& transport, const TaskProgram& program);

  // Before the meeting of the step: those of this rank.
  void put(uint64_t step, const std::vector<int32_t>& counts);
  // After it: all() then has those of all ranks, until this rank comes to the next meeting. Impossible and
  // damaged counts abort the transport; the same error at every rank that finds one.
  Status take(uint64_t step, EntryId entry, const Meeting& meeting);

  AllCounts all() const;
  int64_t pairs() const { return pairs_; }  // of all ranks

  // The digest of the last step's number and counts: equal at ranks with equal ones.
  uint64_t digest() const;

 private:
  Status checkCounts(int source, int64_t tokens);

  Transport* transport_ = nullptr;
  const TaskProgram* program_ = nullptr;
  Boards boards_;
  uint64_t step_ = 0;
  int64_t pairs_ = 0;
};

}  // namespace sluice
