// How the processes of a job find each other: rank 0 waits at a name, the others come there, and when all are
// there each gets the shared file and the means to notice the end of every other process.
//
// Nobody listens before or after. What comes is checked: user, version, rank and number of ranks; a stranger
// is sent away and holds nobody up. Whoever is refused is told why.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/comm/shm/file_descriptor.h"
#include "runtime/comm/shm/shared_memory.h"

namespace sluice {

inline constexpr uint64_t kRendezvousMagic = 0x0a65'6369'756c'730d;  // "\rsluice\n"
inline constexpr uint32_t kRendezvousVersion = 1;

// First message of a rank that comes. Magic and version stay where they are in later versions.
struct RendezvousHello {
  uint64_t magic = kRendezvousMagic;
  uint32_t version = kRendezvousVersion;
  int32_t rank = 0;
  int32_t size = 0;
  int32_t reserved = 0;
};

// The answer, the same in every version. Behind it stand, refused: the reason; welcome: the processes by
// rank, with the shared file and, if the system has such, the life lines of all ranks.
struct RendezvousReply {
  uint64_t magic = kRendezvousMagic;
  uint32_t version = kRendezvousVersion;
  uint32_t refused = 0;
};

// A file that can be read once a process of the job has ended.
struct LifeLine {
  int rank = 0;
  FileDescriptor file;
};

struct Meeting {
  FileDescriptor memory;
  std::vector<int32_t> processes;   // by rank
  std::vector<LifeLine> lifeLines;  // of other ranks
};

// kConnections: what the ranks met through stays open, and tells rank 0 of the end of any other and the
// others of that of rank 0. For systems that have no files of processes.
enum class LifeLineKind { kProcessFiles, kConnections };

// The abstract name of the socket at which rank 0 of that job of this user waits.
std::string rendezvousName(const std::string& job);

// Collective over the job, of which rank and size are legal.
Expected<Meeting> meet(const SharedMemoryJob& job, LifeLineKind kind = LifeLineKind::kProcessFiles);

// Its two halves, of rank 0 and of the others. `deadline` in monotonicNanoseconds().
Expected<Meeting> hostRendezvous(const SharedMemoryJob& job, LifeLineKind kind, int64_t deadline);
Expected<Meeting> visitRendezvous(const SharedMemoryJob& job, int64_t deadline);

}  // namespace sluice
