// Session: the MPI of this process, and the ranks of this machine. Outlives everything that calls MPI.
//
// Resource type. Made and destroyed by one thread; between the two all calls of MPI are made by one thread at
// a time.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/comm/mpi/call_limit.h"

namespace sluice::mpi {

// An error that names the attempted operation, unless `code` is MPI_SUCCESS.
Status checked(int code, const char* what);

class Session {
 public:
  // Collective over all processes of the job.
  static Expected<std::unique_ptr<Session>> open(CallLimit& limit);
  // Collective, if this session initialised MPI: returns when all ranks have called it.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  MPI_Comm comm() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  // The ranks of this machine, ascending; this one is localRanks()[localRank()].
  const std::vector<int>& localRanks() const { return localRanks_; }
  int localRank() const { return localRank_; }

  // The same random name at all ranks of this machine, and of no other job.
  Expected<std::string> makeLocalName() const;

  // Ends all ranks of the job with status 1, after the message was printed.
  [[noreturn]] void end(const std::string& message) const;

 private:
  Session() = default;
  Status findNeighbours();

  bool initialised_ = false;  // by this session
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  std::vector<int> localRanks_;
  int localRank_ = 0;
};

}  // namespace sluice::mpi
