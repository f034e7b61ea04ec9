// Ranks as processes of one machine: their symmetric memory is one file without a name that all of them map.
//
// Nothing of it is found in any directory, so that nothing is left however the processes end. The death of a
// process is noticed at once and aborts the step of all others.
#pragma once

#include <memory>
#include <string>

#include "runtime/base/expected.h"
#include "runtime/comm/transport.h"

namespace sluice {

struct SharedMemoryJob {
  std::string name;  // the same at all ranks of this job, and of no other job of this user
  int rank = 0;
  int size = 1;
  double timeoutSeconds = 30;  // for all ranks to come
};

// Collective: every rank of the job calls it in a process of its own. Destroying the transport leaves the job
// in good order; a process that ends without that is lost. Errors: a rank that does not come, comes twice, is
// of another user, or expects another number of ranks.
Expected<std::unique_ptr<Transport>> joinSharedMemory(const SharedMemoryJob& job);

}  // namespace sluice
