#include "runtime/comm/mpi/link.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>
#include <iterator>

#include "runtime/comm/mpi/session.h"

namespace sluice::mpi {
namespace {

constexpr uint32_t kControl = UINT32_MAX;  // as a handle: the section in the peer's control memory

}  // namespace

Expected<bool> Link::advance(RemoteMemory& memory, Outbox& outbox) {
  bool moved = false;
  while (isFlying()) {
    auto ended = end(memory, outbox);
    if (!ended) return ended.error();
    if (!*ended) break;
    moved = true;
  }
  while (begun_ - ended_ < kFlights) {
    auto begun = begin(memory, outbox);
    if (!begun) return begun.error();
    if (!*begun) break;
    moved = true;
  }
  return moved;
}

Expected<bool> Link::end(RemoteMemory& memory, Outbox& outbox) {
  Flight& oldest = flight(ended_);
  int done = 0;
  if (Status ok = checked(MPI_Test(&oldest.probe, &done, MPI_STATUS_IGNORE), "get"); !ok) return ok.error();
  if (!done) return false;
  // of words alone only the memory is needed again: nothing has to wait until they are there
  Status flushed =
      oldest.puts.empty() ? memory.flushLocal(window(ended_), peer_) : memory.flush(window(ended_), peer_);
  if (!flushed) return flushed.error();
  if (!oldest.puts.empty()) ++stats_.flushes;
  outbox.release(oldest.bytes);
  ready_.insert(ready_.end(), oldest.after.begin(), oldest.after.end());
  oldest.puts.clear();
  oldest.after.clear();
  oldest.words.clear();
  oldest.bytes = 0;
  ++ended_;
  return true;
}

// How many messages the peer's mailbox has room for.
size_t Link::sendable() const {
  auto* taken = reinterpret_cast<uint64_t*>(local_ + ControlMemory::kTakenOffset);
  // pairs with the peer's store through MPI: what it has taken it does not read again
  const uint64_t room =
      kMailboxMessages - (sent_ - std::atomic_ref<uint64_t>(*taken).load(std::memory_order_acquire));
  return std::min<size_t>({ready_.size(), room, limits_.share ? kMailboxMessages : 1});
}

void Link::load(Flight& next, Outbox& outbox) {
  if (abort_) {
    PutOrder text{kControl, ControlMemory::kAbortOffset,
                  std::min(abort_->text.size(), ControlMemory::kAbortBytes), nullptr};
    text.data = std::make_unique<std::byte[]>(text.bytes);
    std::memcpy(text.data.get(), abort_->text.data(), text.bytes);
    next.after.push_back({MessageKind::kAborted, 0, static_cast<uint64_t>(abort_->lost + 1), text.bytes});
    next.puts.push_back(std::move(text));
    abort_.reset();
    return;
  }
  if (ready_.size() >= kMailboxMessages) return;  // the peer is behind: more would only pile up here
  Batch batch = outbox.take(peer_, limits_);
  // messages before the first put depend on the flights under way, if on any
  if (isFlying())
    std::ranges::copy(batch.before, std::back_inserter(flight(begun_ - 1).after));
  else
    ready_.insert(ready_.end(), batch.before.begin(), batch.before.end());
  next.puts = std::move(batch.puts);
  next.after = std::move(batch.after);
  next.bytes = batch.bytes;
}

Expected<bool> Link::begin(RemoteMemory& memory, Outbox& outbox) {
  Flight& next = flight(begun_);
  load(next, outbox);
  if (next.puts.empty() && sendable() == 0 && !owesCredit()) {
    assert(next.after.empty());
    return false;
  }
  if (Status ok = sendWords(memory, next); !ok) return ok.error();
  if (Status ok = sendPuts(memory, next); !ok) return ok.error();
  if (Status ok = memory.probe(window(begun_), peer_, remote_, &next.probed, &next.probe); !ok)
    return ok.error();
  ++begun_;
  return true;
}

Status Link::sendWords(RemoteMemory& memory, Flight& next) {
  const size_t messages = sendable();
  // MPI reads the words until the flight ends: they do not move after the first is sent
  next.words.reserve(1 + messages * kMessageWords);
  for (size_t i = 0; i < messages; ++i) {
    std::ranges::copy(encode(ready_[i], sent_ + i), std::back_inserter(next.words));
    if (ready_[i].kind <= MessageKind::kPost) ++stats_.signals;
  }
  ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(messages));
  const std::span<const uint64_t> words(next.words);
  for (size_t done = 0; done < messages;) {  // twice at the end of the ring
    const size_t slot = sent_ % kMailboxMessages;
    const size_t part = std::min(messages - done, kMailboxMessages - slot);
    if (Status ok = memory.store(window(begun_), peer_, remote_ + slot * sizeof(MessageWords),
                                 words.subspan(done * kMessageWords, part * kMessageWords));
        !ok)
      return ok;
    done += part;
    sent_ += part;
    ++stats_.messages;
  }
  if (mailbox_.taken() == credited_) return {};
  credited_ = mailbox_.taken();
  next.words.push_back(credited_);
  return memory.store(window(begun_), peer_, remote_ + ControlMemory::kTakenOffset,
                      std::span<const uint64_t>(next.words).last(1));
}

Status Link::sendPuts(RemoteMemory& memory, Flight& next) {
  for (const PutOrder& put : next.puts) {
    const uint64_t base = put.handle == kControl ? remote_ : addresses_[put.handle];
    if (Status ok = memory.put(window(begun_), peer_, base + put.offset, put.data.get(), put.bytes); !ok)
      return ok;
    ++stats_.puts;
    ++stats_.messages;
    stats_.putBytes += static_cast<int64_t>(put.bytes);
  }
  return {};
}

void Link::setAddress(uint32_t handle, uint64_t address) {
  if (handle >= kMaxHandles) return;
  if (addresses_.size() <= handle) addresses_.resize(handle + 1);
  addresses_[handle] = address;
}

std::string Link::abortText(uint64_t bytes) const {
  const auto* text = reinterpret_cast<const char*>(local_ + ControlMemory::kAbortOffset);
  return {text, std::min<size_t>(bytes, ControlMemory::kAbortBytes)};
}

Status Link::flushAll(RemoteMemory& memory) {
  for (int window = 0; window < RemoteMemory::kWindows; ++window)
    if (Status ok = memory.flush(window, peer_); !ok) return ok;
  return {};
}

}  // namespace sluice::mpi
