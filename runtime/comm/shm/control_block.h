// ControlBlock: the beginning of the shared file of a job: which ranks have left or are lost, why the step
// was aborted, and the sizes allocated.
//
// It is in memory that all ranks map and write. Everything that two processes may access at once is a
// lock-free atomic, and no process waits for another to finish a change, because a process may be killed
// between any two stores. Zeros are its initial value, as in a new file: no process constructs it.
//
// A dead process may leave threads that attend or park in its own Doorbell. That costs a rank that rings it a
// system call, and nothing else: a process never attends to a doorbell of another rank, so that no living
// thread depends on those counts.
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
  alignas(64) std::atomic<uint32_t> left{0};  // 1: this rank has ended its transport in good order
  // Written by this rank alone, once, before it tries to make it the message of all.
  uint32_t messageLength = 0;
  char message[kMaxAbortMessage] = {};
};

struct ControlBlock {
  // rank + 1 of the one whose message counts; 0: not aborted. Read in the hot path: on a line of its own.
  alignas(64) std::atomic<uint32_t> aborted{0};
  alignas(64) std::atomic<uint32_t> lost{0};  // rank + 1 of the first lost rank; 0: none
  // By index: (bytes * kMaxProcesses + rank) + 1 of the rank that allocated first; 0: no rank yet.
  std::atomic<uint64_t> allocations[kMaxSharedAllocations] = {};
  RankControl ranks[kMaxProcesses];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace sluice
