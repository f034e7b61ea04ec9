// What kernels of probes share. Each wait ends: a fact that does not hold gives wrong values and sets the
// word `late`, but nothing hangs.
#pragma once

#include "ops/gpu/hw.h"
#include "runtime/abi/gpu/probe_launch.h"

namespace sluice::gpu::probes {

inline constexpr uint32_t kArea = 64 * 128;  // bytes of 64 rows
inline constexpr int kBoxRows = 8;

// One barrier at the beginning of shared memory, made by thread 0.
SLUICE_DEVICE Barrier* makeBarrier(int count) {
  auto* const barrier = reinterpret_cast<Barrier*>(sharedMemory());
  if (threadIndex() == 0) {
    initBarrier(barrier, count);
    fenceBarrierInit();
  }
  syncBlock();
  return barrier;
}

// False: it lasted too long.
SLUICE_DEVICE bool await(const ProbeArguments& arguments, Barrier* barrier, int parity) {
  const uint64_t begin = globalTimer();
  while (!hasEnded(barrier, parity))
    if (globalTimer() - begin > arguments.limit) {
      store(arguments.late, 1U);
      return false;
    }
  return true;
}
SLUICE_DEVICE bool awaitCounter(const ProbeArguments& arguments, const uint64_t* counter, uint64_t need) {
  const uint64_t begin = globalTimer();
  while (loadRelaxed(counter) < need) {
    if (globalTimer() - begin > arguments.limit) {
      store(arguments.late, 1U);
      return false;
    }
    sleepFor(100);
  }
  fenceAcquire();
  return true;
}

template <class T>
SLUICE_DEVICE const T* findProbeInput(const ProbeArguments& arguments) {
  return reinterpret_cast<const T*>(arguments.in);
}
template <class T>
SLUICE_DEVICE T* findProbeOutput(const ProbeArguments& arguments) {
  return reinterpret_cast<T*>(arguments.out);
}

// Writes a box of 8 rows of 128 bytes that lies in shared memory. By the block.
SLUICE_DEVICE void writeArea(const ProbeArguments& arguments, const std::byte* area) {
  for (int i = threadIndex(); i < kBoxRows * 32; i += 128)
    store(findProbeOutput<uint32_t>(arguments) + i,
          load(reinterpret_cast<const uint32_t*>(area + swizzled(i / 32, i % 32 * 4))));
}

}  // namespace sluice::gpu::probes
