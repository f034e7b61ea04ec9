// Engine: how a rank sends to other ranks over a network and receives from them. Everything else that ranks
// of several machines need is the same for all networks: Courier, Outbox, NetworkTransport.
//
// Only the courier's thread calls an engine, except epoch() and wake(). No function waits for a task of any
// rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/comm/network/outbox.h"
#include "runtime/comm/transport.h"

namespace sluice::network {

// The number of a rank among all ranks, and the ranks of its machine. A value.
struct Place {
  int rank = 0;
  int size = 1;
  std::vector<int> localRanks{0};  // of this machine, ascending
  int localRank = 0;               // localRanks[localRank] == rank
};

// Takes what arrives.
class Receiver {
 public:
  virtual ~Receiver() = default;
  // Signals, posts, allocations, and the notice that the rank has left.
  virtual void take(int source, const Message& message) = 0;
  // Another rank aborted or was lost, or the network failed.
  virtual void takeAbort(const Abort& abort) = 0;
  // The abort to send to other ranks, if this rank or one of its neighbours has aborted.
  virtual std::optional<Abort> aborted() = 0;
  // This rank's copy of a part of an allocation, or null if there is no such part.
  virtual std::byte* memory(uint32_t handle, uint64_t offset, uint64_t bytes) = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;

  // As in Transport::kind().
  virtual std::string_view kind() const = 0;

  // Any thread. wake() ends a sleep; the epoch then is another one.
  virtual uint32_t epoch() const = 0;
  virtual void wake() = 0;
  // Sleeps until something arrives, can be sent, or the epoch is no longer `seen`; for less if it cannot see
  // that. `still`: nanoseconds since there was work.
  virtual void rest(uint32_t seen, int64_t still) = 0;

  // Lets other ranks put to this memory as long as the engine exists.
  virtual Status attach(std::byte* base, size_t bytes) = 0;
  // Receives what has arrived, and sends what the outbox has. Returns whether it did anything.
  virtual Expected<bool> turn(Outbox& outbox, Receiver& receiver) = 0;
  // Sends the abort to all ranks, ahead of all traffic that is not yet under way.
  virtual void abort(const Abort& abort) = 0;
  // After this rank has sent kLeft to `rank`: whether the engine may end, as far as `rank` is concerned.
  virtual bool isDone(int rank, Outbox& outbox) const = 0;
  // Completes what the rules of this engine require beyond the rules of a network; the last call.
  virtual Status finish(int rank) = 0;
  virtual CommStats stats() const = 0;

  // The thread that ends the transport: other ranks have not left in time, or the network failed. May end the
  // process.
  virtual void giveUp(const std::string& message) = 0;
};

}  // namespace sluice::network
