// The kernels of probes (runtime/abi/gpu/probe_launch.h).
#pragma once

#include "ops/gpu/hw.h"
#include "ops/gpu/probe_parts.h"
#include "ops/gpu/timed_probes.h"
#include "runtime/abi/gpu/probe_launch.h"

namespace sluice::gpu::probes {

template <int N, Major A, Major B>
struct ProductProbe {
  static constexpr int kBlocks = 1, kThreads = 128, kSharedBytes = 1024 + kArea + N * 128;

  SLUICE_DEVICE static void run(const ProbeArguments& arguments) {
    Barrier* const barrier = makeBarrier(1);
    std::byte* const left = sharedMemory() + 1024;
    std::byte* const right = left + kArea;
    if (threadIndex() == 0) {
      arriveExpecting(barrier, kArea + N * 128);
      copyBox(left, &arguments.maps[0], barrier, 0, 0, 0, 64);
      for (int part = 0; part < (B == Major::kK ? 1 : N / 64); ++part)
        copyBox(right + part * kArea, &arguments.maps[1], barrier, 64 * part, 0, 0, B == Major::kK ? N : 64);
    }
    await(arguments, barrier, 0);
    syncWarp();  // threads may have seen the end at different times
    const bool adds = arguments.in != nullptr;
    float sum[N / 2];
    SLUICE_UNROLL
    for (int i = 0; i < N / 2; ++i)
      sum[i] = adds ? load(findProbeInput<float>(arguments) + fragmentRow(i) * N + fragmentColumn(i)) : 1e30F;
    const int k = arguments.number;
    const uint64_t a = describeAs<A>(arguments.encoding, left + k * (A == Major::kK ? 2 : 128));
    const uint64_t b = describeAs<B>(arguments.encoding, right + k * (B == Major::kK ? 2 : 128));
    if ((arguments.encoding & kMajorsInverted) == 0)
      multiplyOnce<A, B>(sum, a, b, adds);
    else
      multiplyOnce<kOtherA, kOtherB>(sum, a, b, adds);
    SLUICE_UNROLL
    for (int i = 0; i < N / 2; ++i)
      store(findProbeOutput<float>(arguments) + fragmentRow(i) * N + fragmentColumn(i), sum[i]);
  }

 private:
  static constexpr Major kOtherA = A == Major::kK ? Major::kMn : Major::kK;
  static constexpr Major kOtherB = B == Major::kK ? Major::kMn : Major::kK;

  // PTX ISA, "matrix descriptor": the leading offset has 14 bits from 16 on, the stride as many from 32 on.
  template <Major M>
  SLUICE_DEVICE static uint64_t describeAs(int encoding, const std::byte* tile) {
    constexpr uint64_t kOffset = 0x3FFF;
    const uint64_t description = describe(tile, M, kArea);
    if (M == Major::kK && (A == Major::kMn || B == Major::kMn)) return description;
    uint64_t leading = description >> 16 & kOffset, stride = description >> 32 & kOffset;
    if ((encoding & kLeadingOne) != 0) leading = 1;
    if ((encoding & kOffsetsExchanged) != 0) {
      const uint64_t exchanged = leading;
      leading = stride;
      stride = exchanged;
    }
    return (description & ~(kOffset << 16 | kOffset << 32)) | leading << 16 | stride << 32;
  }

  template <Major MajorA, Major MajorB>
  SLUICE_DEVICE static void multiplyOnce(float (&sum)[N / 2], uint64_t a, uint64_t b, bool adds) {
    fenceProducts();
    multiply<N, MajorA, MajorB>(sum, a, b, adds);
    groupProducts();
    waitProducts<0>();
  }
};

// Writes out a box that copy(area, barrier) asks for.
template <class Copy>
SLUICE_DEVICE void writeBox(const ProbeArguments& arguments, const Copy& copy) {
  Barrier* const barrier = makeBarrier(1);
  std::byte* const area = sharedMemory() + 1024;
  if (threadIndex() == 0) arriveExpecting(barrier, kBoxRows * 128);
  syncBlock();
  copy(area, barrier);
  await(arguments, barrier, 0);
  writeArea(arguments, area);
}

SLUICE_DEVICE void copyBoxOut(const ProbeArguments& arguments, const TensorMap* map) {
  writeBox(arguments, [&arguments, map](std::byte* area, Barrier* barrier) {
    if (threadIndex() == 0)
      copyBox(area, map, barrier, arguments.column, arguments.row, arguments.outer, arguments.rows);
  });
}

struct CopyBoxProbe {
  static constexpr int kBlocks = 1, kThreads = 128, kSharedBytes = 1024 + kBoxRows * 128;

