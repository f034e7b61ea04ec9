// PendingStep: a step that was submitted and may not have ended.
#pragma once

#include <memory>

#include "runtime/base/expected.h"

namespace sluice {

// Moved, not copied; its destructor waits. Thread-safe, except for moves. It may outlive its context, which
// waits for all its steps when it ends.
class PendingStep {
 public:
  ~PendingStep();
  PendingStep(PendingStep&&) noexcept;
  PendingStep& operator=(PendingStep&&) noexcept;

  bool isDone() const;
  // Waits, and returns what run() would have returned. May be called again.
  Status wait();
  // A step that has not begun never begins: it is done at once, and fails at all other ranks, which can go
  // on. A running step is aborted at all ranks, and with it the transport. A step that is done does not
  // change.
  void cancel();

 private:
  friend class Context;
  class Impl;
  explicit PendingStep(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace sluice
