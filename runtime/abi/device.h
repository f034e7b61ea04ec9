// SLUICE_DEVICE: of a function that kernels for GPUs call, SLUICE_DEVICE_CALL if it is not to be inlined. For
// any other compiler it is a plain one.
#pragma once

#if defined(__CUDACC__)
#define SLUICE_DEVICE __device__ __forceinline__
// static: nvcc would give the host a function of this name, too, which ends the process
#define SLUICE_DEVICE_CALL static __device__ __noinline__
#else
#define SLUICE_DEVICE inline
#define SLUICE_DEVICE_CALL inline
#endif
