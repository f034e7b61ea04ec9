#include "runtime/comm/mpi/mpi_engine.h"

#include <algorithm>
#include <utility>

namespace sluice::mpi {
namespace {

// Pairs of nanoseconds: until this time without work, the courier sleeps this long at a time. It notices
// arrivals up to one sleep late; a new request ends a sleep at once.
constexpr int64_t kAwake = 20'000;
constexpr int64_t kFlyingSleep = 150'000;
constexpr std::pair<int64_t, int64_t> kSleeps[] = {
    {500'000, 50'000}, {20'000'000, kFlyingSleep}, {1'000'000'000, 300'000}, {INT64_MAX, 1'000'000}};

}  // namespace

MpiEngine::MpiEngine(std::unique_ptr<Session> session, std::unique_ptr<CallLimit> limit)
    : limit_(std::move(limit)),
      session_(std::move(session)),
      control_(session_->place().size),
      left_(static_cast<size_t>(session_->place().size)) {
  bell_.attend();
}

Expected<std::unique_ptr<MpiEngine>> MpiEngine::create(std::unique_ptr<Session> session,
                                                       std::unique_ptr<CallLimit> limit,
                                                       const BatchLimits& limits) {
  std::unique_ptr<MpiEngine> engine(new MpiEngine(std::move(session), std::move(limit)));
  if (Status opened = engine->open(limits); !opened) return opened.error();
  engine->limit_->leave();
  return engine;
}

MpiEngine::~MpiEngine() {
  limit_->enter("the end of MPI");
  memory_.reset();  // windows first, then MPI
}

Status MpiEngine::open(const BatchLimits& limits) {
  auto memory = RemoteMemory::create(session_->comm());
  if (!memory) return memory.error();
  memory_ = std::move(*memory);
  if (Status attached = memory_->attach(control_.data(), control_.size()); !attached) return attached;
  const auto [rank, size] = std::pair(session_->place().rank, session_->place().size);
  const auto own = reinterpret_cast<uint64_t>(control_.data());
  std::vector<uint64_t> all(static_cast<size_t>(size));
  // also the barrier after which all control memory is accessible
  if (Status ok = checked(MPI_Allgather(&own, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, session_->comm()),
                          "addresses");
      !ok)
    return ok;
  for (int i = 1; i < size; ++i) {
    const int peer = (rank + i) % size;
    links_.emplace_back(peer, all[static_cast<size_t>(peer)] + ControlMemory::sectionOffset(rank),
                        control_.section(peer), limits);
  }
  return {};
}

const Link& MpiEngine::linkTo(int rank) const {
  const int size = session_->place().size;
  return links_[static_cast<size_t>((rank - session_->place().rank + size) % size - 1)];
}

Expected<bool> MpiEngine::turn(Outbox& outbox, network::Receiver& receiver) {
  int ignored = 0;  // nothing is ever sent with this tag: the call lets MPI make progress
  if (Status ok = checked(
          MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, session_->comm(), &ignored, MPI_STATUS_IGNORE), "progress");
      !ok)
    return ok.error();
  bool moved = false;
  for (Link& link : links_) {
    const bool received = receive(link, receiver);
    const Expected<bool> advanced = link.advance(*memory_, outbox);
    if (!advanced) return advanced;
    moved = moved || received || *advanced;
  }
  return moved;
}

bool MpiEngine::receive(Link& link, network::Receiver& receiver) {
  bool moved = false;
  while (const std::optional<Message> message = link.receive()) {
    moved = true;
    if (message->kind == MessageKind::kAborted) {
      receiver.takeAbort({link.abortText(message->value), static_cast<int>(message->offset) - 1});
      continue;
    }
    if (message->kind == MessageKind::kAddress) link.setAddress(message->handle, message->value);
    if (message->kind == MessageKind::kLeft) left_[static_cast<size_t>(link.peer())] = true;
    receiver.take(link.peer(), *message);
  }
  return moved;
}

void MpiEngine::abort(const Abort& abort) {
  for (Link& link : links_) link.abort(abort);
}

bool MpiEngine::isDone(int rank, Outbox& outbox) const {
  return left_[static_cast<size_t>(rank)] && linkTo(rank).isIdle(outbox);
}

Status MpiEngine::finish(int rank) { return memory_->flush(rank); }

CommStats MpiEngine::stats() const {
  CommStats sum;
  for (const Link& link : links_) {
    sum.puts += link.stats().puts;
    sum.putBytes += link.stats().putBytes;
    sum.signals += link.stats().signals;
    sum.flushes += link.stats().flushes;
    sum.messages += link.stats().messages;
  }
  return sum;
}

void MpiEngine::rest(uint32_t seen, int64_t still) {
  if (still < kAwake) return;
  const bool flying = std::ranges::any_of(links_, [](const Link& link) { return link.isFlying(); });
  for (const auto& [until, sleep] : kSleeps) {
    if (still >= until) continue;
    bell_.park(seen, flying ? std::min(sleep, kFlyingSleep) : sleep);
    return;
  }
}

}  // namespace sluice::mpi
