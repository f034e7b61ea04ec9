// StartLimit: ends this process where the start of MPI takes too long.
//
// A rank that is stopped, or never comes, holds up all others in calls of MPI that have no limit of their
// own. A thread watches instead; mpirun ends the job when one of its processes fails.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/base/expected.h"

namespace sluice::mpi {

class StartLimit {
 public:
  // For each phase, `seconds` and what MPI may take by itself. Error: the system has no thread for it.
  static Expected<std::unique_ptr<StartLimit>> start(double seconds);
  // In time.
  ~StartLimit();
  StartLimit(const StartLimit&) = delete;
  StartLimit& operator=(const StartLimit&) = delete;

  // The limit begins anew. Where it is over, the process says so with the phase, and ends with status 1.
  void enter(const char* phase);

 private:
  explicit StartLimit(double seconds);
  void watch();

  const double seconds_;
  const std::string rank_;  // for the message
  std::mutex mutex_;        // guards what follows
  std::condition_variable changed_;
  const char* phase_ = nullptr;
  int phases_ = 0;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace sluice::mpi
