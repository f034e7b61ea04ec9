#include <functional>

#include "runtime/base/threads.h"
#include "tools/bench/rank_group.h"

namespace sluice::tools {
namespace {

class ThreadGroup final : public RankGroup {
 public:
  explicit ThreadGroup(const RanksSpec& spec)
      : local_(spec.program.ranks()), ranks_(static_cast<size_t>(spec.program.ranks())) {}

  // Ranks may leave together only.
  ~ThreadGroup() override {
    const auto leave = [&](size_t rank) -> Status {
      ranks_[rank].reset();
      return {};
    };
    static_cast<void>(onRanks(leave));
  }

  Status start(const RanksSpec& spec) {
    return onRanks([&](size_t rank) -> Status {
      auto made = BenchRank::create(spec, local_.transport(static_cast<int>(rank)));
      if (!made) return made.error();
      ranks_[rank] = std::move(*made);
      return {};
    });
  }

  Expected<std::vector<EntrySample>> repeat() override {
    std::vector<EntrySample> samples;
    const Status done = onRanks([&](size_t rank) -> Status {
      auto result = ranks_[rank]->repeat();
      if (!result) return result.error();
      if (rank == 0) samples = std::move(*result);
      return {};
    });
    if (!done) return done.error();
    return samples;
  }

 private:
  // A rank that fails must not be waited for by the others.
  Status onRanks(const std::function<Status(size_t)>& work) {
    std::vector<Status> results(ranks_.size());
    const Status started = runTogether(local_.transport(0).size(), "the ranks", [&](int number) {
      const auto rank = static_cast<size_t>(number);
      results[rank] = work(rank);
      if (!results[rank]) local_.transport(number).abort(results[rank].error().message);
    });
    if (!started) return started;
    for (Status& result : results)
      if (!result) return result;
    return {};
  }

  LocalRanks local_;
  std::vector<std::unique_ptr<BenchRank>> ranks_;
};

}  // namespace

Expected<std::unique_ptr<RankGroup>> startThreads(const RanksSpec& spec) {
  auto group = std::make_unique<ThreadGroup>(spec);
  if (Status started = group->start(spec); !started) return started.error();
  return std::unique_ptr<RankGroup>(std::move(group));
}

}  // namespace sluice::tools
