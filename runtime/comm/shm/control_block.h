// ControlBlock: the beginning of the shared file of a job: which ranks have left or are lost, why the step
// was aborted, and the sizes of the allocations.
//
// All ranks map and write this memory. Everything that two processes may access at once is a lock-free
// atomic, and no process waits for another to finish a change, because a process may be killed between any
// two stores. Its initial value is all zeros, as in a new file: no process constructs it.
//
// A dead process may leave threads that attend to or park on its own Doorbell. A rank that rings it then
// makes a useless system call; nothing else happens, because a process never attends to the doorbell of
// another rank, so no living thread depends on those counts.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/comm/transport.h"

namespace sluice {

inline constexpr int kMaxProcesses = 240;  // a message between processes carries at most 253 open files
inline constexpr size_t kMaxSharedAllocations = 4096;
inline constexpr size_t kMaxAbortMessage = 4096;

struct RankControl {
  alignas(64) Doorbell bell;
  alignas(64) std::atomic<uint32_t> left{0};  // 1: this rank has destroyed its transport
  // Written once, only by this rank, before it tries to make its message the one of the job.
  uint32_t messageLength = 0;
  char message[kMaxAbortMessage] = {};
};

struct ControlBlock {
  // rank + 1 of the rank whose message counts; 0: not aborted. Has its own cache line, because the hot path
  // reads it.
  alignas(64) std::atomic<uint32_t> aborted{0};
  alignas(64) std::atomic<uint32_t> lost{0};  // rank + 1 of the first lost rank; 0: none
  // By index: (bytes * kMaxProcesses + rank) + 1 of the rank that allocated first; 0: not allocated yet.
  std::atomic<uint64_t> allocations[kMaxSharedAllocations] = {};
  RankControl ranks[kMaxProcesses];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace sluice