  SLUICE_DEVICE static void run(const ProbeArguments& arguments) {
    copyBoxOut(arguments, &arguments.maps[0]);
  }
};

struct UploadedMapProbe {
  static constexpr int kBlocks = 1, kThreads = 128, kSharedBytes = 1024 + kBoxRows * 128;

  SLUICE_DEVICE static void run(const ProbeArguments& arguments) {
    if (arguments.number == 1 && threadIndex() == 0) fenceMap(arguments.uploaded);
    copyBoxOut(arguments, arguments.uploaded);
  }
};

struct RowBoxesProbe {
  static constexpr int kBlocks = 1, kThreads = 128, kSharedBytes = 1024 + kBoxRows * 128;

  SLUICE_DEVICE static void run(const ProbeArguments& arguments) {
    writeBox(arguments, [&arguments](std::byte* area, Barrier* barrier) {
      if (const int i = threadIndex(); i < kBoxRows)
        copyBox(area + 128 * i, &arguments.maps[0], barrier, arguments.column,
                load(findProbeInput<int32_t>(arguments) + i), arguments.outer, 1);
    });
  }
};

struct StoreBoxProbe {
  static constexpr int kBlocks = 1, kThreads = 128, kSharedBytes = kBoxRows * 128;

  SLUICE_DEVICE static void run(const ProbeArguments& arguments) {
    std::byte* const area = sharedMemory();
    for (int i = threadIndex(); i < kBoxRows * 32; i += 128)
      store(reinterpret_cast<uint32_t*>(area + swizzled(i / 32, i % 32 * 4)),
            load(findProbeInput<uint32_t>(arguments) + i));
    fenceProxyAsync();
    syncBlock();
    if (threadIndex() != 0) return;
    if (arguments.number == 0)
      storeBox(&arguments.maps[0], area, arguments.column, arguments.row, arguments.outer);
    else
      addBox(&arguments.maps[0], area, arguments.column, arguments.row, arguments.outer);
    groupStores();
    waitStores<0>();
  }
};

// Areas 0 to 2 are written by plain stores, 3 and 4 by a copy; 0 and 3 are read by plain loads, 1, 2 and 4 by
// copies. Other numbers each time.
struct SignalProbe {
  static constexpr int kAreaBytes = 4 * kSignalWords;
  static constexpr int kBlocks = 2, kThreads = 128, kSharedBytes = 1024 + 3 * kAreaBytes;

  SLUICE_DEVICE static uint32_t probeValue(int time, int way, int word) {
    return static_cast<uint32_t>(time) * 2654435761U + static_cast<uint32_t>(way * kSignalWords + word + 1);
  }
  SLUICE_DEVICE static uint32_t* findArea(const ProbeArguments& arguments, int way) {
    return const_cast<uint32_t*>(findProbeInput<uint32_t>(arguments)) + way * kSignalWords;
  }

  SLUICE_DEVICE static void write(const ProbeArguments& arguments, int time) {
    auto* const staged = reinterpret_cast<uint32_t*>(sharedMemory() + 1024);
    for (int word = threadIndex(); word < kSignalWords; word += kThreads) {
      for (int way = 0; way < 3; ++way) store(findArea(arguments, way) + word, probeValue(time, way, word));
      for (int way = 3; way < kSignalWays; ++way)
        store(staged + (way - 3) * kSignalWords + word, probeValue(time, way, word));
    }
    fenceProxyAsync();
    syncBlock();
    if (threadIndex() != 0) return;
    storeBytes(reinterpret_cast<std::byte*>(findArea(arguments, 3)), reinterpret_cast<std::byte*>(staged),
               2 * kAreaBytes);
    groupStores();
    waitStores<0>();
    signal(&arguments.counters[0], 1);
  }

