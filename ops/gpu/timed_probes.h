// Probes of what kernels do beside what they did before: one call then tells which of the two is at fault,
// and how much it gains.
#pragma once

#include "ops/gpu/hw.h"
#include "ops/gpu/part.h"
#include "ops/gpu/probe_parts.h"
#include "runtime/abi/gpu/probe_launch.h"

namespace sluice::gpu::probes {

// Nanoseconds, by thread 0.
SLUICE_DEVICE void storeTime(const ProbeArguments& arguments, uint64_t begin) {
  if (threadIndex() == 0) store(findProbeOutput<uint64_t>(arguments), globalTimer() - begin);
}

// A row of an area by 8 threads, of which each copies 16 bytes of `from`; below 0: zeros.
SLUICE_DEVICE void copyRowPart(const ProbeArguments& arguments, std::byte* area, int row, int source) {
  const int byte = threadIndex() % 8 * 16;
  const std::byte* const from = arguments.data + (source < 0 ? 0 : source) * arguments.pitch + byte;
  copyPart(area + swizzled(row, byte), from, source >= 0);
}

struct TimedRowsProbe {
  static constexpr int kRows = kTimedRows, kStages = 4;
  static constexpr int kBlocks = 1, kThreads = 128, kSharedBytes = 1024 + kStages * kRows * 128;

  SLUICE_DEVICE static void byBoxes(const ProbeArguments& arguments, std::byte* area, Barrier* barrier) {
    if (warpIndex() != 0) return;
    if (laneIndex() == 0) arriveExpecting(barrier, kRows * 128);
    syncWarp();
    for (int row = laneIndex(); row < kRows; row += 32)
      copyBox(area + 128 * row, &arguments.maps[0], barrier, 0,
              load(findProbeInput<int32_t>(arguments) + row), 0, 1);
  }

  SLUICE_DEVICE static void byThreads(const ProbeArguments& arguments, std::byte* area, Barrier* barrier) {
    for (int row = threadIndex() / 8; row < kRows; row += kThreads / 8)
      copyRowPart(arguments, area, row, load(findProbeInput<int32_t>(arguments) + row));
    holdForParts(barrier);
    arrive(barrier);
  }

  SLUICE_DEVICE static void run(const ProbeArguments& arguments) {
    const bool isByBoxes = arguments.column != 0;
    auto* const barriers = reinterpret_cast<Barrier*>(sharedMemory());
    if (threadIndex() == 0) {
      for (int stage = 0; stage < kStages; ++stage) initBarrier(&barriers[stage], isByBoxes ? 1 : kThreads);
      fenceBarrierInit();
    }
    syncBlock();
    const uint64_t begin = globalTimer();
    // the last turns only wait
    for (int time = 0; time < arguments.number + kStages; ++time) {
      Barrier* const barrier = &barriers[time % kStages];
      if (time >= kStages && !await(arguments, barrier, time / kStages % 2 ^ 1)) return;
      syncBlock();
      if (time >= arguments.number) continue;
      std::byte* const area = sharedMemory() + 1024 + time % kStages * kRows * 128;
      isByBoxes ? byBoxes(arguments, area, barrier) : byThreads(arguments, area, barrier);
    }
    storeTime(arguments, begin);
  }
};

// Rows that one warp multiplies by a number each on their way to shared memory.
struct TimedScaledRowsProbe {
  static constexpr int kBlocks = 1, kThreads = 128, kSharedBytes = kTimedRows * 128;

  SLUICE_DEVICE static void run(const ProbeArguments& arguments) {
    if (warpIndex() != 0) return;
    const uint64_t begin = globalTimer();
    for (int time = 0; time < arguments.number; ++time) {
      for (int row = laneIndex() / 8; row < kTimedRows; row += 4) {
        const int source = load(findProbeInput<int32_t>(arguments) + row), byte = laneIndex() % 8 * 16;
        Part part = loadPart<2>(arguments.data + source * arguments.pitch + byte, 8);
        const auto scale = static_cast<float>(source);
        SLUICE_UNROLL
        for (uint32_t& word : part.words) word = packBf16(firstBf16(word) * scale, secondBf16(word) * scale);
        store(reinterpret_cast<Part*>(sharedMemory() + swizzled(row, byte)), part);
      }
      fenceProxyAsyncShared();
    }
    syncWarp();
    storeTime(arguments, begin);
  }
};

struct TimedFencesProbe {
  static constexpr int kBlocks = 1, kThreads = 128, kSharedBytes = 1024;

  SLUICE_DEVICE static void run(const ProbeArguments& arguments) {
    const bool isOfAllMemory = arguments.column != 0;
    auto* const words = reinterpret_cast<uint32_t*>(sharedMemory());
    const uint64_t begin = globalTimer();
    for (int time = 0; time < arguments.number; ++time) {
      store(&words[threadIndex()], static_cast<uint32_t>(time));
      if (isOfAllMemory)
        fenceProxyAsync();
      else
        fenceProxyAsyncShared();
    }
    syncBlock();
    storeTime(arguments, begin);
  }
};

// As RowBoxesProbe, by threads.
struct RowPartsProbe {
  static constexpr int kBlocks = 1, kThreads = 128, kSharedBytes = 1024 + kBoxRows * 128;

  SLUICE_DEVICE static void run(const ProbeArguments& arguments) {
    Barrier* const barrier = makeBarrier(kThreads);
    std::byte* const area = sharedMemory() + 1024;
    if (const int row = threadIndex() / 8; row < kBoxRows)
      copyRowPart(arguments, area, row, load(findProbeInput<int32_t>(arguments) + row));
    holdForParts(barrier);
    arrive(barrier);
    await(arguments, barrier, 0);
    writeArea(arguments, area);
  }
};

}  // namespace sluice::gpu::probes
