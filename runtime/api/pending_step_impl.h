// The state of a submitted step: for pending_step.cc and context.cc.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>

#include "runtime/api/context.h"
#include "runtime/api/workspace_impl.h"

namespace sluice {

// Shared by the caller's PendingStep and the workspace's queue. The transport must live until finish().
class PendingStep::Impl {
 public:
  Impl(Transport& transport, std::string entry) : transport_(&transport), entry_(std::move(entry)) {}

  // Called by the queue in the step's turn. Returns false if the step was cancelled, and so is done.
  bool begin();
  void finish(Status status);
  std::string cancelled() const;
  const std::string& entry() const { return entry_; }

  bool isDone() const;
  Status wait();
  void cancel();

  const Origin origin;

 private:
  enum class State : uint8_t { kQueued, kRunning, kDone };

  Transport* transport_;
  const std::string entry_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  State state_ = State::kQueued;
  bool cancelled_ = false;
  Status status_;
};

}  // namespace sluice