  // By thread 0. Asks for what copies bring.
  SLUICE_DEVICE static void ask(const ProbeArguments& arguments, Barrier* barrier) {
    std::byte* const area = sharedMemory() + 1024;
    fenceProxyAsync();
    arriveExpecting(barrier, 3 * kAreaBytes);
    copyBytes(area, reinterpret_cast<std::byte*>(findArea(arguments, 1)), kAreaBytes, barrier);
    copyBox(area + kAreaBytes, &arguments.maps[0], barrier, 0, 0, 0, kBoxRows);
    copyBytes(area + 2 * kAreaBytes, reinterpret_cast<std::byte*>(findArea(arguments, 4)), kAreaBytes,
              barrier);
  }

  SLUICE_DEVICE static void check(const ProbeArguments& arguments, int time, uint32_t (&wrong)[kSignalWays]) {
    const std::byte* const area = sharedMemory() + 1024;
    const auto at = [](const std::byte* from, uint32_t offset) {
      return load(reinterpret_cast<const uint32_t*>(from + offset));
    };
    for (int word = threadIndex(); word < kSignalWords; word += kThreads) {
      const auto byte = static_cast<uint32_t>(4 * word);
      const uint32_t found[] = {load(findArea(arguments, 0) + word), at(area, byte),
                                at(area + kAreaBytes, swizzled(byte / 128, byte % 128)),
                                load(findArea(arguments, 3) + word), at(area + 2 * kAreaBytes, byte)};
      SLUICE_UNROLL
      for (int way = 0; way < kSignalWays; ++way) wrong[way] += found[way] != probeValue(time, way, word);
    }
  }

  SLUICE_DEVICE static void run(const ProbeArguments& arguments) {
    Barrier* const barrier = makeBarrier(1);
    // of thread 0 after its wait: all leave together
    auto* const isLate = reinterpret_cast<uint32_t*>(sharedMemory() + 64);
    uint32_t wrong[kSignalWays] = {};
    for (int time = 0; time < arguments.number; ++time) {
      if (blockIndex() == 0) {
        write(arguments, time);
        if (threadIndex() == 0)
          store(isLate, awaitCounter(arguments, &arguments.counters[8], time + 1) ? 0U : 1U);
        syncBlock();
        if (load(isLate) != 0) return;
        syncBlock();
        continue;
      }
      if (threadIndex() == 0) {
        const bool isThere = awaitCounter(arguments, &arguments.counters[0], time + 1);
        if (isThere) ask(arguments, barrier);
        store(isLate, isThere && await(arguments, barrier, time % 2) ? 0U : 1U);
      }
      syncBlock();
      if (load(isLate) != 0) break;
      await(arguments, barrier, time % 2);
      check(arguments, time, wrong);
      syncBlock();
      if (threadIndex() == 0) signal(&arguments.counters[8], 1);
    }
    if (blockIndex() == 0) return;
    SLUICE_UNROLL
    for (int way = 0; way < kSignalWays; ++way)
      store(findProbeOutput<uint32_t>(arguments) + threadIndex() * kSignalWays + way, wrong[way]);
  }
};

struct ParityProbe {
  static constexpr int kBlocks = 1, kThreads = 128, kSharedBytes = 1024;

  SLUICE_DEVICE static void run(const ProbeArguments& arguments) {
    Barrier* const barrier = makeBarrier(kThreads);
    auto* const out = findProbeOutput<uint32_t>(arguments);
    if (threadIndex() == 0) {
      store(&out[0], hasEnded(barrier, 1) ? 1U : 0U);
      store(&out[1], hasEnded(barrier, 0) ? 1U : 0U);
    }
    syncBlock();
    arrive(barrier);
    await(arguments, barrier, 0);
    syncBlock();
    if (threadIndex() == 0) store(&out[2], hasEnded(barrier, 1) ? 1U : 0U);
    syncBlock();
    arrive(barrier);
    await(arguments, barrier, 1);
    if (threadIndex() == 0) store(&out[3], 1U);
  }
};

struct LanesProbe {
  static constexpr int kBlocks = 1, kThreads = 384, kSharedBytes = 0;

  SLUICE_DEVICE static void run(const ProbeArguments& arguments) {
    if (threadIndex() < 128)
      releaseRegisters<40>();
    else
      takeRegisters<232>();
    const uint32_t bits = ballot(laneIndex() % 3 == 0);
    const uint32_t other = shuffle(static_cast<uint32_t>(threadIndex()), 31 - laneIndex());
    store(findProbeOutput<uint32_t>(arguments) + threadIndex(), bits == 0x49249249 ? other : ~0U);
  }
};

struct LaunchProbe {
  static constexpr int kBlocks = 0, kThreads = 384, kSharedBytes = 232'448;  // the most that a block can have

