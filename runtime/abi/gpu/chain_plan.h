// What a persistent kernel (chain.h) is given: tasks, what they do, and their lists; and its launch. Values,
// made by the host. Plain types, because nvcc and g++ both read it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/abi/gpu/product_plan.h"
#include "runtime/abi/gpu/row_plan.h"

namespace sluice::gpu {

inline constexpr int kChainThreads = 384;
inline constexpr int kMaxLanes = 32;  // of a role, per core
inline constexpr int kMaxWaits = 2;
inline constexpr int kMaxSignals = 3;
inline constexpr int kCounterStride = 8;  // counters are 64 bytes apart
inline constexpr uint32_t kNoTask = ~0U;  // the record that lets a role leave

// Which of the lists of Chain has a task's work.
enum class TaskKind : uint32_t { kProduct = 0, kWeightGrad = 1, kRowCopy = 2, kRowWork = 3 };

struct EventWait {
  uint32_t event;
  uint32_t need;  // 0: nothing to wait for
};

struct EventSignal {
  uint32_t event;
  uint32_t amount;  // 0: no signal
  int32_t rank;     // whose counter it is
};

struct ChainTask {
  TaskKind kind;
  uint32_t work;     // index in the list of that kind
  uint32_t segment;  // later ones wait slightly longer, so that in a chain of waits the one nearest to the
                     // cause reports
  EventWait waits[kMaxWaits];
  EventSignal signals[kMaxSignals];
};

// Who runs the tasks of a lane: `load` hands work to math, `comm` copies rows.
enum class Role : uint32_t { kLoad = 0, kComm = 1 };
inline constexpr int kRoles = 2;

enum class Stuck : uint32_t {
  kNo = 0,
  kEvent = 1,   // a lane's head waited for it
  kRecord = 2,  // math did not take a task
  kStage = 3,   // math did not release a stage
};

// A role that waited too long before a task reports this. Only kEvent has an event, its count and what the
// task needs. After the last task of a block, `task` is kNoTask and `core` its first.
struct StuckReport {
  Stuck stuck;
  uint32_t core, lane, task, event;
  uint64_t have, need;
};

// The arguments of the kernel for one rank. All that it points to is in global memory, written by the host
// before.
struct Chain {
  const Matrix* matrices;
  const ChainTask* tasks;
  const Product* products;
  const WeightGrad* weightGrads;
  const RowCopy* rowCopies;
  const RowWork* rowWorks;
  const uint32_t* lists;  // lane l of core c: tasks lists[i] to lists[i + 1] - 1, i = c * all lanes + l
  int cores;
  int lanes[kRoles];  // per core, at most kMaxLanes each; first the lanes of load. An earlier lane goes first
  uint64_t* const* counters;  // by rank
  int rank;
  uint64_t* abort;
  uint32_t* heads;       // as lists: the next task of each lane; the host starts them with lists
  StuckReport* reports;  // by block and role
  uint64_t limit;        // ns
};

// A launch runs one rank, or several as partitions of it.
inline constexpr int kMaxPartitions = 8;
struct Launch {
  Chain chains[kMaxPartitions];
  int partitions;
};

inline constexpr int kLaunchedColumns = 256;

// Starts the kernel in that stream of CUDA (a cudaStream_t), with tiles of kLaunchedColumns. `activation` is
// the one of all tasks that have an activation; null: they have several, and the kernel is the larger one
// that has the code of all. All blocks run at the same time: there are at most as many as the GPU has SMs,
// and a multiple of the number of partitions. Returns what CUDA said; null: nothing was wrong.
const char* launchChain(const Launch& launch, const ActivationKind* activation, int blocks, void* stream);

}  // namespace sluice::gpu
