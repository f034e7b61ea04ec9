// PendingStep: a step that was submitted and may not have ended.
#pragma once

#include <memory>

#include "runtime/base/expected.h"

namespace sluice {

// Moved, not copied; its destructor waits. Thread-safe, except for moves. It may outlive its context, whose
// destructor waits for all its steps.
class PendingStep {
 public:
  ~PendingStep();
  PendingStep(PendingStep&&) noexcept;
  PendingStep& operator=(PendingStep&&) noexcept;

  bool isDone() const;
  // Waits, and returns what run() would have returned. May be called again.
  Status wait();
  // A step that has not begun never begins: it is done at once and fails at all other ranks, which stay
  // usable. A running step is aborted at all ranks, and so is the transport. A finished step does not change.
  void cancel();

 private:
  friend class Context;
  class Impl;
  explicit PendingStep(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace sluice
