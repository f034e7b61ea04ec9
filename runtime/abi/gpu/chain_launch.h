// The host's side of the persistent kernel on a GPU. Plain types, because nvcc and g++ both read it.
#pragma once

#include "runtime/abi/gpu/chain_plan.h"

namespace sluice::gpu {

inline constexpr int kLaunchedColumns = 256;

// Starts the kernel in that stream of CUDA (a cudaStream_t), with tiles of kLaunchedColumns. `activation` is
// the one of all tasks that have an activation; null: they have several, and the kernel is the larger one
// that has the code of all. All blocks run at the same time: there are at most as many as the GPU has SMs,
// and a multiple of the number of partitions. Returns what CUDA said; null: nothing was wrong.
const char* launchChain(const Launch& launch, const ActivationKind* activation, int blocks, void* stream);

}  // namespace sluice::gpu
