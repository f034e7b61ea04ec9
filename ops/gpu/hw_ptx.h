// The primitives of ops/gpu/hw.h as PTX of sm_90a; only hw.h includes this.
//
// All asm is volatile: the compiler keeps its order. What must also stay in order with plain accesses says
// that it touches memory. Pointers are generic in C++; instructions get the address within shared or global
// memory.
#pragma once

#include "ops/gpu/wgmma_ptx.h"

namespace sluice::gpu {

namespace ptx {

SLUICE_DEVICE uint32_t shared(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
SLUICE_DEVICE uint64_t global(const void* pointer) { return __cvta_generic_to_global(pointer); }

}  // namespace ptx

// ---- Where a thread is.

SLUICE_DEVICE int threadIndex() { return static_cast<int>(threadIdx.x); }
SLUICE_DEVICE int blockIndex() { return static_cast<int>(blockIdx.x); }
SLUICE_DEVICE int blockCount() { return static_cast<int>(gridDim.x); }

SLUICE_DEVICE std::byte* sharedMemory() {
  extern __shared__ __align__(1024) std::byte sluiceSharedMemory[];
  return sluiceSharedMemory;
}

// ---- Memory.

template <class T>
SLUICE_DEVICE T load(const T* from) {
  return *from;
}

template <class T>
SLUICE_DEVICE void store(T* to, T value) {
  *to = value;
}

SLUICE_DEVICE uint64_t loadRelaxed(const uint64_t* counter) {
  uint64_t value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(ptx::global(counter)) : "memory");
  return value;
}

SLUICE_DEVICE uint64_t loadRelaxedSystem(const uint64_t* counter) {
  uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(ptx::global(counter)) : "memory");
  return value;
}

SLUICE_DEVICE void fenceAcquire() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

SLUICE_DEVICE void signal(uint64_t* counter, uint64_t amount) {
  asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(ptx::global(counter)), "l"(amount)
               : "memory");
}

SLUICE_DEVICE void signalSystem(uint64_t* counter, uint64_t amount) {
  asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(ptx::global(counter)), "l"(amount)
               : "memory");
}

SLUICE_DEVICE uint32_t addShared(uint32_t* number, uint32_t amount) {
  uint32_t before;
  asm volatile("atom.acq_rel.cta.shared::cta.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "r"(ptx::shared(number)), "r"(amount)
               : "memory");
  return before;
}

SLUICE_DEVICE void fenceProxyAsync() { asm volatile("fence.proxy.async;" ::: "memory"); }

SLUICE_DEVICE void fenceProxyAsyncShared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

SLUICE_DEVICE uint64_t globalTimer() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

SLUICE_DEVICE void sleepFor(uint32_t nanoseconds) { asm volatile("nanosleep.u32 %0;" ::"r"(nanoseconds)); }

// ---- Warps.

SLUICE_DEVICE void syncWarp() { __syncwarp(); }
SLUICE_DEVICE uint32_t ballot(bool value) { return __ballot_sync(~0U, value); }
SLUICE_DEVICE uint32_t shuffle(uint32_t value, int lane) { return __shfl_sync(~0U, value, lane); }

// ---- Blocks.

SLUICE_DEVICE void syncBlock() { __syncthreads(); }

SLUICE_DEVICE void syncNamed(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

template <int N>
SLUICE_DEVICE void takeRegisters() {
  static_assert(N >= 24 && N <= 240 && N % 8 == 0);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N>
SLUICE_DEVICE void releaseRegisters() {
  static_assert(N >= 24 && N <= 240 && N % 8 == 0);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// ---- Barriers in shared memory.

SLUICE_DEVICE void initBarrier(Barrier* barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(ptx::shared(barrier)), "r"(count) : "memory");
}

// The first fence is for other threads, the second for copies, which are of another proxy.
SLUICE_DEVICE void fenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

SLUICE_DEVICE void arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(ptx::shared(barrier)) : "memory");
}

SLUICE_DEVICE void arriveExpecting(Barrier* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(ptx::shared(barrier)),
               "r"(bytes)
               : "memory");
}

SLUICE_DEVICE bool hasEnded(Barrier* barrier, int parity) {
  uint32_t ended;
  asm volatile(
      "{\n"
      ".reg .pred ended;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
      "selp.u32 %0, 1, 0, ended;\n"
      "}\n"
      : "=r"(ended)
      : "r"(ptx::shared(barrier)), "r"(parity)
      : "memory");
  return ended != 0;
}

