// Link: the traffic of one rank to another, and the mailbox for messages from that rank.
//
// Traffic goes in flights, one at a time: first the messages that may be read now, then the puts of the next
// batch, then a probe. When the probe returns, the puts are flushed, and the messages of the batch may go
// with the next flight. A flush spins until it is answered. After the probe it takes one round trip if
// nothing else is on the way; with a second flight under way the answer would queue after that flight, and
// the courier would spin all the time.
//
// Used only by the courier's thread.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/comm/mpi/flight_length.h"
#include "runtime/comm/mpi/mailbox.h"
#include "runtime/comm/mpi/remote_memory.h"
#include "runtime/comm/network/outbox.h"
#include "runtime/comm/transport.h"

namespace sluice::mpi {

using network::Abort;
using network::Batch;
using network::BatchLimits;
using network::Outbox;
using network::PutOrder;

class Link {
 public:
  // `remote`: the address of this rank's section in the peer's control memory. `local`: the peer's section in
  // this rank's control memory.
  Link(int peer, uint64_t remote, std::byte* local, const BatchLimits& limits)
      : peer_(peer),
        remote_(remote),
        local_(local),
        limits_(limits),
        length_(limits.bytes),
        mailbox_(reinterpret_cast<uint64_t*>(local)) {}

  int peer() const { return peer_; }

  // Ends the flight that has arrived and begins the next one. Returns whether it did anything.
  Expected<bool> advance(RemoteMemory& memory, Outbox& outbox);
  // The peer's next message.
  std::optional<Message> receive() { return mailbox_.take(); }
  // Records the address of the peer's allocation `handle`.
  void setAddress(uint32_t handle, uint64_t address);
  // The peer's abort message, cut to its section.
  std::string abortText(uint64_t bytes) const;

  // Sends the abort to the peer, ahead of all traffic that is not yet under way, which is dropped.
  void abort(const Abort& abort) { abort_ = abort; }
  bool isFlying() const { return flying_; }
  bool isIdle(Outbox& outbox) const {
    return !isFlying() && ready_.empty() && !abort_ && outbox.isEmpty(peer_);
  }
  const CommStats& stats() const { return stats_; }

 private:
  struct Flight {
    std::vector<PutOrder> puts;
    size_t bytes = 0;
    std::vector<uint64_t> words;
    std::vector<Message> after;  // may be read once the puts have arrived
    MPI_Request probe = MPI_REQUEST_NULL;
    uint64_t probed = 0;
    int64_t began = 0;
  };

  Expected<bool> end(RemoteMemory& memory, Outbox& outbox);
  Expected<bool> begin(RemoteMemory& memory, Outbox& outbox);
  void load(Outbox& outbox);
  Status sendWords(RemoteMemory& memory);
  Status sendPuts(RemoteMemory& memory);
  size_t sendable() const;
  bool owesCredit() const { return mailbox_.taken() - credited_ >= kMailboxMessages / 4; }

  const int peer_;
  const uint64_t remote_;
  std::byte* const local_;
  const BatchLimits limits_;
  FlightLength length_;  // replaces the byte limit of batches
  MailboxReader mailbox_;
  uint64_t credited_ = 0;  // messages taken from the mailbox, as last reported to the peer
  Flight flight_;
  bool flying_ = false;
  std::deque<Message> ready_;
  uint64_t sent_ = 0;                // messages
  std::vector<uint64_t> addresses_;  // of the peer's allocations
  std::optional<Abort> abort_;       // to be sent
  CommStats stats_;
};

}  // namespace sluice::mpi
