// A ring of stages in shared memory, from threads that load to warps that use what is loaded.
//
// The two barriers of a stage: `full` ends a phase when what was announced has landed, `empty` when every
// user has arrived. Both sides go around with a position (stage and parity) of their own, which goes on over
// tasks and is never reset. Nobody waits for ever: who loads waits until a limit, who uses until a while
// after the kernel was aborted.
#pragma once

#include "ops/gpu/hw.h"
#include "runtime/abi/gpu/chain_plan.h"

namespace sluice::gpu {

template <int kStages>
struct Ring {
  Barrier full[kStages];
  Barrier empty[kStages];
};

// By one thread, before fenceBarrierInit(). Per stage and phase: arrivals that fill, and that empty.
template <int kStages>
SLUICE_DEVICE void initRing(Ring<kStages>* ring, int fillers, int users) {
  for (int i = 0; i < kStages; ++i) {
    initBarrier(&ring->full[i], fillers);
    initBarrier(&ring->empty[i], users);
  }
}

// A value, in one register. parity() is the parity of the phase of `full` that fills the stage next.
template <int kStages>
struct RingPosition {
  uint32_t count = 0;

  SLUICE_DEVICE int stage() const { return static_cast<int>(count % kStages); }
  SLUICE_DEVICE int parity() const { return static_cast<int>(count / kStages % 2); }
  SLUICE_DEVICE void advance() { ++count; }
};

// How long the users of a ring wait: for as long as the kernel goes on. After an abort, what was begun is
// ended, for which the chain's limit is enough unless something is broken. From then on all waits end at
// once, so that warps that must act together still pass the same instructions.
struct AbortWatch {
  static constexpr uint32_t kOver = ~0U;

  const Chain& chain;
  uint32_t since = 0;  // when this thread saw it, in units of 1024 ns; 0: it has not

  SLUICE_DEVICE bool look() {
    if (since == kOver) return true;
    if (loadRelaxedSystem(chain.abort) == 0) return false;
    const auto now = static_cast<uint32_t>(globalTimer() >> 10);
    if (since == 0) since = now | 1;
    if (now - since > chain.limit >> 10) since = kOver;
    return since == kOver;
  }
};

// False: gave up.
template <int kStages>
SLUICE_DEVICE bool awaitFull(Ring<kStages>* ring, RingPosition<kStages> at, AbortWatch* watch) {
  while (!hasEnded(&ring->full[at.stage()], at.parity()))
    if (watch->look()) return false;
  return true;
}

// False: it took longer than `limit` nanoseconds.
template <int kStages>
SLUICE_DEVICE bool awaitEmpty(Ring<kStages>* ring, RingPosition<kStages> at, uint64_t limit) {
  Barrier* const empty = &ring->empty[at.stage()];
  const int before = at.parity() ^ 1;  // of the phase in which the stage's last load was used
  if (hasEnded(empty, before)) return true;
  const uint64_t begin = globalTimer();
  while (!hasEnded(empty, before))
    if (globalTimer() - begin > limit) return false;
  return true;
}

// By a warp, whose lanes then know what lane 0 has waited for.
template <int kStages>
SLUICE_DEVICE bool awaitEmptyByWarp(Ring<kStages>* ring, RingPosition<kStages> at, uint64_t limit) {
  const bool isEmpty = laneIndex() == 0 && awaitEmpty(ring, at, limit);
  syncWarp();
  return ballot(isEmpty) != 0;
}

// By a whole warp that has used the stage: one arrival.
template <int kStages>
SLUICE_DEVICE void release(Ring<kStages>* ring, int stage) {
  if (laneIndex() == 0) arrive(&ring->empty[stage]);
}

}  // namespace sluice::gpu
