// GpuExecutor: runs a step as one launch of the persistent kernel of ops/gpu, on a GpuBackend.
//
// The host makes the tables of a step anew each time, and copies what the kernel cannot access (staging.h).
// Waits are bounded: one beyond the limit ends the launch, and aborts the step on all ranks with a report
// (runtime/exec/report.h).
#pragma once

#include <memory>
#include <string>

#include "runtime/exec/device.h"
#include "runtime/exec/lane_cursor.h"
#include "runtime/gpu/gpu_backend.h"
#include "runtime/gpu/staging.h"

namespace sluice {

class GpuExecutor final : public Executor {
 public:
  GpuExecutor(std::shared_ptr<const Plan> plan, GpuBackend& backend)
      : plan_(std::move(plan)), backend_(backend), staging_(backend), progress_(plan_->program()) {}

  int workers() const override { return backend_.blocks(); }
  size_t scratchBytes() const override { return 0; }
  Status prepare(std::span<const BoundTensor> bound, Team* /*callers*/) override {
    staging_.bind(bound);
    return {};
  }
  // Errors: as Executor::run(); a trace is requested, which a GPU does not have.
  Expected<int64_t> run(const Step& step, const RunOptions& options) override;

 private:
  Expected<int64_t> runStaged(const Step& step, const Step& staged, double timeoutSeconds);
  // Says why a step failed. Its events must be in memory of the host.
  std::string failure(const Step& step, StepTables& tables, const StepOutcome& outcome, double seconds);

  const std::shared_ptr<const Plan> plan_;
  GpuBackend& backend_;
  Staging staging_;
  LaneProgress progress_;
};

}  // namespace sluice
