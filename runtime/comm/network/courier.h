// Courier: the thread of a rank that makes all calls of its engine while workers compute.
//
// Networks make progress only inside the calls of their libraries, at the receiver too: without this thread a
// put would wait until the receiver's next call, and workers would wait for each other. The courier never
// waits for a task, or for a lock that is held across one, so two couriers always complete each other's
// traffic.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "runtime/comm/network/engine.h"

namespace sluice::network {

class Courier {
 public:
  // The receiver must outlive it. Error: the system cannot start the thread.
  static Expected<std::unique_ptr<Courier>> start(std::unique_ptr<Engine> engine, const Place& place,
                                                  Receiver& receiver);
  // Ends the engine, too.
  ~Courier();
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  // Any thread. Wakes the courier. Returns false if there was no room within the time limit.
  bool put(int rank, uint32_t handle, size_t offset, const void* data, size_t bytes, double seconds);
  void post(int rank, const Message& message);
  // When it returns, other ranks may put to this memory. Errors: from the engine; the time limit has passed,
  // for example because another rank was stopped while it read this rank's memory.
  Status attach(std::byte* base, size_t bytes, double seconds);
  // After receiver.aborted() returns an abort.
  void wake() { engine_->wake(); }
  CommStats stats();

  // Announces that this rank leaves, and returns when the engine may end (Engine::isDone). If a rank holds
  // that up beyond the time limit, or the network failed, gives the engine up.
  void finish(double seconds);

 private:
  Courier(std::unique_ptr<Engine> engine, const Place& place, Receiver& receiver);
  void run();
  Expected<bool> turn();
  void spreadAbort();
  void sayLeft();
  void rest(bool moved, uint32_t epoch);
  bool isDone();
  void end(const Status& result);

  std::unique_ptr<Engine> engine_;
  const Place place_;
  Receiver& receiver_;
  Outbox outbox_;
  int64_t lastMoved_ = 0;
  bool spread_ = false;    // the abort was sent to the others
  bool saidLeft_ = false;  // the others were notified that this rank left

  std::mutex mutex_;        // guards the members below
  std::string unfinished_;  // the ranks that finish() waits for, for messages; at first all
  std::condition_variable changed_;
  std::function<Status()> request_;  // from attach(), until the courier takes it
  std::optional<Status> answer_;     // the result of the request
  bool finishing_ = false;
  bool givenUp_ = false;
  bool ended_ = false;
  Status failure_;
  CommStats stats_;
  std::thread thread_;
};

}  // namespace sluice::network
