#include "runtime/comm/mpi/courier.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/threads.h"

namespace sluice::mpi {
namespace {

// Pairs of nanoseconds: until this time without work, the courier sleeps this long at a time. It notices
// arrivals up to one sleep late; a new request ends a sleep at once.
constexpr int64_t kAwake = 20'000;
constexpr int64_t kFlyingSleep = 150'000;
constexpr std::pair<int64_t, int64_t> kSleeps[] = {
    {500'000, 50'000}, {20'000'000, kFlyingSleep}, {1'000'000'000, 300'000}, {INT64_MAX, 1'000'000}};

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
  uint32_t leastUse, mostUse;
};

void askForShortSlices() {
  SchedulerAttributes attributes{};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;
  attributes.runtime = kSlice;
  // best effort: if the system refuses, the thread runs as before
  static_cast<void>(syscall(SYS_sched_setattr, 0, &attributes, 0));
}

}  // namespace

Courier::Courier(const Session& session, Receiver& receiver, const BatchLimits& limits)
    : session_(session),
      receiver_(receiver),
      limits_(limits),
      control_(session.size()),
      outbox_(session.size()),
      left_(static_cast<size_t>(session.size())) {}

Expected<std::unique_ptr<Courier>> Courier::start(const Session& session, Receiver& receiver,
                                                  const BatchLimits& limits) {
  std::unique_ptr<Courier> courier(new Courier(session, receiver, limits));
  if (Status opened = courier->open(); !opened) return opened.error();
  auto thread = startThread([raw = courier.get()] { raw->run(); });
  // the couriers of the other ranks run, and would wait for this one in calls without a time limit
  if (!thread)
    session.end(fmt::format("rank {}: cannot start the thread that calls MPI: {}", session.rank(),
                            thread.error().message));
  courier->thread_ = std::move(*thread);
  return courier;
}

Courier::~Courier() {
  if (thread_.joinable()) thread_.join();
}

Status Courier::open() {
  auto memory = RemoteMemory::create(session_.comm());
  if (!memory) return memory.error();
  memory_ = std::move(*memory);
  if (Status attached = memory_->attach(control_.data(), control_.size()); !attached) return attached;
  const auto own = reinterpret_cast<uint64_t>(control_.data());
  std::vector<uint64_t> all(static_cast<size_t>(session_.size()));
  // also the barrier after which all control memory is accessible
  if (Status ok = checked(MPI_Allgather(&own, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, session_.comm()),
                          "addresses");
      !ok)
    return ok;
  const int rank = session_.rank();
  for (int i = 1; i < session_.size(); ++i) {
    const int peer = (rank + i) % session_.size();
    links_.emplace_back(peer, all[static_cast<size_t>(peer)] + ControlMemory::sectionOffset(rank),
                        control_.section(peer), limits_);
  }
  return {};
}

bool Courier::put(int rank, uint32_t handle, size_t offset, const void* data, size_t bytes, double seconds) {
  const bool taken = outbox_.put(rank, handle, offset, data, bytes, seconds);
  bell_.ring();
  return taken;
}

void Courier::post(int rank, const Message& message) {
  outbox_.post(rank, message);
  bell_.ring();
}

Status Courier::attach(std::byte* base, size_t bytes, double seconds) {
  std::unique_lock lock(mutex_);
  const auto end = [this] { return Error{failure_ ? "the transport has ended" : failure_.error().message}; };
  if (ended_) return end();
  request_ = [this, base, bytes] { return memory_->attach(base, bytes); };
  answer_.reset();
  bell_.ring();
  if (!changed_.wait_for(lock, std::chrono::nanoseconds(limitNanoseconds(seconds)),
                         [&] { return answer_ || ended_; }))
    return Error{fmt::format("waited {:g} s for MPI_Win_attach; another rank is stopped", seconds)};
  return answer_ ? *answer_ : end();
}

CommStats Courier::stats() {
  std::lock_guard lock(mutex_);
  return stats_;
}

