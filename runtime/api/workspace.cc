#include "runtime/api/workspace.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/api/workspace_impl.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/cpu_device.h"

namespace sluice {
Status checkThreads(int threads) {
  if (threads >= 0 && threads <= kMaxThreads) return {};
  return Error{fmt::format("found {} threads, expected 1 to {} (or 0 for this machine's share)", threads,
                           kMaxThreads)};
}

uint64_t Turns::take() {
  std::lock_guard lock(mutex_);
  return next_++;
}

void Turns::await(uint64_t ticket) {
  std::unique_lock lock(mutex_);
  if (now_ == ticket) return;
  ++waiting_;
  passed_.wait(lock, [&] { return now_ == ticket; });
  --waiting_;
}

void Turns::pass() {
  std::lock_guard lock(mutex_);
  ++now_;
  if (waiting_ > 0) passed_.notify_all();
}

Workspace::Impl::Impl(Transport& of, std::unique_ptr<Device> started, Team* lent)
    : memory(std::make_shared<const WorkMemory>()),
      transport(of),
      device(std::move(started)),
      callers(lent) {}

Expected<std::unique_ptr<Workspace::Impl>> Workspace::Impl::make(Transport& transport,
                                                                 const WorkspaceOptions& options) {
  auto device = options.device ? options.device(transport)
                               : CpuDevice::start(transport, {options.threads, options.pin});
  if (!device) return device.error();
  return std::make_unique<Impl>(transport, std::move(*device), options.callers);
}

Expected<std::unique_ptr<Workspace::Impl>> Workspace::Impl::makeFor(const Plan& plan, const LoadOptions& load,
                                                                    Transport& transport,
                                                                    const WorkspaceOptions& options) {
  auto device = options.device ? options.device(transport)
                               : CpuDevice::startFor(plan, load, transport, {options.threads, options.pin});
  if (!device) return device.error();
  return std::make_unique<Impl>(transport, std::move(*device), options.callers);
}

Workspace::Impl::~Impl() {
  {
    std::lock_guard lock(queueMutex_);
    stop_ = true;
  }
  queued_.notify_all();
  if (runner_.joinable()) runner_.join();
}

Status Workspace::Impl::ensureMemory() {
  if (memory->holds(needs)) return {};
  auto grown = memory->grow(needs, *device);
  if (!grown) return grown.error();
  memory = std::move(*grown);
  return {};
}

Error Workspace::Impl::giveUp(const Error& error) const {
  transport.abort(fmt::format("rank {}: {}", transport.rank(), error.message));
  return error;
}

Status Workspace::Impl::ensureMeeting() {
  if (meeting) return {};
  auto made = Meeting::create(transport);
  if (!made) return made.error();
  meeting = std::make_unique<Meeting>(std::move(*made));
  return {};
}

Status Workspace::Impl::refuse(uint64_t ticket, std::string_view entry, const std::string& why,
                               double timeoutSeconds) {
  if (transport.isAborted()) return Error{transport.abortMessage()};
  StepOffer offer;
  offer.step = ticketStep(ticket);
  offer.name = entry;
  offer.failure = why.empty() ? "the step is refused" : why;
  static_cast<void>(meeting->hold(offer, timeoutSeconds));
  return transport.isAborted() ? Status(Error{transport.abortMessage()}) : Status();
}

Status Workspace::Impl::meetInTurn(const std::function<Status(uint64_t ticket)>& meet) {
  if (Status ours = origin.check("the workspace"); !ours) return ours;
  if (transport.size() == 1) return {};
  std::unique_lock lock(asking);
  if (Status there = ensureMeeting(); !there) return giveUp(there.error());
  const uint64_t ticket = turns.take();
  lock.unlock();
  turns.await(ticket);
  Status met = meet(ticket);
  turns.pass();
  return met;
}

Status Workspace::Impl::startRunner() {
  std::lock_guard lock(queueMutex_);
  if (runner_.joinable()) return {};
  auto thread = startThread("steps", [this] { runQueue(); });
  if (!thread) return Error{fmt::format("no thread for submitted steps: {}", thread.error().message)};
  runner_ = std::move(*thread);
  return {};
}

Workspace::Impl::OneJob Workspace::Impl::makeJob(std::function<void(uint64_t ticket)> run) {
  OneJob job;
  job.push_back({std::move(run)});
  return job;
}

void Workspace::Impl::queue(uint64_t ticket, OneJob job) noexcept {
  job.front().ticket = ticket;
  {
    std::lock_guard lock(queueMutex_);
    queue_.splice(queue_.end(), job);
  }
  queued_.notify_one();
}

void Workspace::Impl::runQueue() {
  std::unique_lock lock(queueMutex_);
  while (true) {
    queued_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Job job = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    turns.await(job.ticket);
    job.run(job.ticket);
    lock.lock();
  }
}

void Workspace::Impl::beginStep(const void* context, std::shared_ptr<const WorkMemory> uses) {
  last.store(context, std::memory_order_relaxed);
  if (used != uses) used = std::move(uses);
}

void Workspace::Impl::finishStep() {
  const auto scratch = static_cast<int64_t>(used->scratch.bytes);
  // the memory that was replaced may have been larger
  bytes.store(std::max(bytes.load(std::memory_order_relaxed), touched.bytes() + scratch),
              std::memory_order_relaxed);
}

Workspace::Workspace(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Workspace::~Workspace() {
  // a forked child has no threads to join
  if (impl_->origin.isForked()) static_cast<void>(impl_.release());
}

int Workspace::threads() const { return impl_->device->workers(); }
int64_t Workspace::bytes() const { return impl_->bytes.load(std::memory_order_relaxed); }

Status Workspace::refuse(const std::string& why, double timeoutSeconds) {
  return impl_->meetInTurn([&](uint64_t ticket) { return impl_->refuse(ticket, "", why, timeoutSeconds); });
}

Status Workspace::agree(std::string_view what, uint64_t digest, double timeoutSeconds,
                        std::string_view arguments) {
  return impl_->meetInTurn([&](uint64_t ticket) {
    StepOffer offer;
    offer.kind = StepOffer::Kind::kAgree;
    offer.step = Impl::ticketStep(ticket);
    offer.name = what;
    offer.routing = digest;
    offer.arguments = arguments;
    return impl_->meeting->hold(offer, timeoutSeconds);
  });
}

Expected<int64_t> Workspace::largest(std::string_view what, int64_t number, double timeoutSeconds) {
  Status all = impl_->meetInTurn([&](uint64_t ticket) {
    StepOffer offer;
    offer.kind = StepOffer::Kind::kAgree;
    offer.step = Impl::ticketStep(ticket);
    offer.name = what;
    offer.tokens = number;
    Status held = impl_->meeting->hold(offer, timeoutSeconds);
    for (int rank = 0; held && rank < impl_->transport.size(); ++rank)
      number = std::max(number, impl_->meeting->rankTokens(rank));
    return held;
  });
  if (!all) return all.error();
  return number;
}

Status Workspace::reserve() {
  if (Status ours = impl_->origin.check("the workspace"); !ours) return ours;
  const std::lock_guard lock(impl_->asking);
  if (Status there = impl_->ensureMemory(); !there) return impl_->giveUp(there.error());
  return {};
}

Expected<std::shared_ptr<Workspace>> Workspace::create(Transport& transport,
                                                       const WorkspaceOptions& options) {
  if (Status sane = checkThreads(options.threads); !sane) return sane.error();
  if (transport.isInherited())
    return Error{"the transport was made before this process was forked: make a new one here"};
  auto impl = Impl::make(transport, options);
  if (!impl) return impl.error();
  return std::shared_ptr<Workspace>(new Workspace(std::move(*impl)));
}

}  // namespace sluice
