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
// of the environment, except variables that are already set. joinMpi() calls it if it initialises MPI;
// programs that initialise MPI themselves may call it before.
void setMpiDefaults();

// SLUICE_MPI_NEIGHBOURS=memory|messages and SLUICE_MPI_SIGNALS=batched|each in the environment override the
// fields, so that the gain of the defaults can be measured.
struct MpiJob {
  // Time limit for all ranks to join. MPI itself has no limit: if its start takes 20 s longer than this, the
  // process ends with a message that names the rank and the call.
  double timeoutSeconds = 30;
  bool sharedMemory = true;  // between ranks of one machine; false: they use messages, too
  bool batchSignals = true;  // signals to one rank are collected and share a flush
};

// Collective over MPI_COMM_WORLD, once per process. Initialises MPI unless the caller did (with at least
// MPI_THREAD_SERIALIZED); only in the first case does the end of the transport finalise MPI. Errors: the
// program has no MPI; the thread level is too low; the MPI has no one-sided communication.
Expected<std::unique_ptr<Transport>> joinMpi(const MpiJob& job);

}  // namespace sluice
