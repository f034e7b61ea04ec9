// The ranks of one layer, ready to be run again and again: threads of this process, or processes that share
// memory. Several groups can wait while one of them runs.
//
// Resource types, one owner. One thread uses them.
#pragma once

#include <memory>
#include <vector>

#include "tools/bench/bench_rank.h"

namespace sluice::tools {

class RankGroup {
 public:
  virtual ~RankGroup() = default;
  // One repetition at all ranks, by entry. Errors: of the rank that failed first; no repetition follows it.
  virtual Expected<std::vector<EntrySample>> repeat() = 0;
};

// Ranks as threads of this process.
Expected<std::unique_ptr<RankGroup>> startThreads(const RanksSpec& spec);

// Ranks as processes, forked from this one, which must not have other threads yet. They end with the group,
// and where this process ends without it.
Expected<std::unique_ptr<RankGroup>> startProcesses(const RanksSpec& spec);

}  // namespace sluice::tools
