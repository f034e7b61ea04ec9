// NetworkTransport: the transport between ranks of several machines, whatever the network. It reaches ranks
// of this machine through the local transport, if there is one, and all others through the courier.
//
// The local transport owns the memory, so that neighbours store to it directly; the engine writes to the same
// memory. All additions to counters are native: by neighbours, and by the courier for ranks of other
// machines.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/network/courier.h"
#include "runtime/comm/reservation.h"

namespace sluice::network {

// Joins the ranks of this machine through shared memory, under a name that no other job has. Null if there is
// only one.
Expected<std::unique_ptr<Transport>> joinNeighbours(const Place& place, const std::string& name,
                                                    double timeoutSeconds);

class NetworkTransport final : public Transport, private Receiver {
 public:
  // `localTransport` joins the ranks of this machine in the order of place.localRanks, or is null.
  static Expected<std::unique_ptr<Transport>> create(std::unique_ptr<Engine> engine, const Place& place,
                                                     std::unique_ptr<Transport> localTransport,
                                                     double timeoutSeconds);
  // Leaves (Courier::finish).
  ~NetworkTransport() override;

  std::string_view kind() const override { return kind_; }
  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }
  int localRanks() const override { return static_cast<int>(place_.localRanks.size()); }
  int localRank() const override { return place_.localRank; }
  Expected<SymmetricHandle> allocate(size_t bytes) override;
  std::byte* local(SymmetricHandle handle) override { return allocations_[handle.index].data; }
  std::byte* direct(int rank, SymmetricHandle handle) override;
  void put(int rank, SymmetricHandle handle, size_t offset, const void* data, size_t bytes) override;
  void signal(int rank, SymmetricHandle handle, size_t offset, uint64_t n) override;
  void post(int rank, SymmetricHandle handle, size_t offset, uint64_t value) override;
  Doorbell& doorbell() override { return localTransport_ ? localTransport_->doorbell() : bell_; }
  void abort(const std::string& message) override;
  bool isAborted() const override;
  std::string abortMessage() const override;
  int lostRank() const override;
  bool hasLeft(int rank) const override;
  bool isStopped(int rank) const override {
    return neighbourRank(rank) >= 0 && localTransport_->isStopped(neighbourRank(rank));
  }
  CommStats stats() const override { return courier_->stats(); }

 private:
  static constexpr uint32_t kMaxAllocations = kMaxHandles;

  struct Allocation {
    std::byte* data = nullptr;
    size_t bytes = 0;
    SymmetricHandle neighbour;  // in the local transport
    Reservation own;            // if there is no local transport
  };
  // The allocations that another rank has announced, by number.
  struct PeerAllocations {
    std::vector<uint64_t> bytes;
    std::vector<uint64_t> addresses;
  };

  NetworkTransport(const Place& place, std::string_view kind, std::unique_ptr<Transport> localTransport,
                   double timeoutSeconds);
  void take(int source, const Message& message) override;
  void takeAbort(const Abort& abort) override;
  std::optional<Abort> aborted() override;
  std::byte* memory(uint32_t handle, uint64_t offset, uint64_t bytes) override;

  // The rank as the local transport numbers it, or -1.
  int neighbourRank(int rank) const { return neighbourRanks_[static_cast<size_t>(rank)]; }
  Status reserve(Allocation& allocation, size_t bytes);
  // Announces the allocation to all other ranks, and returns when all have announced theirs.
  Status exchange(MessageKind kind, uint32_t index, uint64_t value);
  // Aborts and fails if `peer` can no longer announce the allocation.
  Status checkThere(int peer, uint32_t index, int64_t deadline);
  Status compareBytes(uint32_t index, size_t bytes);
  void applyWord(int source, const Message& message);

  const Place place_;
  const std::string_view kind_;
  std::unique_ptr<Transport> localTransport_;
  const double timeoutSeconds_;
  std::vector<int> neighbourRanks_;
  // fixed capacity: workers look up allocations while others are made
  std::vector<Allocation> allocations_;
  uint32_t allocated_ = 0;
  Doorbell bell_;  // used if there is no local transport
  std::vector<std::atomic<bool>> left_;

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable announcedMore_;
  std::vector<PeerAllocations> peerAllocations_;  // by rank
  Abort abort_;
  std::atomic<bool> aborted_{false};
  std::atomic<int> lost_{-1};
  std::unique_ptr<Courier> courier_;  // declared last: its thread calls this object
};

}  // namespace sluice::network
