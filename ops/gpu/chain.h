// A persistent kernel: cores with lanes of tasks, which wait for events and signal them.
//
// Block b of n plays the cores c with c mod n = b, so any number of blocks is right. A lane is a list of
// tasks in their order, and belongs to a role. Warp 0 (load) looks at the heads of all its lanes of a core at
// once, takes the first that is ready, and issues its loads; two warpgroups (math) multiply in the order in
// which tasks were taken. Warps 1 to 3 (comm) copy rows: warp 1 looks for tasks likewise. Only ready tasks
// are taken, so that what was begun never waits for an event.
//
// Events are counters. A wait that lasts too long ends in a report and an abort, after which all blocks
// leave. Several ranks may be partitions of one launch: each has as many blocks, and a Chain of its own.
#pragma once

#include "ops/gpu/activation.h"
#include "ops/gpu/copy_rows.h"
#include "ops/gpu/hw.h"
#include "ops/gpu/product.h"
#include "ops/gpu/ring.h"
#include "ops/gpu/row_work.h"
#include "ops/gpu/task_record.h"
#include "ops/gpu/weight_grad.h"
#include "runtime/abi/gpu/chain_plan.h"

namespace sluice::gpu {

// One is filled while the tasks of the other are multiplied.
inline constexpr int kRecords = 2;

template <class Shape>
struct ChainMemory {  // shared
  ProductMemory<Shape> products;
  Ring<kRecords> ring;  // of records: filled by one arrival, emptied by 8 warps
  TaskRecord records[kRecords];
  FencedMaps fenced;
  uint32_t copied;  // the task of comm
};

// The tiles that the kernel is made for: as many stages as fit into the shared memory of a block.
using NarrowShape = ProductShape<128, 6>;
using WideShape = ProductShape<256, 4>;

// A rank's blocks, and which of them this one is.
struct BlockShare {
  int index, count;
};

// ---- The heads of lanes, by a warp. Lane i of the warp serves lane i of the core that is of its role.

struct Head {
  uint32_t task;
  uint32_t end;      // of the lane
  uint32_t waiting;  // bit i: waits[i] was not yet found complete
};

SLUICE_DEVICE uint64_t* findCounter(const Chain& chain, int rank, uint32_t event) {
  return load(&chain.counters[rank]) + static_cast<size_t>(event) * kCounterStride;
}

// By one thread, for what the task's threads have stored before a barrier with it.
SLUICE_DEVICE void signalEnd(const Chain& chain, const ChainTask* task) {
  for (int i = 0; i < kMaxSignals; ++i) {
    const EventSignal* const each = &task->signals[i];
    const uint32_t amount = load(&each->amount);
    if (amount == 0) continue;
    const int rank = load(&each->rank);
    uint64_t* const counter = findCounter(chain, rank, load(&each->event));
    if (rank == chain.rank)
      signal(counter, amount);
    else
      signalSystem(counter, amount);
  }
}

// Where the lists and heads have the warp's lane of a core.
SLUICE_DEVICE int listIndex(const Chain& chain, Role role, int core) {
  return core * (chain.lanes[0] + chain.lanes[1]) + (role == Role::kComm ? chain.lanes[0] : 0) + laneIndex();
}

SLUICE_DEVICE Head readHead(const Chain& chain, Role role, int core) {
  if (laneIndex() >= chain.lanes[static_cast<int>(role)]) return {0, 0, 0};
  const int list = listIndex(chain, role, core);
  return {load(&chain.heads[list]), load(&chain.lists[list + 1]), (1U << kMaxWaits) - 1};
}

SLUICE_DEVICE bool isReady(const Chain& chain, Head* head) {
  if (head->task == head->end) return false;
  const ChainTask* const task = &chain.tasks[head->task];
  for (uint32_t i = 0; i < kMaxWaits; ++i) {
    if ((head->waiting >> i & 1) == 0) continue;
    const uint32_t need = load(&task->waits[i].need);
    if (need == 0 || loadRelaxed(findCounter(chain, chain.rank, load(&task->waits[i].event))) >= need)
      head->waiting &= ~(1U << i);
  }
  return head->waiting == 0;
}

SLUICE_DEVICE void abortWith(const Chain& chain, BlockShare share, Role role, const StuckReport& stuck) {
  StuckReport* const report = &chain.reports[share.index * kRoles + static_cast<int>(role)];
  store(&report->core, stuck.core);
  store(&report->lane, stuck.lane);
  store(&report->task, stuck.task);
  store(&report->event, stuck.event);
  store(&report->have, stuck.have);
  store(&report->need, stuck.need);
  store(&report->stuck, stuck.stuck);
  signalSystem(chain.abort, 1);
}

// By the warp: reports the lane of a core that has waited too long for an event, if there is one. Of several,
// it is the first lane of the earliest segment.
SLUICE_DEVICE bool reportHead(const Chain& chain, BlockShare share, Role role, int core, uint64_t waited) {
  Head head = readHead(chain, role, core);
  const bool isWaiting = head.task != head.end && !isReady(chain, &head);
  const uint32_t segment = isWaiting ? load(&chain.tasks[head.task].segment) : kNoTask;
  uint32_t earliest = segment;
  SLUICE_LOOP
  for (int lane = 0; lane < 32; ++lane) {
    const uint32_t other = shuffle(segment, lane);
    if (other < earliest) earliest = other;
  }
  // as on the CPU (runtime/cpu/backoff.cc); kNoTask: what one look found waiting is ready now
  const uint64_t grace = chain.limit / 10 < 100'000'000 ? chain.limit / 10 : 100'000'000;
  if (earliest == kNoTask) return false;
  // the lanes' clocks differ, and they must stay together
  if (ballot(waited > chain.limit + earliest * grace) == 0) return false;
  const uint32_t candidates = ballot(segment == earliest);
  if (segment != earliest || (candidates & ((1U << laneIndex()) - 1)) != 0)
    return true;  // another is the first
  const EventWait* const wait = &chain.tasks[head.task].waits[(head.waiting & 1) != 0 ? 0 : 1];
  const uint32_t event = load(&wait->event);
  abortWith(chain, share, role,
            {Stuck::kEvent, static_cast<uint32_t>(core), static_cast<uint32_t>(laneIndex()), head.task, event,
             loadRelaxed(findCounter(chain, chain.rank, event)), load(&wait->need)});
  return true;
}

// One look at a core by the warp.
struct Look {
  bool isOpen;  // some lane has tasks left
  bool tookOne;
  Stuck stuck;
};

// Run: Stuck run(uint32_t task), by the warp.
template <class Run>
SLUICE_DEVICE Look serveCore(const Chain& chain, BlockShare share, Role role, int core, Head* head,
                             const Run& run) {
  const bool isOpen = ballot(head->task != head->end) != 0;
  const uint32_t ready = ballot(isReady(chain, head));
  if (ready == 0) return {isOpen, false, Stuck::kNo};
  int lane = 0;
  while ((ready >> lane & 1) == 0) ++lane;
  fenceAcquire();
  syncWarp();  // what any lane has found is known to all
  const uint32_t task = shuffle(head->task, lane);
  const Stuck stuck = run(task);
  if (laneIndex() == lane) {
    store(&chain.heads[listIndex(chain, role, core)], ++head->task);
    head->waiting = (1U << kMaxWaits) - 1;
  }
  if (stuck != Stuck::kNo && laneIndex() == 0)
    abortWith(chain, share, role,
              {stuck, static_cast<uint32_t>(core), static_cast<uint32_t>(lane), task, 0, 0, 0});
  return {true, true, stuck};
}

// Runs the tasks of all lanes of a role on the block's cores. False: something was stuck, and is reported.
template <class Run>
SLUICE_DEVICE bool serveCores(const Chain& chain, BlockShare share, Role role, const Run& run) {
  Head head = {0, 0, 0};
  int held = -1;  // the core whose heads these are
  uint64_t since = globalTimer();
  while (true) {
    int openCore = -1;
    bool tookOne = false;
    for (int core = share.index; core < chain.cores; core += share.count) {
      if (core != held) head = readHead(chain, role, core);
      held = core;
      const Look look = serveCore(chain, share, role, core, &head, run);
      if (look.stuck != Stuck::kNo) return false;
      if (look.isOpen && openCore < 0) openCore = core;
      tookOne |= look.tookOne;
    }
    if (openCore < 0) return true;
    if (tookOne) {
      since = globalTimer();
      continue;
    }
    if (ballot(loadRelaxedSystem(chain.abort) != 0) != 0) return true;
    const uint64_t waited = globalTimer() - since;
    if (ballot(waited > chain.limit) != 0 && reportHead(chain, share, role, openCore, waited)) return true;
    sleepFor(waited < 1000 ? 32 : 256);
  }
}

// ---- Load: warp 0.

template <class Shape>
struct LoadPositions {
  RingPosition<Shape::kStages> stage;
  RingPosition<kRecords> record;
};

// By the warp. Returns what was stuck.
template <class Shape>
SLUICE_DEVICE Stuck loadTask(const Chain& chain, ChainMemory<Shape>* memory, LoadPositions<Shape>* at,
                             uint32_t task) {
  if (!awaitEmptyByWarp(&memory->ring, at->record, chain.limit)) return Stuck::kRecord;
  TaskRecord* const record = &memory->records[at->record.stage()];
  bringTask(record, chain, task, &memory->fenced);
  if (laneIndex() == 0) arrive(&memory->ring.full[at->record.stage()]);
  at->record.advance();
  const TaskKind kind = load(&record->task.kind);
  // math loads rows by itself
  if (kind == TaskKind::kRowWork) return Stuck::kNo;
  fenceProxyAsync();  // others wrote `a`, perhaps with plain stores
  Operands* const operands = &memory->products.operands;
  if (laneIndex() == 0) {
    if (kind == TaskKind::kWeightGrad)
      setOperands<Shape>(&record->weightGrad, record->matrices, operands);
    else
      setOperands<Shape>(&record->product, record->matrices, operands);
  }
  syncWarp();
  return loadStages(&memory->products, &at->stage, chain.limit) ? Stuck::kNo : Stuck::kStage;
}

// By lane 0, after the last task: until all is read that was loaded. So the limit holds for math, too.
template <class Shape>
SLUICE_DEVICE Stuck endTasks(const Chain& chain, ChainMemory<Shape>* memory, LoadPositions<Shape>* at) {
  if (!awaitEmpty(&memory->ring, at->record, chain.limit)) return Stuck::kRecord;
  store(&memory->records[at->record.stage()].number, kNoTask);
  arrive(&memory->ring.full[at->record.stage()]);
  for (int i = 0; i < Shape::kStages; ++i, at->stage.advance())
    if (!awaitEmpty(&memory->products.ring, at->stage, chain.limit)) return Stuck::kStage;
  return Stuck::kNo;
}

template <class Shape>
SLUICE_DEVICE void runLoad(const Chain& chain, BlockShare share, ChainMemory<Shape>* memory) {
  LoadPositions<Shape> at;
  const auto run = [&chain, memory, &at](uint32_t task) { return loadTask(chain, memory, &at, task); };
  if (!serveCores(chain, share, Role::kLoad, run) || laneIndex() != 0) return;
  const Stuck stuck = endTasks(chain, memory, &at);
  if (stuck != Stuck::kNo)
    abortWith(chain, share, Role::kLoad, {stuck, static_cast<uint32_t>(share.index), 0, kNoTask, 0, 0, 0});
}

// ---- Comm: warps 1 to 3.

inline constexpr int kCommBarrier = 3;  // math has 1 and 2
inline constexpr int kCommThreads = 96;

// Runs the copy that warp 1 has chosen. False: there are no more.
template <class Shape>
SLUICE_DEVICE bool runCopy(const Chain& chain, ChainMemory<Shape>* memory) {
  syncNamed(kCommBarrier, kCommThreads);
  const uint32_t copied = load(&memory->copied);
  if (copied == kNoTask) return false;
  const ChainTask* const task = &chain.tasks[copied];
  copyRows(&chain.rowCopies[load(&task->work)], threadIndex() - 32, kCommThreads);
  syncNamed(kCommBarrier, kCommThreads);
  if (threadIndex() == 32) signalEnd(chain, task);
  return true;
}

template <class Shape>
SLUICE_DEVICE void runComm(const Chain& chain, BlockShare share, ChainMemory<Shape>* memory) {
  if (warpIndex() > 1) {
    while (runCopy(chain, memory)) {
    }
    return;
  }
  const auto run = [&chain, memory](uint32_t task) {
    if (laneIndex() == 0) store(&memory->copied, task);
    runCopy(chain, memory);
    return Stuck::kNo;
  };
  serveCores(chain, share, Role::kComm, run);
  if (laneIndex() == 0) store(&memory->copied, kNoTask);
  runCopy(chain, memory);
}

// ---- Math: two warpgroups.

// Multiplies, and stores what becomes of this warpgroup's rows.
template <class Shape>
SLUICE_DEVICE void runProduct(const Product* product, const NearMatrix* matrices,
                              ProductMemory<Shape>* memory, RingPosition<Shape::kStages>* at,
                              AbortWatch* watch, float (&sum)[Shape::kColumns / 2]) {
  multiplyTile(product, matrices, memory, at, watch, sum);
  TilePairs<Shape> tile;
  packSums<Shape>(product, matrices, sum, tile);
  switch (load(&product->kind)) {
    case ProductKind::kPlain:
      return storeProduct<Shape>(product, matrices, memory, tile);
    case ProductKind::kActivation:
      return storeActivation<Shape>(product, matrices, memory, tile);
    case ProductKind::kActivationGrad:
      return storeActivationGrad<Shape>(product, matrices, memory, tile);
  }
}

template <class Shape>
SLUICE_DEVICE void runMath(const Chain& chain, ChainMemory<Shape>* memory) {
  RingPosition<Shape::kStages> at;
  RingPosition<kRecords> next;
  AbortWatch watch = {chain};
  for (;; next.advance()) {
    if (!awaitFull(&memory->ring, next, &watch)) return;
    TaskRecord* const record = &memory->records[next.stage()];
    if (load(&record->number) == kNoTask) return;
    // One for all kinds of tasks, and not left to the first product: ptxas would then keep sums from task to
    // task, and spill what epilogues need.
    float sum[Shape::kColumns / 2];
    SLUICE_UNROLL
    for (int i = 0; i < Shape::kColumns / 2; ++i) sum[i] = 0;
    const TaskKind kind = load(&record->task.kind);
    if (kind == TaskKind::kRowWork)
      runRowWork<Shape::kActivation>(&chain.rowWorks[load(&record->task.work)],
                                     memory->products.staging[mathGroup()][0]);
    else if (kind == TaskKind::kWeightGrad)
      runWeightGrad(&record->weightGrad, record->matrices, &memory->products, &at, &watch, sum);
    else
      runProduct(&record->product, record->matrices, &memory->products, &at, &watch, sum);
    // the warpgroup that ends second: the other has stored its rows before
    if (threadIndex() % 128 == 0 && addShared(&record->ended, 1) % 2 == 1) signalEnd(chain, &record->task);
    syncWarp();  // all lanes have read the record
    release(&memory->ring, next.stage());
  }
}

// Which of its rank's blocks this one is, and which rank's.
SLUICE_DEVICE BlockShare computeShare(const Launch& launch) {
  const int count = blockCount() / launch.partitions;
  return {blockIndex() % count, count};
}
SLUICE_DEVICE const Chain& findChain(const Launch& launch) {
  return launch.chains[blockIndex() / (blockCount() / launch.partitions)];
}

// The kernel, in kChainThreads threads with sizeof(ChainMemory<Shape>) bytes of shared memory. The number of
// blocks is a multiple of the number of partitions.
template <class Shape>
SLUICE_DEVICE void runChain(const Launch& launch) {
  auto* const memory = reinterpret_cast<ChainMemory<Shape>*>(sharedMemory());
  if (!isAligned(memory, alignof(ChainMemory<Shape>))) trap("shared memory begins at an odd address");
  if (threadIndex() == 0) {
    initRing(&memory->products.ring, 1, 8);
    initRing(&memory->ring, 1, 8);
    for (TaskRecord& record : memory->records) store(&record.ended, 0U);
    initFencedMaps(&memory->fenced);
    fenceBarrierInit();
  }
  syncBlock();
  if (warpIndex() >= 4) {
    takeRegisters<208>();
    runMath(findChain(launch), memory);
  } else {
    releaseRegisters<88>();
    if (warpIndex() == 0)
      runLoad(findChain(launch), computeShare(launch), memory);
    else
      runComm(findChain(launch), computeShare(launch), memory);
  }
}

}  // namespace sluice::gpu
