#include "runtime/comm/all_gather.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/clock.h"

namespace sluice {
namespace {

constexpr size_t kLine = 64;
constexpr int64_t kLongestPark = 100'000'000;  // ns: an abort is seen at the latest then

}  // namespace

Expected<AllGather> AllGather::create(Transport& transport, size_t bytes) {
  AllGather gather;
  gather.transport_ = &transport;
  gather.boardBytes_ = (sizeof(uint64_t) + bytes + kLine - 1) / kLine * kLine;
  auto memory = transport.allocate(2 * gather.boardBytes_ * static_cast<size_t>(transport.size()));
  if (!memory) return memory.error();
  gather.memory_ = *memory;
  return gather;
}

size_t AllGather::offset(int source) const {
  return ((number_ & 1) * static_cast<size_t>(transport_->size()) + static_cast<size_t>(source)) *
         boardBytes_;
}

const std::byte* AllGather::of(int rank) const {
  return transport_->local(memory_) + offset(rank) + sizeof(uint64_t);
}

Status AllGather::gather(std::span<const std::byte> own, const Awaited& awaited, double timeoutSeconds) {
  ++number_;
  const int ranks = transport_->size(), rank = transport_->rank();
  const size_t board = offset(rank);
  for (int i = 0; i < ranks; ++i) {
    const int peer = (rank + i) % ranks;
    transport_->put(peer, memory_, board + sizeof(uint64_t), own.data(), own.size());
    transport_->post(peer, memory_, board, number_);
  }
  const int64_t deadline = monotonicNanoseconds() + static_cast<int64_t>(timeoutSeconds * 1e9);
  for (int source = 0; source < ranks; ++source)
    if (Status there = awaitRank(source, awaited, deadline, timeoutSeconds); !there) return there;
  return {};
}

Status AllGather::awaitRank(int source, const Awaited& awaited, int64_t deadline, double timeoutSeconds) {
  auto* word = reinterpret_cast<uint64_t*>(transport_->local(memory_) + offset(source));
  const auto isThere = [&] {
    // pairs with Transport::post(); seq_cst for the doorbell's sake
    return std::atomic_ref<uint64_t>(*word).load(std::memory_order_seq_cst) == number_;
  };
  if (isThere()) return {};
  const auto waiting = [&] {
    return fmt::format("for {} of rank {} {}", awaited.what, source, awaited.when);
  };
  const Attention attention(transport_->doorbell());
  while (true) {
    const uint32_t epoch = transport_->doorbell().epoch();
    const bool left = transport_->hasLeft(source);  // before the look: what it posted is there by then
    if (isThere()) return {};
    if (transport_->isAborted()) {
      std::string message = transport_->abortMessage();
      if (transport_->lostRank() >= 0)
        message += fmt::format("; rank {} was waiting {}", transport_->rank(), waiting());
      return Error{message};
    }
    const int64_t open = deadline - monotonicNanoseconds();
    if (left || open <= 0) {
      transport_->abort(
          left ? fmt::format("rank {}: rank {} has left, in vain waited {}", transport_->rank(), source,
                             waiting())
               : fmt::format("rank {}: waited {:g} s {}", transport_->rank(), timeoutSeconds, waiting()));
      return Error{transport_->abortMessage()};
    }
    transport_->doorbell().park(epoch, std::min(open, kLongestPark));
  }
}

}  // namespace sluice
