#include "runtime/comm/mpi/link.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>

#include "runtime/base/clock.h"
#include "runtime/comm/mpi/session.h"

namespace sluice::mpi {
namespace {

constexpr uint32_t kControl = UINT32_MAX;  // this handle means the section in the peer's control memory

}  // namespace

Expected<bool> Link::advance(RemoteMemory& memory, Outbox& outbox) {
  if (!flying_) return begin(memory, outbox);
  Expected<bool> ended = end(memory, outbox);
  if (!ended || !*ended) return ended;
  const Expected<bool> begun = begin(memory, outbox);
  return begun ? Expected<bool>(true) : begun;
}

Expected<bool> Link::end(RemoteMemory& memory, Outbox& outbox) {
  int done = 0;
  if (Status ok = checked(MPI_Test(&flight_.probe, &done, MPI_STATUS_IGNORE), "get"); !ok) return ok.error();
  if (!done) return false;
  // a flight that has only words needs only its memory back: nothing waits for their arrival
  const bool puts = !flight_.puts.empty();
  if (Status flushed = puts ? memory.flush(peer_) : memory.flushLocal(peer_); !flushed)
    return flushed.error();
  if (puts) ++stats_.flushes;
  // not before the flush, because the probe may overtake long puts
  length_.took(flight_.bytes, monotonicNanoseconds() - flight_.began);
  outbox.release(flight_.bytes);
  ready_.insert(ready_.end(), flight_.after.begin(), flight_.after.end());
  flight_.puts.clear();
  flight_.after.clear();
  flight_.words.clear();
  flight_.bytes = 0;
  flying_ = false;
  return true;
}

// The number of messages for which the peer's mailbox has room.
size_t Link::sendable() const {
  auto* taken = reinterpret_cast<uint64_t*>(local_ + ControlMemory::kTakenOffset);
  // pairs with the peer's store through MPI: the peer does not read messages again that it has taken
  const uint64_t room =
      kMailboxMessages - (sent_ - std::atomic_ref<uint64_t>(*taken).load(std::memory_order_acquire));
  return std::min<size_t>({ready_.size(), room, limits_.share ? kMailboxMessages : 1});
}

void Link::load(Outbox& outbox) {
  if (abort_) {
    PutOrder text{kControl, ControlMemory::kAbortOffset,
                  std::min(abort_->text.size(), network::kMaxAbortText), nullptr};
    text.data = std::make_unique<std::byte[]>(text.bytes);
    std::memcpy(text.data.get(), abort_->text.data(), text.bytes);
    flight_.after.push_back({MessageKind::kAborted, 0, static_cast<uint64_t>(abort_->lost + 1), text.bytes});
    flight_.puts.push_back(std::move(text));
    abort_.reset();
    return;
  }
  if (ready_.size() >= kMailboxMessages) return;  // the peer is slower: more messages would only queue here
  BatchLimits limits = limits_;
  limits.bytes = length_.bytes();
  Batch batch = outbox.take(peer_, limits);
  // the puts before these messages have been flushed
  ready_.insert(ready_.end(), batch.before.begin(), batch.before.end());
  flight_.puts = std::move(batch.puts);
  flight_.after = std::move(batch.after);
  flight_.bytes = batch.bytes;
}

Expected<bool> Link::begin(RemoteMemory& memory, Outbox& outbox) {
  load(outbox);
  if (flight_.puts.empty() && sendable() == 0 && !owesCredit()) return false;
  flight_.began = monotonicNanoseconds();
  if (Status ok = sendWords(memory); !ok) return ok.error();
  if (Status ok = sendPuts(memory); !ok) return ok.error();
  if (Status ok = memory.probe(peer_, remote_, &flight_.probed, &flight_.probe); !ok) return ok.error();
  flying_ = true;
  return true;
}

Status Link::sendWords(RemoteMemory& memory) {
  std::vector<uint64_t>& words = flight_.words;
  const size_t messages = sendable();
  // MPI reads the words until the flight ends, so they must not move after the first is sent
  words.reserve(1 + messages * kMessageWords);
  for (size_t i = 0; i < messages; ++i) {
    std::ranges::copy(encode(ready_[i], sent_ + i), std::back_inserter(words));
    if (ready_[i].kind <= MessageKind::kPost) ++stats_.signals;
  }
  ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(messages));
  for (size_t done = 0; done < messages;) {  // two rounds at the end of the ring
    const size_t slot = sent_ % kMailboxMessages;
    const size_t part = std::min(messages - done, kMailboxMessages - slot);
    const auto sent = std::span<const uint64_t>(words).subspan(done * kMessageWords, part * kMessageWords);
    if (Status ok = memory.store(peer_, remote_ + slot * sizeof(MessageWords), sent); !ok) return ok;
    done += part;
    sent_ += part;
    ++stats_.messages;
  }
  if (mailbox_.taken() == credited_) return {};
  credited_ = mailbox_.taken();
  words.push_back(credited_);
  return memory.store(peer_, remote_ + ControlMemory::kTakenOffset, std::span<const uint64_t>(words).last(1));
}

Status Link::sendPuts(RemoteMemory& memory) {
  for (const PutOrder& put : flight_.puts) {
    const uint64_t base = put.handle == kControl ? remote_ : addresses_[put.handle];
    if (Status ok = memory.put(peer_, base + put.offset, put.data.get(), put.bytes); !ok) return ok;
    ++stats_.puts;
    ++stats_.messages;
    stats_.putBytes += static_cast<int64_t>(put.bytes);
  }
  return {};
}

void Link::setAddress(uint32_t handle, uint64_t address) {
  if (handle >= network::kMaxHandles) return;
  if (addresses_.size() <= handle) addresses_.resize(handle + 1);
  addresses_[handle] = address;
}

std::string Link::abortText(uint64_t bytes) const {
  const auto* text = reinterpret_cast<const char*>(local_ + ControlMemory::kAbortOffset);
  return {text, std::min<size_t>(bytes, network::kMaxAbortText)};
}

}  // namespace sluice::mpi
