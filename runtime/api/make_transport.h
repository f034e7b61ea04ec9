// makeTransports: the one place that knows every way in which ranks reach each other.
//
// Only programs linked with //runtime/comm/mpi have MPI; others that use this link
// //runtime/comm/mpi:without.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/comm/transport.h"

namespace sluice {

// How the ranks of a job come to be.
enum class RanksAre : uint8_t {
  kThreads,    // of one process
  kProcesses,  // of one machine, which know their numbers and the name of the job
  kMpi,        // processes that mpirun started: it knows the rest
};

// By names, as in Transport::kind().
using TransportKinds = std::vector<std::pair<std::string, RanksAre>>;
TransportKinds transportKinds();

struct TransportSpec {
  std::string kind = "threads";
  int size = 1;
  // Where ranks are processes: of this process.
  int rank = 0;
  std::string job = "";        // its name, the same at all ranks of this job, and of no other job
  double timeoutSeconds = 30;  // for all ranks to come
};

// Of the ranks that this process is: all of them where they are threads, else one. Collective where they are
// processes. Called before there are threads of ranks. Errors: an unknown kind, and those of the transports.
Expected<std::vector<std::shared_ptr<Transport>>> makeTransports(const TransportSpec& spec);

// Where this process is one rank.
Expected<std::shared_ptr<Transport>> makeTransport(const TransportSpec& spec);

}  // namespace sluice
