#include <fmt/format.h>

#include "runtime/api/context.h"
#include "runtime/api/pending_step_impl.h"

namespace sluice {

bool PendingStep::Impl::begin() {
  std::lock_guard lock(mutex_);
  if (state_ == State::kDone) return false;
  state_ = State::kRunning;
  return true;
}

void PendingStep::Impl::finish(Status status) {
  std::lock_guard lock(mutex_);
  // the abort may have come after the last task: other ranks failed, so this one fails too
  status_ = cancelled_ && status ? Status(Error{transport_->abortMessage()}) : std::move(status);
  state_ = State::kDone;
  changed_.notify_all();
}

std::string PendingStep::Impl::cancelled() const {
  return fmt::format("the step of entry '{}' was cancelled", entry_);
}

bool PendingStep::Impl::isDone() const {
  std::lock_guard lock(mutex_);
  return state_ == State::kDone;
}

Status PendingStep::Impl::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return state_ == State::kDone; });
  return status_;
}

void PendingStep::Impl::cancel() {
  std::lock_guard lock(mutex_);
  if (state_ == State::kDone || cancelled_) return;
  cancelled_ = true;
  // until this function returns, a running step cannot end, and neither can its context and transport
  if (state_ == State::kRunning) {
    transport_->abort(fmt::format("rank {}: {}", transport_->rank(), cancelled()));
    return;
  }
  status_ = Error{cancelled()};
  state_ = State::kDone;
  changed_.notify_all();
}

PendingStep::PendingStep(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
PendingStep::PendingStep(PendingStep&&) noexcept = default;

PendingStep::~PendingStep() {
  if (impl_ && !impl_->origin.isForked()) static_cast<void>(impl_->wait());
}

PendingStep& PendingStep::operator=(PendingStep&& other) noexcept {
  if (this == &other) return *this;
  if (impl_ && !impl_->origin.isForked()) static_cast<void>(impl_->wait());
  impl_ = std::move(other.impl_);
  return *this;
}

bool PendingStep::isDone() const { return !impl_ || impl_->origin.isForked() || impl_->isDone(); }

Status PendingStep::wait() {
  if (!impl_) return Error{"this step was moved to another place"};
  if (Status ours = impl_->origin.check("the step"); !ours) return ours;
  return impl_->wait();
}

void PendingStep::cancel() {
  if (impl_ && !impl_->origin.isForked()) impl_->cancel();
}

}  // namespace sluice
