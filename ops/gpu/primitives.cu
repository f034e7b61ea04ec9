// Uses every primitive of ops/gpu/hw.h, so that tests/gpu/ptxas_test sees each assembled. It is never run.
#include "ops/gpu/hw.h"

namespace sluice::gpu {
namespace {

constexpr int kThreads = 384;  // a warpgroup that loads, two that multiply
constexpr int kStages = 4;
constexpr int kRows = 128;
constexpr int kColumns = 256;
constexpr int kDepth = 64;  // k of a stage
constexpr int kAreaBytes = 64 * 128;
constexpr int kABytes = kRows * kDepth * 2;
constexpr int kStageBytes = kABytes + kColumns * kDepth * 2;
constexpr int kStagedBytes = 2 * kAreaBytes;  // of each warpgroup, 64 columns in bf16 or 32 in fp32
constexpr int kBarriersAt = kStages * kStageBytes + kStagedBytes;
constexpr uint64_t kLongest = 1'000'000'000;  // ns

struct Arguments {
  TensorMap a;
  TensorMap b;
  TensorMap result;
  TensorMap sums;
  uint64_t* ready;
  uint64_t* done;
  uint64_t* doneElsewhere;
  const TensorMap* uploaded;
  const std::byte* head;
  std::byte* copy;
  int steps;
};

struct Shared {
  SLUICE_DEVICE std::byte* stage(int i) const { return base + i % kStages * kStageBytes; }
  SLUICE_DEVICE std::byte* staged(int group) const {
    return base + kStages * kStageBytes + group * kAreaBytes;
  }
  SLUICE_DEVICE Barrier* full(int i) const {
    return reinterpret_cast<Barrier*>(base + kBarriersAt) + i % kStages;
  }
  SLUICE_DEVICE Barrier* empty(int i) const { return full(i) + kStages; }

