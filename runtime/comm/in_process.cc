#include "runtime/comm/in_process.h"

#include <fmt/format.h>

#include <cstring>

#include "runtime/comm/transport.h"

namespace sluice {
namespace {

// Reserved at the start, because an abort may be caused by a lack of memory.
constexpr size_t kMaxAbortMessage = 4096;

}  // namespace

class InProcessGroup::Rank final : public Transport {
 public:
  Rank(InProcessGroup& group, int rank) : group_(group), rank_(rank) {}

  std::string_view kind() const override { return "threads"; }
  int rank() const override { return rank_; }
  int size() const override { return group_.size(); }

  Expected<SymmetricHandle> allocate(size_t bytes) override { return group_.allocate(allocated_++, bytes); }
  std::byte* local(SymmetricHandle handle) override { return group_.address(rank_, handle); }
  std::byte* direct(int rank, SymmetricHandle handle) override { return group_.address(rank, handle); }
  bool sharesMemory() const override { return true; }

  void put(int rank, SymmetricHandle handle, size_t offset, const void* data, size_t bytes) override {
    if (bytes > 0) std::memcpy(group_.address(rank, handle) + offset, data, bytes);
  }

  void signal(int rank, SymmetricHandle handle, size_t offset, uint64_t n) override {
    addAndRing(group_.address(rank, handle) + offset, n, group_.ranks_[rank]->bell_);
  }

  void post(int rank, SymmetricHandle handle, size_t offset, uint64_t value) override {
    storeAndRing(group_.address(rank, handle) + offset, value, group_.ranks_[rank]->bell_);
  }

  Doorbell& doorbell() override { return bell_; }

  void abort(const std::string& message) override {
    {
      std::lock_guard lock(group_.mutex_);
      if (group_.aborted_.load(std::memory_order_relaxed)) return;
      group_.abortMessage_.assign(message, 0, kMaxAbortMessage);
      group_.aborted_.store(true, std::memory_order_seq_cst);  // pairs with isAborted()
    }
    for (auto& rank : group_.ranks_) rank->bell_.ring();
  }
  bool isAborted() const override { return group_.aborted_.load(std::memory_order_seq_cst); }
  std::string abortMessage() const override {
    std::lock_guard lock(group_.mutex_);
    return group_.abortMessage_;
  }

 private:
  InProcessGroup& group_;
  const int rank_;
  uint32_t allocated_ = 0;
  Doorbell bell_;
};

InProcessGroup::InProcessGroup(int size) {
  abortMessage_.reserve(kMaxAbortMessage);
  // fixed capacity: ranks look up allocations while others make new ones
  allocations_.resize(kMaxAllocations);
  for (int rank = 0; rank < size; ++rank) ranks_.push_back(std::make_unique<Rank>(*this, rank));
}

InProcessGroup::~InProcessGroup() = default;

Transport& InProcessGroup::transport(int rank) { return *ranks_[rank]; }

Expected<SymmetricHandle> InProcessGroup::allocate(uint32_t index, size_t bytes) {
  std::lock_guard lock(mutex_);
  if (index >= kMaxAllocations)
    return Error{fmt::format("more than {} symmetric allocations", kMaxAllocations)};
  if (allocations_[index]) {
    if (allocations_[index]->bytes == bytes) return SymmetricHandle{index};
    return Error{fmt::format("symmetric allocation {} has {} bytes at one rank and {} at another", index,
                             allocations_[index]->bytes, bytes)};
  }
  auto allocation = std::make_unique<Allocation>();
  allocation->bytes = bytes;
  for (int rank = 0; rank < size(); ++rank) {
    auto memory = Reservation::reserve(bytes);
    if (!memory) return memory.error();
    allocation->memory.push_back(std::move(*memory));
  }
  allocations_[index] = std::move(allocation);
  return SymmetricHandle{index};
}

}  // namespace sluice
