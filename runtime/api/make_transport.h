// makeTransports: the only function that knows every way in which ranks can reach each other that have a
// launcher. (Those that exchange addresses themselves have UCX, too: comm/ucx.)
//
// Only programs linked with //runtime/comm/mpi have MPI; other users of this library link
// //runtime/comm/mpi:without.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/comm/transport.h"

namespace sluice {

// What the ranks of a job are.
enum class RanksAre : uint8_t {
  kThreads,    // threads of one process
  kProcesses,  // processes of one machine, given their rank, number of ranks and job name
  kMpi,        // processes that mpirun started, which knows their numbers
};

// By name, as in Transport::kind().
using TransportKinds = std::vector<std::pair<std::string, RanksAre>>;
TransportKinds transportKinds();

struct TransportSpec {
  std::string kind = "threads";
  int size = 1;
  // For ranks that are processes: the rank of this process.
  int rank = 0;
  std::string job = "";        // its name, the same at all ranks of this job, and of no other job
  double timeoutSeconds = 30;  // for all ranks to join
};

// The transports of the ranks in this process: of all ranks if they are threads, otherwise of one. Collective
// if ranks are processes. Call it before ranks have threads. Errors: an unknown kind; errors of the
// transports.
Expected<std::vector<std::shared_ptr<Transport>>> makeTransports(const TransportSpec& spec);

// For a process that is one rank.
Expected<std::shared_ptr<Transport>> makeTransport(const TransportSpec& spec);

}  // namespace sluice
