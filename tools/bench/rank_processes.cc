#include <fmt/format.h>
#include <unistd.h>

#include <cstring>

#include "runtime/api/make_transport.h"
#include "tools/bench/forked_ranks.h"
#include "tools/bench/rank_group.h"

namespace sluice::tools {
namespace {

// A rank's process: says that it is ready, then one repetition for each request.
Status serve(const RanksSpec& spec, const TransportSpec& job, RankSocket& socket) {
  auto transport = makeTransport(job);
  if (!transport) return transport.error();
  auto rank = BenchRank::create(spec, **transport);
  if (!rank) {
    (*transport)->abort(rank.error().message);  // the others must not wait for a rank that is gone
    return rank.error();
  }
  bool listens = socket.answer({});
  while (listens && socket.next()) {
    const auto samples = (*rank)->repeat();
    if (!samples) return samples.error();
    listens = socket.answer(
        {reinterpret_cast<const char*>(samples->data()), samples->size() * sizeof(EntrySample)});
  }
  return {};
}

class ProcessGroup final : public RankGroup {
 public:
  Status start(const RanksSpec& spec) {
    static int groups = 0;  // of this process
    TransportSpec job{.kind = "shm"};
    job.job = fmt::format("sluice-bench-{}-{}", getpid(), ++groups);
    job.size = spec.program.ranks();
    job.timeoutSeconds = 120;
    entries_ = spec.entries.size();
    const Status started = ranks_.start(job.size, [&](int rank, RankSocket& socket) {
      job.rank = rank;
      return serve(spec, job, socket);
    });
    if (!started) return started;
    const auto ready = ranks_.answers();
    return ready ? Status{} : Status{ready.error()};
  }

  Expected<std::vector<EntrySample>> repeat() override {
    ranks_.ask();
    const auto bytes = ranks_.answers();
    if (!bytes) return bytes.error();
    std::vector<EntrySample> samples(entries_);
    if (bytes->size() != entries_ * sizeof(EntrySample))
      return Error{fmt::format("rank 0 answered with {} bytes, expected {}", bytes->size(),
                               entries_ * sizeof(EntrySample))};
    std::memcpy(samples.data(), bytes->data(), bytes->size());
    return samples;
  }

 private:
  size_t entries_ = 0;
  ForkedRanks ranks_;
};

}  // namespace

Expected<std::unique_ptr<RankGroup>> startProcesses(const RanksSpec& spec) {
  auto group = std::make_unique<ProcessGroup>();
  if (Status started = group->start(spec); !started) return started.error();
  return std::unique_ptr<RankGroup>(std::move(group));
}

}  // namespace sluice::tools
