#include "runtime/comm/all_gather.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/base/cache_line.h"
#include "runtime/base/clock.h"

namespace sluice {
namespace {

constexpr int64_t kLongestPark = 100'000'000;  // ns: an abort is noticed within this time

}  // namespace

Expected<AllGather> AllGather::create(Transport& transport, size_t bytes) {
  AllGather gather;
  gather.transport_ = &transport;
  auto boards = Boards::create(transport, bytes, 2 * kCacheLine * static_cast<size_t>(transport.size()));
  if (!boards) return boards.error();
  gather.boards_ = std::move(*boards);
  return gather;
}

size_t AllGather::wordOffset(int source) const {
  return ((number_ & 1) * static_cast<size_t>(transport_->size()) + static_cast<size_t>(source)) * kCacheLine;
}

bool AllGather::hasCome(int source) const {
  auto* word = reinterpret_cast<uint64_t*>(transport_->local(boards_.words()) + wordOffset(source));
  // pairs with Transport::post(); seq_cst because Doorbell requires it
  return std::atomic_ref<uint64_t>(*word).load(std::memory_order_seq_cst) == number_;
}

Status AllGather::gather(std::span<const std::byte> own, const Awaited& awaited, double timeoutSeconds) {
  post(own);
  return await(awaited, timeoutSeconds);
}

void AllGather::post(std::span<const std::byte> own) {
  ++number_;
  boards_.put(number_, own);
  const int ranks = transport_->size(), rank = transport_->rank();
  for (int i = 0; i < ranks; ++i)
    transport_->post((rank + i) % ranks, boards_.words(), wordOffset(rank), number_);
}

Status AllGather::await(const Awaited& awaited, double timeoutSeconds) {
  const int64_t deadline = monotonicNanoseconds() + limitNanoseconds(timeoutSeconds);
  for (int source = 0; source < transport_->size(); ++source) {
    if (Status there = awaitRank(source, awaited, deadline, timeoutSeconds); !there) return there;
    if (!boards_.isWhole(number_, source))
      return fail(fmt::format("rank {}: {} of rank {} {} arrived damaged", transport_->rank(), awaited.what,
                              source, awaited.when));
  }
  return {};
}

Status AllGather::fail(const std::string& message) const {
  transport_->abort(message);
  return Error{transport_->abortMessage()};
}

// "rank 1" or "ranks 1, 3": the ranks whose blocks have not arrived; empty if all have.
std::string AllGather::missingRanks() const {
  std::vector<int> missing;
  for (int rank = 0; rank < transport_->size(); ++rank)
    if (!hasCome(rank)) missing.push_back(rank);
  if (missing.empty()) return {};
  return fmt::format("rank{} {}", missing.size() > 1 ? "s" : "", fmt::join(missing, ", "));
}

Status AllGather::awaitRank(int source, const Awaited& awaited, int64_t deadline, double timeoutSeconds) {
  if (hasCome(source)) return {};
  const auto waiting = [&](int rank) {
    return fmt::format("for {} of rank {} {}", awaited.what, rank, awaited.when);
  };
  const Attention attention(transport_->doorbell());
  while (true) {
    const uint32_t epoch = transport_->doorbell().epoch();
    const bool left = transport_->hasLeft(source);  // before hasCome(): all posts of a rank that left arrived
    if (hasCome(source)) return {};
    if (transport_->isAborted()) {
      std::string message = transport_->abortMessage();
      const int lost = transport_->lostRank();
      if (lost >= 0)
        message += fmt::format("; rank {} was waiting {}", transport_->rank(),
                               waiting(hasCome(lost) ? source : lost));
      return Error{message};
    }
    if (left)
      return fail(fmt::format("rank {} left while rank {} was still waiting {}", source, transport_->rank(),
                              waiting(source)));
    const int64_t open = deadline - monotonicNanoseconds();
    if (open <= 0) {
      const std::string missing = missingRanks();
      if (missing.empty()) continue;
      return fail(fmt::format("rank {}: waited {:g} s for {} of {} {}{}", transport_->rank(), timeoutSeconds,
                              awaited.what, missing, awaited.when, stoppedRanks(*transport_)));
    }
    transport_->doorbell().park(epoch, std::min(open, kLongestPark));
  }
}

}  // namespace sluice
