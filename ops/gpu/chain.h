// A persistent kernel of chained products: cores with lanes of tasks, which wait for events and signal them.
//
// Block b of n plays the cores c with c mod n = b, so any number of blocks is right. A lane is a list of
// tasks in their order. Warp 0 (load) looks at the heads of all lanes of a core at once, takes the first that
// is ready, and issues its loads; two warpgroups (math) multiply in the order in which tasks were taken. Only
// ready tasks are taken, so that what was begun never waits for an event.
//
// Events are counters. A wait that lasts too long ends in a report and an abort, after which all blocks
// leave.
#pragma once

#include "ops/gpu/activation.h"
#include "ops/gpu/chain_plan.h"
#include "ops/gpu/hw.h"
#include "ops/gpu/product.h"
#include "ops/gpu/ring.h"
#include "ops/gpu/weight_grad.h"

namespace sluice::gpu {

inline constexpr int kRecords = 2;
// Warpgroups may be two tasks apart: one is done with both tasks of the ring when the other has just taken
// the first and so made room for a third.
inline constexpr int kOpenTasks = 4;

template <class Shape>
struct ChainMemory {  // shared
  ProductMemory<Shape> products;
  Ring<kRecords> records;  // filled by one arrival, emptied by 8 warps
  uint32_t taken[kRecords];
  uint32_t ended[kOpenTasks];  // warpgroups that have ended the task, counted on over tasks
};

// ---- Load: warp 0. Lane i of the warp serves lane i of the core.

struct Head {
  uint32_t task;
  uint32_t end;      // of the lane
  uint32_t waiting;  // bit i: waits[i] was not yet found complete
};

SLUICE_DEVICE uint64_t* counterOf(const Chain& chain, uint32_t event) {
  return chain.counters + static_cast<size_t>(event) * kCounterStride;
}

SLUICE_DEVICE Head headOf(const Chain& chain, int core) {
  if (laneIndex() >= chain.lanes) return {0, 0, 0};
  const int list = core * chain.lanes + laneIndex();
  return {load(&chain.heads[list]), load(&chain.lists[list + 1]), (1U << kMaxWaits) - 1};
}

SLUICE_DEVICE bool isReady(const Chain& chain, Head* head) {
  if (head->task == head->end) return false;
  const ProductTask* const task = &chain.tasks[head->task];
  for (uint32_t i = 0; i < kMaxWaits; ++i) {
    if ((head->waiting >> i & 1) == 0) continue;
    const uint32_t need = load(&task->waits[i].need);
    if (need == 0 || loadRelaxed(counterOf(chain, load(&task->waits[i].event))) >= need)
      head->waiting &= ~(1U << i);
  }
  return head->waiting == 0;
}

SLUICE_DEVICE void abortWith(const Chain& chain, Stuck stuck, int core, int lane, uint32_t task,
                             EventWait wait, uint64_t have) {
  StuckReport* const report = &chain.reports[blockIndex()];
  store(&report->core, static_cast<uint32_t>(core));
  store(&report->lane, static_cast<uint32_t>(lane));
  store(&report->task, task);
  store(&report->event, wait.event);
  store(&report->have, have);
  store(&report->need, static_cast<uint64_t>(wait.need));
  store(&report->stuck, stuck);
  signal(chain.abort, 1);
}

// By the warp: one of the core's lanes waits for an event.
SLUICE_DEVICE void reportHead(const Chain& chain, int core) {
  Head head = headOf(chain, core);
  const bool isWaiting = head.task != head.end && !isReady(chain, &head);
  const uint32_t waiting = ballot(isWaiting);
  if (!isWaiting || (waiting & ((1U << laneIndex()) - 1)) != 0) return;  // another is the first
  const EventWait* const wait = &chain.tasks[head.task].waits[(head.waiting & 1) != 0 ? 0 : 1];
  const EventWait missing = {load(&wait->event), load(&wait->need)};
  abortWith(chain, Stuck::kEvent, core, laneIndex(), head.task, missing,
            loadRelaxed(counterOf(chain, missing.event)));
}

template <class Shape>
struct LoadPositions {  // of lane 0
  RingPosition<Shape::kStages> stage;
  RingPosition<kRecords> record;
};

// Hands a task to math.
template <class Shape>
SLUICE_DEVICE bool postRecord(const Chain& chain, ChainMemory<Shape>* memory, LoadPositions<Shape>* at,
                              uint32_t task) {
  if (!awaitEmpty(&memory->records, at->record, chain.limit)) return false;
  store(&memory->taken[at->record.stage], task);
  arrive(&memory->records.full[at->record.stage]);
  at->record.advance();
  return true;
}

// By lane 0. Returns what was stuck.
template <class Shape>
SLUICE_DEVICE Stuck loadTask(const Chain& chain, ChainMemory<Shape>* memory, LoadPositions<Shape>* at,
                             uint32_t task) {
  if (!postRecord(chain, memory, at, task)) return Stuck::kRecord;
  fenceProxyAsync();  // others wrote `a`, perhaps with plain stores
  const ProductTask* const it = &chain.tasks[task];
  const bool isLoaded =
      load(&it->kind) == TaskKind::kWeightGrad
          ? loadWeightGrad(&it->weightGrad, chain.matrices, &memory->products, &at->stage, chain.limit)
          : loadProduct(&it->product, chain.matrices, &memory->products, &at->stage, chain.limit);
  return isLoaded ? Stuck::kNo : Stuck::kStage;
}

// By lane 0, after the last task: until all is read that was loaded. So the limit holds for math, too.
template <class Shape>
SLUICE_DEVICE Stuck endTasks(const Chain& chain, ChainMemory<Shape>* memory, LoadPositions<Shape>* at) {
  if (!postRecord(chain, memory, at, kNoTask)) return Stuck::kRecord;
  for (int i = 0; i < Shape::kStages; ++i, at->stage.advance())
    if (!awaitEmpty(&memory->products.ring, at->stage, chain.limit)) return Stuck::kStage;
  return Stuck::kNo;
}

// One look at a core by the warp.
struct Look {
  bool isOpen;  // some lane has tasks left
  bool tookOne;
  Stuck stuck;
};
template <class Shape>
SLUICE_DEVICE Look serveCore(const Chain& chain, int core, Head* head, ChainMemory<Shape>* memory,
                             LoadPositions<Shape>* at) {
  const bool isOpen = ballot(head->task != head->end) != 0;
  const uint32_t ready = ballot(isReady(chain, head));
  if (ready == 0) return {isOpen, false, Stuck::kNo};
  int lane = 0;
  while ((ready >> lane & 1) == 0) ++lane;
  fenceAcquire();
  syncWarp();  // what any lane has found is known to lane 0
  const uint32_t task = shuffle(head->task, lane);
  uint32_t stuck = 0;
  if (laneIndex() == 0) {
    const Stuck found = loadTask(chain, memory, at, task);
    if (found != Stuck::kNo) abortWith(chain, found, core, lane, task, {0, 0}, 0);
    stuck = static_cast<uint32_t>(found);
  }
  if (laneIndex() == lane) {
    store(&chain.heads[core * chain.lanes + lane], ++head->task);
    head->waiting = (1U << kMaxWaits) - 1;
  }
  return {true, true, static_cast<Stuck>(shuffle(stuck, 0))};
}

template <class Shape>
SLUICE_DEVICE void runLoad(const Chain& chain, ChainMemory<Shape>* memory) {
  LoadPositions<Shape> at;
  Head head = {0, 0, 0};
  int held = -1;  // the core whose heads these are
  uint64_t since = globalTimer();
  uint32_t pause = 32;
  while (true) {
    int openCore = -1;
    bool tookOne = false;
    for (int core = blockIndex(); core < chain.cores; core += blockCount()) {
      if (core != held) head = headOf(chain, core);
      held = core;
      const Look look = serveCore(chain, core, &head, memory, &at);
      if (look.stuck != Stuck::kNo) return;
      if (look.isOpen && openCore < 0) openCore = core;
      tookOne |= look.tookOne;
    }
    if (openCore < 0) break;
    if (tookOne) {
      since = globalTimer();
      pause = 32;
      continue;
    }
    if (ballot(loadRelaxed(chain.abort) != 0) != 0) break;
    if (ballot(globalTimer() - since > chain.limit) != 0) {
      reportHead(chain, openCore);
      break;
    }
    sleepFor(pause);
    if (pause < 256) pause *= 2;
  }
  if (laneIndex() != 0) return;
  const Stuck stuck = endTasks(chain, memory, &at);
  if (stuck != Stuck::kNo) abortWith(chain, stuck, blockIndex(), 0, kNoTask, {0, 0}, 0);
}

// ---- Math: two warpgroups.

// Multiplies, and stores what becomes of this warpgroup's rows.
template <class Shape, class Activation>
SLUICE_DEVICE void runProduct(const Product* product, const Matrix* matrices, ProductMemory<Shape>* memory,
                              RingPosition<Shape::kStages>* at, AbortWatch* watch,
                              float (&sum)[Shape::kColumns / 2]) {
  multiplyTile(product, memory, at, watch, sum);
  switch (load(&product->kind)) {
    case ProductKind::kPlain:
      return storeProduct(product, matrices, memory, sum);
    case ProductKind::kActivation:
      return storeActivation<Shape, Activation>(product, matrices, memory, sum);
    case ProductKind::kActivationGrad:
      return storeActivationGrad<Shape, Activation>(product, matrices, memory, sum);
  }
}

template <class Shape, class Activation>
SLUICE_DEVICE void runMath(const Chain& chain, ChainMemory<Shape>* memory) {
  RingPosition<Shape::kStages> at;
  RingPosition<kRecords> record;
  AbortWatch watch = {chain.abort, chain.limit};
  for (int open = 0;; open = (open + 1) % kOpenTasks) {
    if (!awaitFull(&memory->records, record, &watch)) return;
    const uint32_t taken = load(&memory->taken[record.stage]);
    syncWarp();
    release(&memory->records, record.stage);
    record.advance();
    if (taken == kNoTask) return;

    const ProductTask* const task = &chain.tasks[taken];
    // One for all kinds of tasks, and not left to the first product: ptxas would then keep sums from task to
    // task, and spill what epilogues need.
    float sum[Shape::kColumns / 2];
    SLUICE_UNROLL
    for (int i = 0; i < Shape::kColumns / 2; ++i) sum[i] = 0;
    if (load(&task->kind) == TaskKind::kWeightGrad)
      runWeightGrad(&task->weightGrad, chain.matrices, &memory->products, &at, &watch, sum);
    else
      runProduct<Shape, Activation>(&task->product, chain.matrices, &memory->products, &at, &watch, sum);
    if (threadIndex() % 128 != 0 || addShared(&memory->ended[open], 1) % 2 == 0) continue;
    const uint32_t amount = load(&task->amount);  // the other warpgroup has stored its rows before
    if (amount != 0) signal(counterOf(chain, load(&task->event)), amount);
  }
}

// The kernel, in kChainThreads threads with sizeof(ChainMemory<Shape>) bytes of shared memory.
template <class Shape, class Activation = Swiglu>
SLUICE_DEVICE void runChain(const Chain& chain) {
  auto* const memory = reinterpret_cast<ChainMemory<Shape>*>(sharedMemory());
  if (threadIndex() == 0) {
    initRing(&memory->products.ring, 1, 8);
    initRing(&memory->records, 1, 8);
    for (int i = 0; i < kOpenTasks; ++i) store(&memory->ended[i], 0U);
    fenceBarrierInit();
  }
  syncBlock();
  if (warpIndex() < 4) {
    releaseRegisters<56>();
    if (warpIndex() == 0) runLoad(chain, memory);
  } else {
    takeRegisters<224>();
    runMath<Shape, Activation>(chain, memory);
  }
}

}  // namespace sluice::gpu
