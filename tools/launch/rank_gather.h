// RankGather: sends text and bytes of any length from every rank to every rank, and makes all ranks agree on
// errors.
//
// For use between steps: figures of a run, errors, the common end. Collective, by one thread of each rank.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/comm/all_gather.h"

namespace sluice::tools {

// Why some rank cannot continue. All ranks get it.
struct RankFailure {
  int rank = 0;         // the first rank that cannot continue
  std::string message;  // begins with that rank if the others can continue, or have other errors
};

class RankGather {
 public:
  // Collective. `timeoutSeconds`: the time limit for a rank to join a gather.
  static Expected<RankGather> create(Transport& transport, double timeoutSeconds);

  // By rank; if `only` is given, empty at all other ranks. Errors: from AllGather.
  Expected<std::vector<std::string>> gather(std::string_view own, const Awaited& awaited, int only = -1);

  // Returns no failure if all ranks are well. Errors: from AllGather.
  Expected<std::optional<RankFailure>> agree(const Status& own, const Awaited& awaited);

  int rank() const { return rank_; }

 private:
  int rank_ = 0, size_ = 1;
  double timeoutSeconds_ = 0;
  AllGather blocks_;
  std::string block_;
};

}  // namespace sluice::tools
