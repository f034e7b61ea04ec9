// Partitions: ranks of one process whose steps are one launch of the kernel on one GPU.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/gpu/gpu_backend.h"

namespace sluice {

// Runs the steps of all ranks; the outcomes are by rank.
using LaunchAll =
    std::function<Expected<std::vector<StepOutcome>>(std::span<const StepTables* const> tables)>;

// Shared by the backends of all ranks, each of which is used by a thread of its own.
class Partitions {
 public:
  explicit Partitions(int ranks) : tables_(static_cast<size_t>(ranks)) {}

  int ranks() const { return static_cast<int>(tables_.size()); }

  // Waits until all ranks are here. The last one launches. Errors: of the launch; the transport was aborted
  // before it.
  Expected<StepOutcome> run(const StepTables& tables, Transport& transport, const LaunchAll& launch);

 private:
  static constexpr std::chrono::milliseconds kBetweenLooks{10};  // at the transport

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::vector<const StepTables*> tables_;  // by rank
  size_t here_ = 0;
  uint64_t launches_ = 0;
  Expected<std::vector<StepOutcome>> outcomes_ = std::vector<StepOutcome>();  // of the last launch
};

inline Expected<StepOutcome> Partitions::run(const StepTables& tables, Transport& transport,
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
