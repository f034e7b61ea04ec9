#include "runtime/exec/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/exec/clock.h"

namespace sluice {

// As it lies on the board, before the counts. `posted` is stored last, by Transport::post.
struct Exchange::Header {
  uint64_t posted;  // number of the step
  uint64_t fingerprint;
  uint32_t entry;
  uint32_t failed;
  char failure[232];
};

Expected<Exchange> Exchange::create(Transport& transport, int64_t counts) {
  static_assert(sizeof(Header) == 256);
  Exchange exchange;
  exchange.transport_ = &transport;
  exchange.counts_ = counts;
  exchange.boardBytes_ = (sizeof(Header) + counts * sizeof(int32_t) + 63) / 64 * 64;
  auto memory = transport.allocate(2 * exchange.boardBytes_ * transport.size());
  if (!memory) return memory.error();
  exchange.memory_ = *memory;
  exchange.all_.resize(counts * transport.size());
  exchange.message_.resize(exchange.boardBytes_);
  return exchange;
}

size_t Exchange::offset(uint64_t step, int source) const {
  return ((step & 1) * transport_->size() + source) * boardBytes_;
}

Status Exchange::step(const StepOffer& offer, const std::vector<int32_t>& counts,
                      const std::string& entryName, double timeoutSeconds) {
  ++step_;
  Header header{0, offer.fingerprint, offer.entry, !offer.failure.empty(), {}};
  const size_t length = std::min(offer.failure.size(), sizeof(header.failure) - 1);
  std::memcpy(header.failure, offer.failure.data(), length);
  std::memcpy(message_.data(), &header, sizeof(header));
  std::memcpy(message_.data() + sizeof(header), counts.data(), counts_ * sizeof(int32_t));

  const int ranks = transport_->size(), own = transport_->rank();
  const size_t board = offset(step_, own);
  for (int i = 0; i < ranks; ++i) {
    const int rank = (own + i) % ranks;
    transport_->put(rank, memory_, board + sizeof(uint64_t), message_.data() + sizeof(uint64_t),
                    message_.size() - sizeof(uint64_t));
    transport_->post(rank, memory_, board, step_);
  }

  const int64_t deadline = monotonicNanoseconds() + static_cast<int64_t>(timeoutSeconds * 1e9);
  for (int source = 0; source < ranks; ++source)
    if (Status there = awaitRank(source, entryName, deadline, timeoutSeconds); !there) return there;
  // every rank compares with rank 0, so that all come to the same end
  for (int source = 0; source < ranks; ++source)
    if (Status same = compare(source); !same) return same;
  for (int source = 0; source < ranks; ++source) {
    const std::byte* from = transport_->local(memory_) + offset(step_, source) + sizeof(Header);
    std::memcpy(all_.data() + source * counts_, from, counts_ * sizeof(int32_t));
  }
  return {};
}

Status Exchange::awaitRank(int source, const std::string& entryName, int64_t deadline,
                           double timeoutSeconds) {
  auto* word = reinterpret_cast<uint64_t*>(transport_->local(memory_) + offset(step_, source));
  const auto isThere = [&] {
    // pairs with Transport::post(); seq_cst for the doorbell's sake
    return std::atomic_ref<uint64_t>(*word).load(std::memory_order_seq_cst) == step_;
  };
  if (isThere()) return {};
  const Attention attention(transport_->doorbell());
  while (true) {
    const uint32_t epoch = transport_->doorbell().epoch();
    if (isThere()) return {};
    if (transport_->isAborted()) return Error{transport_->abortMessage()};
    const int64_t left = deadline - monotonicNanoseconds();
    if (left <= 0) {
      const std::string message =
          fmt::format("rank {}: waited {:g} s for the counts of rank {} before entry '{}' (step {})",
                      transport_->rank(), timeoutSeconds, source, entryName, step_);
      transport_->abort(message);
      return Error{transport_->abortMessage()};
    }
    transport_->doorbell().park(epoch, std::min<int64_t>(left, 100'000'000));
  }
}

Status Exchange::compare(int source) const {
  Header header;
  std::memcpy(&header, transport_->local(memory_) + offset(step_, source), sizeof(header));
  header.failure[sizeof(header.failure) - 1] = '\0';
  if (header.failed) return Error{fmt::format("rank {}: {}", source, header.failure)};
  Header first;
  std::memcpy(&first, transport_->local(memory_) + offset(step_, 0), sizeof(first));
  if (header.fingerprint != first.fingerprint)
    return Error{fmt::format("rank {} runs program {:016x}, but rank 0 runs {:016x}", source,
                             header.fingerprint, first.fingerprint)};
  if (header.entry != first.entry)
    return Error{
        fmt::format("rank {} runs entry {}, but rank 0 runs entry {}", source, header.entry, first.entry)};
  return {};
}

}  // namespace sluice
