// MpiTransport: the transport that joinMpi() makes. It reaches ranks of this machine through the local
// transport, if there is one, and all others through the courier.
//
// The local transport owns the memory, so that neighbours store to it directly; MPI's windows cover the same
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

#include "runtime/comm/mpi/courier.h"
#include "runtime/comm/mpi/mpi.h"
#include "runtime/comm/reservation.h"

namespace sluice::mpi {

class MpiTransport final : public Transport, private Receiver {
 public:
  // Collective. `localTransport` joins the ranks of this machine in the order of session->localRanks(), or is
  // null; `limit` must be in the phase in which all ranks meet.
  static Expected<std::unique_ptr<Transport>> create(std::unique_ptr<Session> session,
                                                     std::unique_ptr<Transport> localTransport,
                                                     std::unique_ptr<CallLimit> limit, const MpiJob& job);
  // Collective: returns when all ranks have left; ends the job if one does not leave within the time limit.
  ~MpiTransport() override;

  std::string_view kind() const override { return "mpi"; }
  int rank() const override { return session_->rank(); }
  int size() const override { return session_->size(); }
  int localRanks() const override { return static_cast<int>(session_->localRanks().size()); }
  int localRank() const override { return session_->localRank(); }
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

  MpiTransport(std::unique_ptr<Session> session, std::unique_ptr<Transport> localTransport,
               std::unique_ptr<CallLimit> limit, const MpiJob& job);
  void take(int source, const Message& message) override;
  void takeAbort(const Abort& abort) override;
  std::optional<Abort> aborted() override;

  // The rank as the local transport numbers it, or -1.
  int neighbourRank(int rank) const { return neighbourRanks_[static_cast<size_t>(rank)]; }
  Status reserve(Allocation& allocation, size_t bytes);
  // Announces the allocation to all other ranks, and returns when all have announced theirs.
  Status exchange(MessageKind kind, uint32_t index, uint64_t value);
  // Aborts and fails if `peer` can no longer announce the allocation.
  Status checkThere(int peer, uint32_t index, int64_t deadline);
  Status compareBytes(uint32_t index, size_t bytes);
  void applyWord(int source, const Message& message);

  std::unique_ptr<CallLimit> limit_;  // declared first: it also covers the end of the session
  std::unique_ptr<Session> session_;
  std::unique_ptr<Transport> localTransport_;
  const MpiJob job_;
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

}  // namespace sluice::mpi
