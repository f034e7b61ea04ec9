#include "runtime/gpu/partitions.h"

#include <chrono>

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{10};  // at the transport

}  // namespace

Expected<StepOutcome> Partitions::run(const StepTables& tables, Transport& transport,
                                      const LaunchAll& launch) {
  std::unique_lock lock(mutex_);
  const auto rank = static_cast<size_t>(tables.rank);
  const uint64_t before = launches_;
  tables_[rank] = &tables;
  if (++here_ == tables_.size()) {
    outcomes_ = launch(tables_);
    here_ = 0;
    ++launches_;
    changed_.notify_all();
  }
  while (launches_ == before) {
    changed_.wait_for(lock, kBetweenLooks);
    if (launches_ != before || !transport.isAborted()) continue;
    --here_;
    return Error{transport.abortMessage()};
  }
  if (!outcomes_) return outcomes_.error();
  return (*outcomes_)[rank];
}

}  // namespace sluice
