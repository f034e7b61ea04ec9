// Session: the MPI of this process, and the ranks of this machine. It outlives everything that calls MPI.
//
// Resource type. One thread makes and destroys it; between the two, one thread at a time calls MPI.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>

#include "runtime/base/expected.h"
#include "runtime/comm/mpi/call_limit.h"
#include "runtime/comm/network/engine.h"

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
  const network::Place& place() const { return place_; }

  // The same random name at all ranks of this machine; no other job has it.
  Expected<std::string> makeLocalName() const;

  // Ends all ranks of the job with status 1 after printing the message.
  [[noreturn]] void end(const std::string& message) const;

 private:
  Session() = default;
  Status findNeighbours();

  bool initialised_ = false;  // whether this session initialised MPI
  MPI_Comm comm_ = MPI_COMM_NULL;
  network::Place place_;
};

}  // namespace sluice::mpi
