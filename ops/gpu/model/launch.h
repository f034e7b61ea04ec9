// The hardware model's side of the host: runs a kernel (ops/gpu/hw.h) in fibers, and says what it did wrong.
//
// One run at a time per process thread. The same arguments and seed give the same run. What it finds: broken
// rules of hw.h, bytes that are used while a copy is in flight (they are NaN), sums that are touched while
// products are in flight, aligned calls of warps whose lanes may be apart, fences between the generic and the
// async proxy that are missing or come before their acquire, accesses outside of memory, waits that never
// end. Compiled with -fsanitize=thread, kernels are also checked for races, over all orders that the
// barriers, signals and copies of the run allow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "ops/gpu/hw.h"

namespace sluice::gpu::model {

struct Launch {
  int blocks = 1;
  int threads = 384;  // per block, a multiple of 128
  size_t sharedBytes = 0;
  uint64_t seed = 0;  // who goes on, and when copies and products happen
};

// Runs the kernel in every thread of every block. Returns what was wrong; empty: nothing.
std::string run(const Launch& launch, const std::function<void()>& kernel);

// Global memory of the next run: kernels may access nothing else. It may be only mapped.
void registerGlobal(const void* data, size_t bytes);

// Returns the map of a matrix of bf16 or fp32 (2 or 4 bytes per element) [outers, rows, columns]. Its pitches
// in bytes are multiples of 16, as is `data`. A row of a box has 128 bytes, a box at most 256 rows.
TensorMap makeMap(const void* data, int elementBytes, int columns, int rows, int outers, int64_t rowPitch,
                  int64_t outerPitch, int boxColumns, int boxRows);
TensorMap makeMap(const MappedMatrix& matrix);

}  // namespace sluice::gpu::model
