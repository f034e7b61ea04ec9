// CallLimit: ends this process when collective calls of MPI take too long.
//
// A rank that is stopped, or never joins, holds up all others in MPI calls that have no time limit: from
// MPI_Init to the first window, and from the end of that window to MPI_Finalize. A thread watches these
// calls; mpirun ends the job when one of its processes fails.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/base/expected.h"

namespace sluice::mpi {

class CallLimit {
 public:
  // Each phase may last `seconds` plus the time that MPI itself may need. Error: the system cannot start the
  // thread.
  static Expected<std::unique_ptr<CallLimit>> start(double seconds);
  ~CallLimit();
  CallLimit(const CallLimit&) = delete;
  CallLimit& operator=(const CallLimit&) = delete;

  // Begins a phase and its time limit. When the limit has passed, the process prints an error that names the
  // phase, and exits with status 1.
  void enter(const char* phase);
  // No limit until the next phase.
  void leave() { enter(nullptr); }

 private:
  explicit CallLimit(double seconds);
  void watch();

  const double seconds_;
  const std::string rank_;  // for the message
  std::mutex mutex_;        // guards the members below
  std::condition_variable changed_;
  const char* phase_ = nullptr;
  int phases_ = 0;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace sluice::mpi