  SLUICE_DEVICE static void run(const ProbeArguments& arguments) {
    auto* const count = reinterpret_cast<uint32_t*>(sharedMemory());
    if (threadIndex() == 0) store(count, 0U);
    syncBlock();
    addShared(count, 1);
    syncBlock();
    if (threadIndex() != 0) return;
    uint32_t* const out = findProbeOutput<uint32_t>(arguments) + 2 * blockIndex();
    store(&out[0], load(count));
    // a description begins with the address in units of 16 bytes
    store(&out[1], static_cast<uint32_t>(describe(sharedMemory(), Major::kK, 0) % (1024 / 16) * 16));
  }
};

struct BytesProbe {
  static constexpr int kBlocks = 1, kThreads = 128, kSharedBytes = 4096;

  SLUICE_DEVICE static void run(const ProbeArguments& arguments) {
    Barrier* const barrier = makeBarrier(1);
    std::byte* const area = sharedMemory() + arguments.column;
    const auto bytes = static_cast<uint32_t>(arguments.number);
    if (threadIndex() != 0) return;
    arriveExpecting(barrier, bytes);
    copyBytes(area, arguments.in, bytes, barrier);
    if (!await(arguments, barrier, 0)) return;
    storeBytes(arguments.out, area, bytes);
    groupStores();
    waitStores<0>();
  }
};

template <Probe P>
struct NumbersProbe {
  static constexpr int kBlocks = 1, kThreads = 128, kSharedBytes = 0;

  SLUICE_DEVICE static void run(const ProbeArguments& arguments) {
    for (int i = threadIndex(); i < arguments.number; i += kThreads) {
      const float x = load(findProbeInput<float>(arguments) + i);
      if constexpr (P == Probe::kPackBf16)
        store(findProbeOutput<uint32_t>(arguments) + i, packBf16(1, x));
      else
        store(findProbeOutput<float>(arguments) + i,
              P == Probe::kExponential ? exponential(x) : reciprocal(x));
    }
  }
};

// Calls use(a value of the kernel's type).
template <int N, class Use>
void withProduct(ProductForm form, const Use& use) {
  if (form.a == Major::kK)
    form.b == Major::kK ? use(ProductProbe<N, Major::kK, Major::kK>())
                        : use(ProductProbe<N, Major::kK, Major::kMn>());
  else
    form.b == Major::kK ? use(ProductProbe<N, Major::kMn, Major::kK>())
                        : use(ProductProbe<N, Major::kMn, Major::kMn>());
}

template <class Use>
void withProduct(ProductForm form, const Use& use) {
  switch (form.columns) {
    case 64:
      return withProduct<64>(form, use);
    case 128:
      return withProduct<128>(form, use);
    case 192:
      return withProduct<192>(form, use);
    default:
      return withProduct<256>(form, use);
  }
}

template <class Use>
void withProbe(const ProbeLaunch& launch, const Use& use) {
  switch (launch.probe) {
    case Probe::kProduct:
      return withProduct(launch.form, use);
    case Probe::kCopyBox:
      return use(CopyBoxProbe());
    case Probe::kUploadedMap:
      return use(UploadedMapProbe());
    case Probe::kRowBoxes:
      return use(RowBoxesProbe());
    case Probe::kStoreBox:
      return use(StoreBoxProbe());
    case Probe::kSignal:
      return use(SignalProbe());
    case Probe::kParity:
      return use(ParityProbe());
    case Probe::kLanes:
      return use(LanesProbe());
    case Probe::kBytes:
      return use(BytesProbe());
    case Probe::kLaunch:
      return use(LaunchProbe());
    case Probe::kRowParts:
      return use(RowPartsProbe());
    case Probe::kTimedRows:
      return use(TimedRowsProbe());
    case Probe::kTimedScaledRows:
      return use(TimedScaledRowsProbe());
    case Probe::kTimedFences:
      return use(TimedFencesProbe());
    case Probe::kExponential:
      return use(NumbersProbe<Probe::kExponential>());
    case Probe::kReciprocal:
      return use(NumbersProbe<Probe::kReciprocal>());
    case Probe::kPackBf16:
      return use(NumbersProbe<Probe::kPackBf16>());
  }
}

}  // namespace sluice::gpu::probes
