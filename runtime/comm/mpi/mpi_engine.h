// MpiEngine: one-sided MPI-3, by one thread at a time, which MPI_THREAD_SERIALIZED allows.
//
// Over TCP, Open MPI makes progress only inside its calls, so the courier sleeps for short times only
// (rest()).
#pragma once

#include <deque>
#include <memory>

#include "runtime/comm/mpi/call_limit.h"
#include "runtime/comm/mpi/link.h"
#include "runtime/comm/mpi/mailbox.h"
#include "runtime/comm/mpi/remote_memory.h"
#include "runtime/comm/mpi/session.h"
#include "runtime/comm/network/engine.h"

namespace sluice::mpi {

class MpiEngine final : public network::Engine {
 public:
  // Collective. `limit` must be in the phase in which all ranks meet.
  static Expected<std::unique_ptr<MpiEngine>> create(std::unique_ptr<Session> session,
                                                     std::unique_ptr<CallLimit> limit,
                                                     const BatchLimits& limits);
  // Collective: returns when all ranks have called it.
  ~MpiEngine() override;

  std::string_view kind() const override { return "mpi"; }
  uint32_t epoch() const override { return bell_.epoch(); }
  void wake() override { bell_.ring(); }
  void rest(uint32_t seen, int64_t still) override;
  Status attach(std::byte* base, size_t bytes) override { return memory_->attach(base, bytes); }
  Expected<bool> turn(Outbox& outbox, network::Receiver& receiver) override;
  void abort(const Abort& abort) override;
  // `rank` has left, and received all that this one sent to it.
  bool isDone(int rank, Outbox& outbox) const override;
  Status finish(int rank) override;
  CommStats stats() const override;
  // Ends the job.
  void giveUp(const std::string& message) override { session_->end(message); }

 private:
  MpiEngine(std::unique_ptr<Session> session, std::unique_ptr<CallLimit> limit);
  Status open(const BatchLimits& limits);
  const Link& linkTo(int rank) const;
  bool receive(Link& link, network::Receiver& receiver);

  std::unique_ptr<CallLimit> limit_;  // declared first: it also covers the end of the session
  std::unique_ptr<Session> session_;
  ControlMemory control_;
  std::unique_ptr<RemoteMemory> memory_;
  std::deque<Link> links_;  // to all other ranks, from the next one on
  std::vector<bool> left_;
  Doorbell bell_;  // rung for the courier
};

}  // namespace sluice::mpi
