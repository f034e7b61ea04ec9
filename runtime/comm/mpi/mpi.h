// Ranks as processes that mpirun started, on one machine or several. Ranks of one machine reach each other
// through shared memory, others by one-sided MPI-3.
//
// Only programs linked with //runtime/comm/mpi need an MPI library; those linked with
// //runtime/comm/mpi:without report that they have none.
#pragma once

#include <memory>

#include "runtime/base/expected.h"
#include "runtime/comm/transport.h"

namespace sluice {

// Whether this program was linked with MPI.
bool hasMpi();

// Sets what Open MPI does not choose correctly by itself (docs/RANKS.md, "Which MPI") as OMPI_MCA_ variables
// of the environment, except variables that are set. joinMpi() calls it where it initialises MPI; other
// programs may call it before they initialise MPI.
void setMpiDefaults();

// SLUICE_MPI_NEIGHBOURS=memory|messages and SLUICE_MPI_SIGNALS=batched|each in the environment take
// precedence over the fields, to measure what the defaults gain.
struct MpiJob {
  // The time for all ranks to join. MPI itself waits without a limit: where its start takes 20 s more, the
  // process ends with a message that names the rank and the call it waited in.
  double timeoutSeconds = 30;
  bool sharedMemory = true;  // between ranks of one machine; false: everything by messages
  bool batchSignals = true;  // signals to one rank are collected and share a flush
};

// Collective over MPI_COMM_WORLD, once per process. Initialises MPI unless the caller did (then with
// MPI_THREAD_SERIALIZED at least), and if so finalises it when the transport ends. Errors: no MPI in this
// program; a level of threads that is too low; an MPI without one-sided communication.
Expected<std::unique_ptr<Transport>> joinMpi(const MpiJob& job);

}  // namespace sluice
