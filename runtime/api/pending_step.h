// PendingStep: a step that was submitted and may not have ended.
#pragma once

#include <memory>

#include "runtime/base/expected.h"

namespace sluice {

// Moved, not copied; destroying it waits. Thread-safe, but for moves. It may outlive its context, which waits
// for all its steps when it ends.
class PendingStep {
 public:
  ~PendingStep();
  PendingStep(PendingStep&&) noexcept;
  PendingStep& operator=(PendingStep&&) noexcept;

  bool isDone() const;
  // What run() would have returned. May be called again.
  Status wait();
  // A step that has not begun never does: it is done at once, and fails at all other ranks, which can go on.
  // One that runs is aborted at all ranks, and with it the transport. One that is done stays as it is.
  void cancel();

 private:
  friend class Context;
  class Impl;
  explicit PendingStep(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace sluice
