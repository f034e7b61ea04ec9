// Ranks as processes of one machine: their symmetric memory is one nameless file that all of them map.
//
// The file is in no directory, so nothing is left over however the processes end. A thread that otherwise
// sleeps notices the death of a process at once and aborts the step of all others. A stopped process is not
// dead, and neither is one that left.
//
// Memory is taken when it is touched. If the machine, or a limit of its container, has none left, the process
// that touches it is killed (by SIGBUS or by the out-of-memory killer); that cannot be reported as an error
// here, but the other ranks report the death. A forked child of a rank may end, exec, or destroy its copy of
// the transport; nothing else.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "runtime/base/expected.h"
#include "runtime/comm/transport.h"

namespace sluice {

inline constexpr size_t kMaxJobName = 64;  // bytes

struct SharedMemoryJob {
  std::string name;  // the same at all ranks of this job, and of no other job of this user; 1 to 64 bytes
  int rank = 0;
  int size = 1;                // at most 240
  double timeoutSeconds = 30;  // for all ranks to join
};

// Collective: every rank of the job calls it in a process of its own. A rank leaves the job by destroying the
// transport; a process that ends without that is lost. Errors: a rank does not join, joins twice, belongs to
// another user, or expects another number of ranks; an invalid time limit.
Expected<std::unique_ptr<Transport>> joinSharedMemory(const SharedMemoryJob& job);

}  // namespace sluice
