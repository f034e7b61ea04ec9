#include "runtime/comm/network/courier.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/threads.h"

namespace sluice::network {
namespace {

// Where workers use all cores, a thread that wakes must wait until a worker has used up its time slice, which
// is longer than a flight. The scheduler runs a thread with shorter slices earlier without giving it more of
// the core (from Linux 6.12 on; older kernels ignore the request).
constexpr uint64_t kSlice = 100'000;  // ns

// From sched_setattr(2); the C library does not declare it yet.
struct SchedulerAttributes {
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime, deadline, period;  // ns; an ordinary thread's slice is its runtime
  uint32_t leastUse, maxUse;
};

void askForShortSlices() {
  SchedulerAttributes attributes{};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;
  attributes.runtime = kSlice;
  // best effort: if the system refuses, the thread runs as before
  static_cast<void>(syscall(SYS_sched_setattr, 0, &attributes, 0));
}

// " 0 2": the other ranks to which this applies.
template <class Applies>
std::string otherRanks(const Place& place, const Applies& applies) {
  std::string ranks;
  for (int peer = 0; peer < place.size; ++peer)
    if (peer != place.rank && applies(peer)) ranks += fmt::format(" {}", peer);
  return ranks;
}

}  // namespace

Courier::Courier(std::unique_ptr<Engine> engine, const Place& place, Receiver& receiver)
    : engine_(std::move(engine)),
      place_(place),
      receiver_(receiver),
      outbox_(place.size),
      unfinished_(otherRanks(place, [](int) { return true; })) {}

Expected<std::unique_ptr<Courier>> Courier::start(std::unique_ptr<Engine> engine, const Place& place,
                                                  Receiver& receiver) {
  std::unique_ptr<Courier> courier(new Courier(std::move(engine), place, receiver));
  auto thread = startThread(courier->engine_->kind(), [raw = courier.get()] { raw->run(); });
  if (!thread) {
    const Error error{fmt::format("rank {}: cannot start the thread that calls {}: {}", place.rank,
                                  courier->engine_->kind(), thread.error().message)};
    // the couriers of the other ranks run, and may wait for this one in calls without a time limit
    courier->engine_->giveUp(error.message);
    return error;
  }
  courier->thread_ = std::move(*thread);
  return courier;
}

Courier::~Courier() {
  if (thread_.joinable()) thread_.join();
}

bool Courier::put(int rank, uint32_t handle, size_t offset, const void* data, size_t bytes, double seconds) {
  const bool taken = outbox_.put(rank, handle, offset, data, bytes, seconds);
  engine_->wake();
  return taken;
}

void Courier::post(int rank, const Message& message) {
  outbox_.post(rank, message);
  engine_->wake();
}

Status Courier::attach(std::byte* base, size_t bytes, double seconds) {
  std::unique_lock lock(mutex_);
  const auto end = [this] { return Error{failure_ ? "the transport has ended" : failure_.error().message}; };
  if (ended_) return end();
  request_ = [this, base, bytes] { return engine_->attach(base, bytes); };
  answer_.reset();
  engine_->wake();
  if (!changed_.wait_for(lock, std::chrono::nanoseconds(limitNanoseconds(seconds)),
                         [&] { return answer_ || ended_; }))
    return Error{fmt::format("waited {:g} s until other ranks can reach new memory; another rank is stopped",
                             seconds)};
  return answer_ ? *answer_ : end();
}

CommStats Courier::stats() {
  std::lock_guard lock(mutex_);
  return stats_;
}

void Courier::run() {
  askForShortSlices();
  prctl(PR_SET_TIMERSLACK, 1000);  // ns; the default would double the shortest sleep
  lastMoved_ = monotonicNanoseconds();
  while (true) {
    const uint32_t epoch = engine_->epoch();
    const Expected<bool> moved = turn();
    if (!moved) return end(moved.error());
    if (!*moved && isDone()) break;
    rest(*moved, epoch);
  }
  for (int peer = 0; peer < place_.size; ++peer) {
    if (peer == place_.rank) continue;
    {
      std::lock_guard lock(mutex_);
      if (givenUp_) break;
      unfinished_ = fmt::format(" {}", peer);  // it may be stopped, and the engine wait for it
    }
    if (Status finished = engine_->finish(peer); !finished) return end(finished);
  }
  end({});
}

Expected<bool> Courier::turn() {
  bool moved = false, leaving = false;
  std::function<Status()> request;
  {
    std::lock_guard lock(mutex_);
    leaving = finishing_ && !saidLeft_;
    request.swap(request_);
  }
  if (request) {
    const Status answer = request();  // without the lock, so that finish() keeps its time limit
    std::lock_guard lock(mutex_);
    answer_ = answer;
    changed_.notify_all();
    moved = true;
  }
  if (!spread_) spreadAbort();
  // after the abort that made this rank leave: a rank that waits for this one must read the abort first, not
  // the notice that it left
  if (leaving) sayLeft();
  const Expected<bool> turned = engine_->turn(outbox_, receiver_);
  return turned ? Expected<bool>(moved || *turned) : turned;
}

void Courier::sayLeft() {
  saidLeft_ = true;
  for (int peer = 0; peer < place_.size; ++peer)
    if (peer != place_.rank) outbox_.post(peer, {MessageKind::kLeft, 0, 0, 0});
}

void Courier::spreadAbort() {
  const std::optional<Abort> abort = receiver_.aborted();
  if (!abort) return;
  spread_ = true;
  outbox_.abandon();
  engine_->abort(*abort);
}

void Courier::rest(bool moved, uint32_t epoch) {
  const int64_t now = monotonicNanoseconds();
  if (!moved) return engine_->rest(epoch, now - lastMoved_);
  lastMoved_ = now;
  const CommStats stats = engine_->stats();
  std::lock_guard lock(mutex_);
  stats_ = stats;
}

bool Courier::isDone() {
  {
    std::lock_guard lock(mutex_);
    if (givenUp_) return true;
    if (!finishing_ || !saidLeft_) return false;
  }
  std::string unfinished = otherRanks(place_, [&](int peer) { return !engine_->isDone(peer, outbox_); });
  if (unfinished.empty()) return true;
  std::lock_guard lock(mutex_);
  unfinished_ = std::move(unfinished);
  return false;
}

void Courier::end(const Status& result) {
  if (!result) {
    outbox_.abandon();
    receiver_.takeAbort({fmt::format("rank {}: {}", place_.rank, result.error().message), -1});
  }
  std::lock_guard lock(mutex_);
  failure_ = result;
  ended_ = true;
  changed_.notify_all();
}

void Courier::finish(double seconds) {
  std::unique_lock lock(mutex_);
  finishing_ = true;
  engine_->wake();
  Status failure;
  if (changed_.wait_for(lock, std::chrono::nanoseconds(limitNanoseconds(seconds)), [&] { return ended_; }))
    failure = failure_;
  else
    failure =
        Error{fmt::format("waited {:g} s for other ranks to end; still there: rank{}", seconds, unfinished_)};
  if (failure) return;
  givenUp_ = true;
  lock.unlock();
  engine_->giveUp(fmt::format("rank {}: {}", place_.rank, failure.error().message));
  engine_->wake();
}

}  // namespace sluice::network
