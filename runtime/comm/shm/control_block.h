// What all processes of a job keep at the beginning of their shared file: who is there, who is lost, why the
// step was aborted, and what was allocated.
//
// Lies in memory that all ranks map and write. Everything that two processes may touch at once is a lock-free
// atomic, and nobody waits for another to finish a change: a process may be killed between any two stores.
// It begins as zeros, as a new file is: nobody has to make it.
//
// What a dead process leaves in its own Doorbell (threads that attend or park for ever) costs whoever rings
// it a system call, and nothing else: it never attends to a doorbell of another rank, so that no living
// thread depends on its counts.
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
  // rank + 1 whose message is that of all; 0: not aborted. Only looked at in the hot path: a line of its own.
  alignas(64) std::atomic<uint32_t> aborted{0};
  alignas(64) std::atomic<uint32_t> lost{0};  // rank + 1 of the first that was lost; 0: none
  // By index: (bytes * kMaxProcesses + rank) + 1 of the rank that allocated first; 0: nobody yet.
  std::atomic<uint64_t> allocations[kMaxSharedAllocations] = {};
  RankControl ranks[kMaxProcesses];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace sluice