// ---- Copies by a thread.

SLUICE_DEVICE void copyPart(std::byte* to, const std::byte* from, bool isThere) {
  asm volatile("cp.async.cg.shared::cta.global.L2::128B [%0], [%1], 16, %2;" ::"r"(ptx::shared(to)),
               "l"(ptx::global(from)), "r"(isThere ? 16 : 0)
               : "memory");
}

// Without .noinc: the barrier awaits one arrival more, which comes when the parts have landed.
SLUICE_DEVICE void holdForParts(Barrier* barrier) {
  asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(ptx::shared(barrier)) : "memory");
}

// ---- Copies by TMA.

SLUICE_DEVICE void copyBox(std::byte* to, const TensorMap* from, Barrier* barrier, int column, int row,
                           int outer, int /*rows*/) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(ptx::shared(to)),
      "l"(from), "r"(ptx::shared(barrier)), "r"(column), "r"(row), "r"(outer)
      : "memory");
}

SLUICE_DEVICE void storeBox(const TensorMap* to, const std::byte* from, int column, int row, int outer) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group "
      "[%0, {%2, %3, %4}], [%1];" ::"l"(to),
      "r"(ptx::shared(from)), "r"(column), "r"(row), "r"(outer)
      : "memory");
}

SLUICE_DEVICE void addBox(const TensorMap* to, const std::byte* from, int column, int row, int outer) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group "
      "[%0, {%2, %3, %4}], [%1];" ::"l"(to),
      "r"(ptx::shared(from)), "r"(column), "r"(row), "r"(outer)
      : "memory");
}

SLUICE_DEVICE void fenceMap(const TensorMap* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(ptx::global(map)) : "memory");
}

SLUICE_DEVICE void copyBytes(std::byte* to, const std::byte* from, uint32_t bytes, Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1], %2, [%3];" ::"r"(ptx::shared(to)),
      "l"(ptx::global(from)), "r"(bytes), "r"(ptx::shared(barrier))
      : "memory");
}

SLUICE_DEVICE void storeBytes(std::byte* to, const std::byte* from, uint32_t bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group "
      "[%0], [%1], %2;" ::"l"(ptx::global(to)),
      "r"(ptx::shared(from)), "r"(bytes)
      : "memory");
}

SLUICE_DEVICE void groupStores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

template <int N>
SLUICE_DEVICE void waitStoresRead() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

template <int N>
SLUICE_DEVICE void waitStores() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

// ---- Products by tensor cores.

// PTX ISA, "matrix descriptor": all in units of 16 bytes. With a swizzle of 128 bytes and 16 k, the leading
// offset is that between 64 rows of a kMn operand (and unused for kK), the stride that between eights of
// 128-byte rows.
SLUICE_DEVICE uint64_t describe(const std::byte* tile, Major major, uint32_t pitch) {
  constexpr uint64_t kStride = 1024 >> 4;
  constexpr uint64_t kSwizzle128 = 1;
  const uint64_t leading = major == Major::kMn ? pitch >> 4 : 1;
  const uint64_t address = (ptx::shared(tile) & 0x3FFFF) >> 4;
  return address | leading << 16 | kStride << 32 | kSwizzle128 << 62;
}

SLUICE_DEVICE void fenceProducts() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

template <int N, Major A, Major B>
SLUICE_DEVICE void multiply(float (&sum)[N / 2], uint64_t a, uint64_t b, bool add) {
  static_assert(N == 64 || N == 128 || N == 192 || N == 256);
  ptx::multiply<A == Major::kMn, B == Major::kMn>(sum, a, b, add);
}

SLUICE_DEVICE void groupProducts() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int N>
SLUICE_DEVICE void waitProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// ---- Numbers.

SLUICE_DEVICE uint32_t packBf16(float first, float second) {
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  return both;
}

SLUICE_DEVICE float firstBf16(uint32_t pair) { return __uint_as_float(pair << 16); }
SLUICE_DEVICE float secondBf16(uint32_t pair) { return __uint_as_float(pair & 0xffff0000); }

SLUICE_DEVICE float exponential(float x) { return __expf(x); }

SLUICE_DEVICE float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// ---- Trouble.

// Without a word: printf() is a call, and ptxas serializes the products of a kernel that calls while they are
// in flight (C7510). With -lineinfo, cuda-gdb and compute-sanitizer name the line.
SLUICE_DEVICE void trap(const char* /*why*/) {
  __trap();
  __builtin_unreachable();
}

}  // namespace sluice::gpu
