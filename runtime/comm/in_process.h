// Ranks as threads of one process: put is a copy, signal an atomic add.
//
// An InProcessGroup owns the memory and the doorbells of all its ranks and must outlive their users. Any
// number of threads may use its transports.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/comm/reservation.h"
#include "runtime/comm/transport.h"

namespace sluice {

class InProcessGroup {
 public:
  explicit InProcessGroup(int size);
  ~InProcessGroup();
  InProcessGroup(const InProcessGroup&) = delete;
  InProcessGroup& operator=(const InProcessGroup&) = delete;

  int size() const { return static_cast<int>(ranks_.size()); }
  Transport& transport(int rank);

 private:
  class Rank;

  // One symmetric allocation: the same size at every rank. Never resized after it is made, so ranks read it
  // without the lock.
  struct Allocation {
    size_t bytes = 0;
    std::vector<Reservation> memory;  // by rank
  };
  static constexpr size_t kMaxAllocations = 4096;

  Expected<SymmetricHandle> allocate(uint32_t index, size_t bytes);
  std::byte* address(int rank, SymmetricHandle handle) {
    return allocations_[handle.index]->memory[rank].data();
  }

  std::vector<std::unique_ptr<Rank>> ranks_;
  std::mutex mutex_;  // guards new allocations and the abort message
  std::vector<std::unique_ptr<Allocation>> allocations_;
  std::atomic<bool> aborted_{false};
  std::string abortMessage_;
};

}  // namespace sluice
