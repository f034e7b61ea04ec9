// How the processes of a job find each other: rank 0 listens at a name, the others connect to it, and when
// all have connected each gets the shared file and the means to notice the end of every other process.
//
// The name is in use only during the meeting. The user, version, rank and number of ranks of every connection
// are checked; connections of strangers are refused without delaying the meeting. Every refusal is answered
// with its reason.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/comm/shm/shared_memory.h"

namespace sluice {

inline constexpr uint64_t kRendezvousMagic = 0x0a65'6369'756c'730d;  // "\rsluice\n"
inline constexpr uint32_t kRendezvousVersion = 1;

// The first message of a connecting rank. Later versions keep the position of magic and version.
struct RendezvousHello {
  uint64_t magic = kRendezvousMagic;
  uint32_t version = kRendezvousVersion;
  int32_t rank = 0;
  int32_t size = 0;
  int32_t reserved = 0;
};

// The answer, the same in every version. If the rank is refused, the reason follows; if it is welcome, the
// process ids by rank follow, with the shared file and, if the system has them, the life lines of all ranks.
struct RendezvousReply {
  uint64_t magic = kRendezvousMagic;
  uint32_t version = kRendezvousVersion;
  uint32_t refused = 0;
};

// A file that becomes readable when a process of the job ends.
struct LifeLine {
  int rank = 0;
  FileDescriptor file;
};

struct Meeting {
  FileDescriptor memory;
  std::vector<int32_t> processes;   // by rank
  std::vector<LifeLine> lifeLines;  // of other ranks
};

// kConnections: for systems without pidfds. The connections of the meeting stay open, so that rank 0 notices
// the end of any other rank, and the others notice the end of rank 0.
enum class LifeLineKind { kProcessFiles, kConnections };

// The abstract name of the socket at which rank 0 of that job of this user waits.
std::string rendezvousName(const std::string& job);

// Collective over the job, whose rank and size must be legal.
Expected<Meeting> meet(const SharedMemoryJob& job, LifeLineKind kind = LifeLineKind::kProcessFiles);

// The two sides of meet(), for rank 0 and for the others. `deadline` is a monotonicNanoseconds() time.
Expected<Meeting> hostRendezvous(const SharedMemoryJob& job, LifeLineKind kind, int64_t deadline);
Expected<Meeting> visitRendezvous(const SharedMemoryJob& job, int64_t deadline);

}  // namespace sluice
