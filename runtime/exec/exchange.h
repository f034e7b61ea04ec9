// Exchange: the counts per expert of all ranks, for a step that routes.
//
// A rank's counts are the permission to write to it: it puts them after it has finished the previous step,
// cleared its counters and prepared its memory. Then it joins the meeting of the step, which proves that they
// have arrived. They are kept in two halves by the parity of steps: no rank joins a meeting before all ranks
// have read the counts of the step before the last. Counts of a peer are checked before they are used.
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

  // Call it before the meeting of the step, with the counts of this rank and a digest of its expert ids.
  void put(uint64_t step, const std::vector<int32_t>& counts, uint64_t idsDigest);
  // Call it after the meeting: all() then has the counts of all ranks, until this rank joins the next
  // meeting. Impossible or damaged counts abort the transport; every rank that finds them reports the same
  // error. Ranks of a group that must have the same tokens, but have other counts or ids, are an error at
  // all ranks that leaves them usable.
  Status take(uint64_t step, EntryId entry, const Meeting& meeting);

  AllCounts all() const;
  int64_t pairs() const { return pairs_; }  // of all ranks

  // A digest of the last step's number and counts: equal at ranks that have equal ones.
  uint64_t digest() const;

 private:
  Status checkCounts(int source, int64_t tokens);
  Status checkGroup(int source, const Meeting& meeting) const;

  Transport* transport_ = nullptr;
  const TaskProgram* program_ = nullptr;
  Boards boards_;
  uint64_t step_ = 0;
  int64_t pairs_ = 0;
  std::vector<int32_t> block_;  // counts, then the two halves of the digest
};

}  // namespace sluice