void Courier::run() {
  pthread_setname_np(pthread_self(), "sluice-mpi");
  askForShortSlices();
  prctl(PR_SET_TIMERSLACK, 1000);  // ns; the default would double the shortest sleep
  const Attention attention(bell_);
  lastMoved_ = monotonicNanoseconds();
  while (true) {
    const uint32_t epoch = bell_.epoch();
    const Expected<bool> moved = turn();
    if (!moved) return fail(moved.error().message);
    if (!*moved && isDone()) break;
    rest(*moved, epoch);
  }
  for (Link& link : links_) {
    {
      std::lock_guard lock(mutex_);
      unfinished_ = fmt::format(" {}", link.peer());  // it may be stopped, and MPI wait for it
    }
    if (Status flushed = link.flush(*memory_); !flushed) return fail(flushed.error().message);
  }
  std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
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
  int ignored = 0;  // nothing is ever sent with this tag: the call lets MPI make progress
  if (Status ok = checked(
          MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, session_.comm(), &ignored, MPI_STATUS_IGNORE), "progress");
      !ok)
    return ok.error();
  if (!spread_) spreadAbort();
  // after the abort that made this rank leave: a rank that waits for this one must read the abort first, not
  // the notice that it left
  if (leaving) sayLeft();
  for (Link& link : links_) {
    const bool received = receive(link);
    const Expected<bool> advanced = link.advance(*memory_, outbox_);
    if (!advanced) return advanced;
    moved = moved || received || *advanced;
  }
  return moved;
}

bool Courier::receive(Link& link) {
  bool moved = false;
  while (const std::optional<Message> message = link.receive()) {
    moved = true;
    if (message->kind == MessageKind::kAborted) {
      receiver_.takeAbort({link.abortText(message->value), static_cast<int>(message->offset) - 1});
      continue;
    }
    if (message->kind == MessageKind::kAddress) link.setAddress(message->handle, message->value);
    if (message->kind == MessageKind::kLeft) {
      left_[static_cast<size_t>(link.peer())] = true;
    }
    receiver_.take(link.peer(), *message);
  }
  return moved;
}

void Courier::sayLeft() {
  saidLeft_ = true;
  for (const Link& link : links_) outbox_.post(link.peer(), {MessageKind::kLeft, 0, 0, 0});
}

void Courier::spreadAbort() {
  const std::optional<Abort> abort = receiver_.aborted();
  if (!abort) return;
  spread_ = true;
  outbox_.abandon();
  for (Link& link : links_) link.abort(*abort);
}

void Courier::rest(bool moved, uint32_t epoch) {
  const int64_t now = monotonicNanoseconds();
  if (moved) {
    lastMoved_ = now;
    CommStats sum;
    for (const Link& link : links_) {
      sum.puts += link.stats().puts;
      sum.putBytes += link.stats().putBytes;
      sum.signals += link.stats().signals;
      sum.flushes += link.stats().flushes;
      sum.messages += link.stats().messages;
    }
    std::lock_guard lock(mutex_);
    stats_ = sum;
    return;
  }
  const int64_t still = now - lastMoved_;
  if (still < kAwake) return;
  const bool flying = std::ranges::any_of(links_, [](const Link& link) { return link.isFlying(); });
  for (const auto& [until, sleep] : kSleeps) {
    if (still >= until) continue;
    bell_.park(epoch, flying ? std::min(sleep, kFlyingSleep) : sleep);
    return;
  }
}

// Every other rank has left, and received all that this one sent to it.
bool Courier::isDone() {
  {
    std::lock_guard lock(mutex_);
    if (!finishing_ || !saidLeft_) return false;
  }
  std::string unfinished;
  for (const Link& link : links_)
    if (!left_[static_cast<size_t>(link.peer())] || !link.isIdle(outbox_))
      unfinished += fmt::format(" {}", link.peer());
  std::lock_guard lock(mutex_);
  unfinished_ = std::move(unfinished);
  return unfinished_.empty();
}

void Courier::fail(const std::string& message) {
  outbox_.abandon();
  receiver_.takeAbort({fmt::format("rank {}: {}", session_.rank(), message), -1});
  std::lock_guard lock(mutex_);
  failure_ = Error{message};
  ended_ = true;
  changed_.notify_all();
}

Status Courier::finish(double seconds) {
  {
    std::unique_lock lock(mutex_);
    finishing_ = true;
    bell_.ring();
    if (!changed_.wait_for(lock, std::chrono::nanoseconds(limitNanoseconds(seconds)), [&] { return ended_; }))
      return Error{fmt::format("waited {:g} s for other ranks to end{}{}", seconds,
                               unfinished_.empty() ? "" : "; still there: rank", unfinished_)};
  }
  thread_.join();
  return failure_;
}

}  // namespace sluice::mpi
