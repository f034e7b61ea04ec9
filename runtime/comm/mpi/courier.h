// Courier: the only thread of a rank that calls MPI while ranks work.
//
// Over TCP, Open MPI makes progress only inside its calls (at the receiver too) and allows one thread at a
// time: without this thread a put would wait until the receiver's next call, and workers would wait for each
// other. The courier never waits for a task, or for a lock that is held across one, so two couriers always
// complete each other's traffic. It sleeps when there is no traffic (Courier::rest).
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/mpi/control_memory.h"
#include "runtime/comm/mpi/link.h"
#include "runtime/comm/mpi/outbox.h"
#include "runtime/comm/mpi/remote_memory.h"
#include "runtime/comm/mpi/session.h"

namespace sluice::mpi {

// Receives what arrives; called by the courier's thread.
class Receiver {
 public:
  virtual ~Receiver() = default;
  // Signals, posts, allocations, and the notice that the rank has left.
  virtual void take(int source, const Message& message) = 0;
  // Another rank aborted, or MPI failed.
  virtual void takeAbort(const Abort& abort) = 0;
  // The abort to send to other ranks, if this rank or one of its neighbours has aborted.
  virtual std::optional<Abort> aborted() = 0;
};

class Courier {
 public:
  // Collective. Session and receiver must outlive it. If the system cannot start the thread, all ranks end.
  static Expected<std::unique_ptr<Courier>> start(const Session& session, Receiver& receiver,
                                                  const BatchLimits& limits);
  // Only after finish().
  ~Courier();
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  // Any thread. Wakes the courier. Returns false if there was no room within the time limit.
  bool put(int rank, uint32_t handle, size_t offset, const void* data, size_t bytes, double seconds);
  void post(int rank, const Message& message);
  // When it returns, other ranks may access this memory. Errors: those of MPI; the time limit has passed, for
  // example because another rank was stopped while it read this rank's windows.
  Status attach(std::byte* base, size_t bytes, double seconds);
  // After receiver.aborted() returns an abort.
  void wake() { bell_.ring(); }
  CommStats stats();

  // Collective: announces that this rank leaves, and returns when all others have left and everything they
  // sent has been received. Errors: a rank did not leave within the time limit; MPI failed.
  Status finish(double seconds);

 private:
  Courier(const Session& session, Receiver& receiver, const BatchLimits& limits);
  Status open();
  void run();
  Expected<bool> turn();
  bool receive(Link& link);
  void spreadAbort();
  void sayLeft();
  void rest(bool moved, uint32_t epoch);
  bool isDone();
  void fail(const std::string& message);

  const Session& session_;
  Receiver& receiver_;
  const BatchLimits limits_;
  ControlMemory control_;
  Outbox outbox_;
  std::unique_ptr<RemoteMemory> memory_;
  std::deque<Link> links_;  // to all other ranks
  Doorbell bell_;           // rung for the courier
  int64_t lastMoved_ = 0;
  bool spread_ = false;    // the abort was sent to the others
  bool saidLeft_ = false;  // the others were notified that this rank left
  std::vector<bool> left_;

  std::mutex mutex_;        // guards the members below
  std::string unfinished_;  // the ranks that finish() waits for, for messages
  std::condition_variable changed_;
  std::function<Status()> request_;  // from attach(), until the courier takes it
  std::optional<Status> answer_;     // the result of the request
  bool finishing_ = false;
  bool ended_ = false;
  Status failure_;
  CommStats stats_;
  std::thread thread_;
};

}  // namespace sluice::mpi
