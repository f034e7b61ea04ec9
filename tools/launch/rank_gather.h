// RankGather: text and bytes of any length from every rank to every rank, and what all of them agree on.
//
// Between steps: figures of a run, errors, the common end. Collective, by one thread of each rank.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/comm/all_gather.h"

namespace sluice::tools {

// Why some rank cannot go on. Known to all ranks.
struct RankFailure {
  int rank = 0;         // the first one that cannot
  std::string message;  // begins with that rank where others can, or say otherwise
};

class RankGather {
 public:
  // Collective. `timeoutSeconds`: the longest wait for a rank to come to a gather.
  static Expected<RankGather> create(Transport& transport, double timeoutSeconds);

  // By rank; at ranks other than `only`, if one is given, all are empty. Errors: those of AllGather.
  Expected<std::vector<std::string>> gather(std::string_view own, const Awaited& awaited, int only = -1);

  // Nothing where all ranks are well. Errors: those of AllGather.
  Expected<std::optional<RankFailure>> agree(const Status& own, const Awaited& awaited);

  int rank() const { return rank_; }

 private:
  int rank_ = 0, size_ = 1;
  double timeoutSeconds_ = 0;
  AllGather blocks_;
  std::string block_;
};

}  // namespace sluice::tools