  std::byte* base;
};

SLUICE_DEVICE void await(Barrier* barrier, int parity) {
  const uint64_t begin = globalTimer();
  while (!hasEnded(barrier, parity))
    if (globalTimer() - begin > kLongest) trap("a barrier waits for ever");
}

// Lane i awaits counter i.
SLUICE_DEVICE void awaitCounters(const uint64_t* counters) {
  while (ballot(loadRelaxed(counters + laneIndex()) == 0) != 0) sleepFor(32);
  fenceAcquire();
  fenceProxyAsync();
  syncWarp();
}

SLUICE_DEVICE void loadStages(const Arguments& arguments, const Shared& shared) {
  awaitCounters(arguments.ready);
  const int row = static_cast<int>(shuffle(static_cast<uint32_t>(blockIndex() * kRows), 0));
  if (laneIndex() != 0) return;
  fenceMap(arguments.uploaded);
  for (int i = 0; i < arguments.steps; ++i) {
    await(shared.empty(i), i / kStages % 2 ^ 1);
    arriveExpecting(shared.full(i), kStageBytes);
    copyBox(shared.stage(i), &arguments.a, shared.full(i), i * kDepth, row, 0, kRows);
    for (int part = 0; part < kColumns / 64; ++part)
      copyBox(shared.stage(i) + kABytes + part * kAreaBytes, &arguments.b, shared.full(i), part * 64,
              i * kDepth, 0, kDepth);
  }
  const int last = arguments.steps;
  await(shared.empty(last), last / kStages % 2 ^ 1);
  arriveExpecting(shared.full(last), kAreaBytes);
  copyBytes(shared.stage(last), arguments.head, kAreaBytes, shared.full(last));
  await(shared.full(last), last / kStages % 2);
  storeBytes(arguments.copy, shared.stage(last), kAreaBytes);
  groupStores();
  waitStores<0>();
  copyPart(shared.stage(last), arguments.head, loadRelaxedSystem(arguments.doneElsewhere) == 0);
  holdForParts(shared.full(last));
  arrive(shared.full(last));
  if (blockIndex() == blockCount() - 1) signalSystem(arguments.doneElsewhere, 1);
}

SLUICE_DEVICE void multiplyStages(const Arguments& arguments, const Shared& shared, int group,
                                  float (&sum)[kColumns / 2]) {
  for (int i = 0; i < arguments.steps; ++i) {
    await(shared.full(i), i / kStages % 2);
    fenceProducts();
    for (int k = 0; k < kDepth; k += 16)
      multiply<kColumns, Major::kK, Major::kMn>(
          sum, describe(shared.stage(i) + group * kAreaBytes + 2 * k, Major::kK, 0),
          describe(shared.stage(i) + kABytes + 128 * k, Major::kMn, kAreaBytes), i + k != 0);
    groupProducts();
    waitProducts<1>();  // the stage before this one may be loaded again
    if (i > 0 && laneIndex() == 0) arrive(shared.empty(i - 1));
  }
  waitProducts<0>();
  if (laneIndex() == 0) arrive(shared.empty(arguments.steps - 1));
}

// The upper half of the bits, rounded to nearest even; sums are finite here.
SLUICE_DEVICE uint32_t toBf16(float value) {
  const uint32_t bits = __float_as_uint(value);
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

SLUICE_DEVICE void storeSums(const Arguments& arguments, const Shared& shared, int group,
                             const float (&sum)[kColumns / 2]) {
  std::byte* const staged = shared.staged(group);
  const bool first = threadIndex() % 128 == 0;
  const int top = blockIndex() * kRows + group * 64;
#pragma unroll
  for (int part = 0; part < kColumns / 64; ++part) {
    if (first) waitStoresRead<0>();
    syncNamed(1 + group, 128);
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      const uint32_t pair = toBf16(sum[part * 32 + i]) | toBf16(sum[part * 32 + i + 1]) << 16;
      const uint32_t at = swizzled(fragmentRow(i), 2 * fragmentColumn(i));
      store(reinterpret_cast<uint32_t*>(staged + at), pair);
    }
    fenceProxyAsyncShared();
    syncNamed(1 + group, 128);
    if (first) {
      storeBox(&arguments.result, staged, part * 64, top, 0);
      groupStores();
    }
  }
  if (!first) return;
  addBox(&arguments.sums, staged, 0, top, 0);
  groupStores();
  waitStores<0>();
  signal(arguments.done, load(&arguments.steps));
}

__global__ void __launch_bounds__(kThreads, 1) product(const __grid_constant__ Arguments arguments) {
  const Shared shared{sharedMemory()};
  if (threadIndex() == 0) {
    for (int i = 0; i < kStages; ++i) {
      initBarrier(shared.full(i), 1);
      initBarrier(shared.empty(i), 8);  // warps that multiply
    }
    fenceBarrierInit();
  }
  syncBlock();

  const int role = warpIndex() / 4;
  if (role == 0) {
    releaseRegisters<56>();
    if (warpIndex() == 0) loadStages(arguments, shared);
    return;
  }
  takeRegisters<224>();
  float sum[kColumns / 2];
  multiplyStages(arguments, shared, role - 1, sum);
  storeSums(arguments, shared, role - 1, sum);
}

// One warpgroup and one product of each form, of operands that somebody else left in shared memory.
template <int N, Major A, Major B>
__global__ void __launch_bounds__(128, 1) form(float* to, int steps) {
  float sum[N / 2];
  for (int k = 0; k < steps; ++k) {
    const std::byte* const area = sharedMemory() + k % 4 * kAreaBytes;
    fenceProducts();
    multiply<N, A, B>(sum, describe(area, A, kAreaBytes), describe(area, B, kAreaBytes), k != 0);
    groupProducts();
    waitProducts<0>();
  }
  for (int i = 0; i < N / 2; ++i) store(to + fragmentRow(i) * N + fragmentColumn(i), sum[i]);
}

template <int N>
void useForms() {
  form<N, Major::kK, Major::kK><<<1, 128>>>(nullptr, 1);
  form<N, Major::kK, Major::kMn><<<1, 128>>>(nullptr, 1);
  form<N, Major::kMn, Major::kK><<<1, 128>>>(nullptr, 1);
  form<N, Major::kMn, Major::kMn><<<1, 128>>>(nullptr, 1);
}

}  // namespace

// So that the kernels are compiled.
void usePrimitives(const Arguments& arguments) {
  product<<<1, kThreads, kBarriersAt>>>(arguments);
  useForms<64>();
  useForms<128>();
  useForms<192>();
  useForms<256>();
}

}  // namespace sluice::gpu
