// What a thread of a block can do on a GPU of sm_90a: the primitives of kernels, in two forms.
//
// For nvcc they are inline PTX (ops/gpu/hw_ptx.h), for any other compiler a model of the hardware
// (ops/gpu/model/hw_model.h), in which every thread of every block is a fiber, copies land late, and a
// kernel that breaks a rule below is stopped with a message. Kernels use nothing else that a GPU has, so that
// their source is tested where there is no GPU. No fmt and no containers here or in kernels.
//
// A warp is 32 threads, a warpgroup four warps from a multiple of 128 on. `aligned` functions must be called
// by all threads of a warp, or of a warpgroup, together. Facts are from the PTX ISA 8.5 (wgmma,
// cp.async.bulk, mbarrier, memory consistency model: proxies).
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/abi/device.h"
#include "runtime/abi/gpu/matrix.h"

// An array stays in registers only where every index is a constant. Long loops stay loops, because code is
// read through small caches.
#if defined(__CUDACC__)
#define SLUICE_UNROLL _Pragma("unroll")
#define SLUICE_LOOP _Pragma("unroll 1")
#else
#define SLUICE_UNROLL
#define SLUICE_LOOP
#endif

namespace sluice::gpu {

// ---- Where a thread is.

SLUICE_DEVICE int threadIndex();  // in its block
SLUICE_DEVICE int blockIndex();
SLUICE_DEVICE int blockCount();
SLUICE_DEVICE int warpIndex() { return threadIndex() / 32; }
SLUICE_DEVICE int laneIndex() { return threadIndex() % 32; }

// The block's shared memory, aligned to 1024 bytes. It begins with any content.
SLUICE_DEVICE std::byte* sharedMemory();

// ---- Memory. Types of 1, 2, 4, 8 or 16 bytes, trivially copyable and naturally aligned.

// Plain accesses to shared or global memory (the generic proxy).
template <class T>
SLUICE_DEVICE T load(const T* from);
template <class T>
SLUICE_DEVICE void store(T* to, T value);

// A counter: 64 bits, of which threads of all blocks see every value in order.
SLUICE_DEVICE uint64_t loadRelaxed(const uint64_t* counter);
SLUICE_DEVICE uint64_t loadRelaxedSystem(const uint64_t* counter);  // that the host or another GPU changes
// After a loadRelaxed() that found a value: what was written before the signals that made it is visible.
SLUICE_DEVICE void fenceAcquire();
// Adds to a counter; what this thread wrote before, and what it knows of others through barriers, is visible
// to a thread that sees the sum and then calls fenceAcquire(). System: to other GPUs, too.
SLUICE_DEVICE void signal(uint64_t* counter, uint64_t amount);
SLUICE_DEVICE void signalSystem(uint64_t* counter, uint64_t amount);

// Adds to a number in shared memory and returns what it was; orders what all who add do before and after.
SLUICE_DEVICE uint32_t addShared(uint32_t* number, uint32_t amount);

// Order plain accesses with accesses of the async proxy (TMA copies and products, which read shared memory by
// themselves). The first is needed by a thread that copies global memory which others wrote with store(),
// after its fenceAcquire(). The second is for shared memory only, and costs far less: each thread that wrote
// it with store() calls it before the barrier after which a copy reads it; for a product that may also be
// done by all who issue it, after that barrier.
SLUICE_DEVICE void fenceProxyAsync();
SLUICE_DEVICE void fenceProxyAsyncShared();

SLUICE_DEVICE uint64_t globalTimer();               // nanoseconds
SLUICE_DEVICE void sleepFor(uint32_t nanoseconds);  // at most a million

// ---- Warps.

SLUICE_DEVICE void syncWarp();                             // aligned
SLUICE_DEVICE uint32_t ballot(bool value);                 // aligned; bit i: lane i's
SLUICE_DEVICE uint32_t shuffle(uint32_t value, int lane);  // aligned; the value of that lane

// ---- Blocks.

SLUICE_DEVICE void syncBlock();  // all threads of the block
// The first `threads` of the block that come to named barrier 1 to 15; a multiple of 32, by whole warps.
SLUICE_DEVICE void syncNamed(int barrier, int threads);
// The number of registers of each thread of the warpgroup, a multiple of 8 from 24 to 240; aligned, of the
// warpgroup. More: waits until others have given theirs back.
template <int N>
SLUICE_DEVICE void takeRegisters();
template <int N>
SLUICE_DEVICE void releaseRegisters();

// ---- Barriers in shared memory (mbarrier). A phase ends when `count` arrivals and all announced bytes are
// there; then the next begins. Phases have parities 0, 1, 0...

struct alignas(8) Barrier {
  uint64_t state;
};
SLUICE_DEVICE void initBarrier(Barrier* barrier, int count);
// By the thread that made barriers, before others use them: after it a syncBlock() makes them visible, also
// to copies.
SLUICE_DEVICE void fenceBarrierInit();
SLUICE_DEVICE void arrive(Barrier* barrier);
// An arrival that announces bytes which copies will bring in this phase.
SLUICE_DEVICE void arriveExpecting(Barrier* barrier, uint32_t bytes);
// Whether the phase of this parity has ended; may take a while to say no. After yes, what was written before
// the arrivals, and what the copies brought, is visible. A barrier starts as if a phase of parity 1 had
// ended.
SLUICE_DEVICE bool hasEnded(Barrier* barrier, int parity);

// ---- Copies by a thread (cp.async).

// Copies 16 bytes at a multiple of 16 in global memory to one in shared memory, where they land later as if
// the thread stored them then. Without `isThere` it stores zeros, and does not read.
SLUICE_DEVICE void copyPart(std::byte* to, const std::byte* from, bool isThere);
// The phase of the barrier that goes on does not end before all parts have landed that this thread has
// copied. It is no arrival, and comes before the last one of the phase.
SLUICE_DEVICE void holdForParts(Barrier* barrier);

// ---- Copies by TMA.

// Copies a box to shared memory: boxColumns elements of boxRows rows from (row, column) on, of the matrix
// `outer`. In shared memory (aligned to 1024 bytes) rows are 128 bytes long and swizzled (swizzled(), below);
// a box of one row may also lie where any row of another would, aligned to 128 bytes. What lies outside of
// the matrix is 0. When it has landed, it counts the bytes of the whole box at the barrier. One thread calls
// it. Only the first `rows` rows must be there already: the others may be written meanwhile, and nobody may
// use what comes of them (the model makes them NaN).
SLUICE_DEVICE void copyBox(std::byte* to, const TensorMap* from, Barrier* barrier, int column, int row,
                           int outer, int rows);
// Stores a box from shared memory, likewise swizzled; what lies outside of the matrix is not written.
SLUICE_DEVICE void storeBox(const TensorMap* to, const std::byte* from, int column, int row, int outer);
// As storeBox, but adds fp32 to fp32: each element once.
SLUICE_DEVICE void addBox(const TensorMap* to, const std::byte* from, int column, int row, int outer);
// Before a block's first copy with a map that the host has written to memory of the device; a barrier then
// tells the threads that copy. Without it, hardware may use what was there before (the model refuses the
// copy).
SLUICE_DEVICE void fenceMap(const TensorMap* map);
// Bytes, a multiple of 16 that lie at multiples of 16, from global to shared memory and back.
SLUICE_DEVICE void copyBytes(std::byte* to, const std::byte* from, uint32_t bytes, Barrier* barrier);
SLUICE_DEVICE void storeBytes(std::byte* to, const std::byte* from, uint32_t bytes);

// Stores of this thread since the last call become a group. waitStoresRead<N>: all but the last N groups have
// read their shared memory, which may be used again; waitStores<N>: they are also visible to others, after a
// signal() of this thread.
SLUICE_DEVICE void groupStores();
template <int N>
SLUICE_DEVICE void waitStoresRead();
template <int N>
SLUICE_DEVICE void waitStores();

// Where byte `byte` of a row of 128 bytes lies, from the beginning of an area of such rows that is aligned to
// 1024 bytes: 16-byte parts of a row are exchanged by the row's number in its eight.
SLUICE_DEVICE uint32_t swizzled(uint32_t row, uint32_t byte) { return row * 128 + (byte ^ ((row & 7) << 4)); }

// ---- Products by tensor cores (wgmma): a warpgroup multiplies a [64, 16] by b [16, N], bf16, and adds in
// fp32.

// The operand whose first element is at `tile`: with Major::kK 16 k from a multiple of 16 elements in a row
// on (tile = area + 2 * k), with Major::kMn 16 rows from a multiple of 8 on (tile = area + 128 * k). `pitch`
// only matters for kMn, and is a multiple of 1024.
SLUICE_DEVICE uint64_t describe(const std::byte* tile, Major major, uint32_t pitch);

// Thread t of the warpgroup has rows 16 (t / 32) + t % 32 / 4, and 8 below it; of both columns 8 j + 2 (t %
// 4) and the one after it: sum[4 j], sum[4 j + 1] and, 8 rows below, sum[4 j + 2], sum[4 j + 3].
SLUICE_DEVICE int fragmentRow(int i) {
  return threadIndex() % 128 / 32 * 16 + threadIndex() % 32 / 4 + (i & 2) / 2 * 8;
}
SLUICE_DEVICE int fragmentColumn(int i) { return i / 4 * 8 + threadIndex() % 4 * 2 + (i & 1); }

// Before the first product after sums were touched by this thread. Aligned, of the warpgroup, as all below.
SLUICE_DEVICE void fenceProducts();
// Issues the product; sum is added to, or written if `add` is false. Until waitProducts() nobody may touch
// sum, or write what a and b describe. N: 64, 128, 192 or 256.
template <int N, Major A, Major B>
SLUICE_DEVICE void multiply(float (&sum)[N / 2], uint64_t a, uint64_t b, bool add);
// Products since the last call become a group.
SLUICE_DEVICE void groupProducts();
// All but the last `N` groups are done. `sum` of those may be read.
template <int N>
SLUICE_DEVICE void waitProducts();

// ---- Numbers.

// Two numbers as bf16, rounded to nearest even; NaN stays NaN. The first is in the lower half.
SLUICE_DEVICE uint32_t packBf16(float first, float second);
SLUICE_DEVICE float firstBf16(uint32_t pair);
SLUICE_DEVICE float secondBf16(uint32_t pair);

// exp(x) and 1 / x, with relative errors far below bf16's; infinite or 0 where out of range.
SLUICE_DEVICE float exponential(float x);
SLUICE_DEVICE float reciprocal(float x);

// ---- Trouble.

// Ends the kernel, for what cannot be; on the model with the message.
[[noreturn]] SLUICE_DEVICE void trap(const char* why);

}  // namespace sluice::gpu

#if defined(__CUDACC__)
#include "ops/gpu/hw_ptx.h"
#else
#include "ops/gpu/model/hw_model.h"
#endif
