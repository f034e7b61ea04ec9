#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>

#include "runtime/gpu/cuda/driver.h"

namespace sluice::cuda {
namespace {

Failure toFailure(cudaError_t said) { return said == cudaSuccess ? nullptr : cudaGetErrorString(said); }

Failure copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, void* stream) {
  const cudaError_t said = cudaMemcpyAsync(to, from, bytes, kind, static_cast<cudaStream_t>(stream));
  return said == cudaSuccess ? settle(stream) : toFailure(said);
}

}  // namespace

bool isBuilt() { return true; }

Failure countDevices(int* count) {
  *count = 0;
  return toFailure(cudaGetDeviceCount(count));
}

Failure describeVersions(int* driver, int* runtime) {
  const cudaError_t said = cudaDriverGetVersion(driver);
  return toFailure(said == cudaSuccess ? cudaRuntimeGetVersion(runtime) : said);
}

Failure describe(int device, DeviceInfo* info) {
  cudaDeviceProp properties;
  cudaError_t said = cudaGetDeviceProperties(&properties, device);
  if (said != cudaSuccess) return toFailure(said);
  std::memcpy(info->name, properties.name, sizeof(info->name));
  info->name[sizeof(info->name) - 1] = 0;
  info->major = properties.major;
  info->minor = properties.minor;
  info->multiprocessors = properties.multiProcessorCount;
  int kilohertz = 0;
  said = cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, device);
  info->clock = 1e3 * kilohertz;
  if (said == cudaSuccess) said = cudaSetDevice(device);
  if (said == cudaSuccess) said = cudaMemGetInfo(&info->freeBytes, &info->bytes);
  return toFailure(said);
}

Failure choose(int device) { return toFailure(cudaSetDevice(device)); }

Failure allocate(void** data, size_t bytes) { return toFailure(cudaMalloc(data, bytes)); }
void release(void* data) { cudaFree(data); }

Failure allocateShared(void** data, size_t bytes) {
  return toFailure(cudaHostAlloc(data, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
}
void releaseShared(void* data) { cudaFreeHost(data); }

bool reaches(const void* data, int device) {
  cudaPointerAttributes about;
  if (cudaPointerGetAttributes(&about, data) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return about.type == cudaMemoryTypeManaged ||
         (about.type == cudaMemoryTypeDevice && about.device == device);
}

bool isOnHost(const void* data) {
  cudaPointerAttributes about;
  if (cudaPointerGetAttributes(&about, data) != cudaSuccess) {
    cudaGetLastError();
    return true;
  }
  return about.type != cudaMemoryTypeDevice;
}

Failure copyIn(void* to, const void* from, size_t bytes, void* stream) {
  return copy(to, from, bytes, cudaMemcpyHostToDevice, stream);
}
Failure copyOut(void* to, const void* from, size_t bytes, void* stream) {
  return copy(to, from, bytes, cudaMemcpyDeviceToHost, stream);
}
Failure zero(void* data, size_t bytes, void* stream) {
  const cudaError_t said = cudaMemsetAsync(data, 0, bytes, static_cast<cudaStream_t>(stream));
  return said == cudaSuccess ? settle(stream) : toFailure(said);
}

// Through the runtime, so that programs need no libcuda where there is no GPU.
struct MapEncoder {
  PFN_cuTensorMapEncodeTiled_v12000 encode = nullptr;
  Failure failure = nullptr;

  MapEncoder() {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    failure = toFailure(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                         cudaEnableDefault, &found));
    if (failure == nullptr && found != cudaDriverEntryPointSuccess)
      failure = "the driver has no cuTensorMapEncodeTiled, which drivers have since 525 (CUDA 12.0)";
    encode = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }
};

Failure makeMap(const gpu::MappedMatrix& matrix, gpu::TensorMap* map) {
  static const MapEncoder encoder;
  if (encoder.failure != nullptr) return encoder.failure;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(matrix.columns), static_cast<cuuint64_t>(matrix.rows),
                              static_cast<cuuint64_t>(matrix.outers)};
  const cuuint64_t pitches[] = {static_cast<cuuint64_t>(matrix.rowPitch),
                                static_cast<cuuint64_t>(matrix.outerPitch)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(matrix.boxColumns),
                            static_cast<cuuint32_t>(matrix.boxRows), 1};
  const cuuint32_t steps[] = {1, 1, 1};
  static_assert(sizeof(CUtensorMap) == sizeof(gpu::TensorMap));
  CUtensorMap made;
  const CUresult result = encoder.encode(
      &made, matrix.elementBytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 3,
      const_cast<std::byte*>(matrix.data), sizes, pitches, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    thread_local char text[320];
    std::snprintf(text, sizeof(text),
                  "the driver refuses a tensor map (CUresult %d): [%lld, %lld, %lld] of %d bytes at %p, "
                  "pitches %lld and %lld bytes, boxes of %d x %d",
                  static_cast<int>(result), static_cast<long long>(matrix.outers),
                  static_cast<long long>(matrix.rows), static_cast<long long>(matrix.columns),
                  matrix.elementBytes, static_cast<const void*>(matrix.data),
                  static_cast<long long>(matrix.rowPitch), static_cast<long long>(matrix.outerPitch),
                  matrix.boxRows, matrix.boxColumns);
    return text;
  }
  std::memcpy(map, &made, sizeof(made));
  return nullptr;
}

Failure makeStream(void** stream) {
  cudaStream_t made = nullptr;
  const cudaError_t said = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
  *stream = made;
  return toFailure(said);
}
void endStream(void* stream) { cudaStreamDestroy(static_cast<cudaStream_t>(stream)); }

Failure isIdle(void* stream, bool* idle) {
  const cudaError_t said = cudaStreamQuery(static_cast<cudaStream_t>(stream));
  *idle = said == cudaSuccess;
  return said == cudaErrorNotReady ? nullptr : toFailure(said);
}

Failure settle(void* stream) { return toFailure(cudaStreamSynchronize(static_cast<cudaStream_t>(stream))); }

Failure isCaptured(void* stream, bool* captured) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t said = cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status);
  *captured = status != cudaStreamCaptureStatusNone;
  return toFailure(said);
}

Failure waitFor(void* stream, void* event) {
  return toFailure(
      cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event), 0));
}

Failure makeEvent(void** event) {
  cudaEvent_t made = nullptr;
  const cudaError_t said = cudaEventCreate(&made);
  *event = made;
  return toFailure(said);
}
void endEvent(void* event) { cudaEventDestroy(static_cast<cudaEvent_t>(event)); }

Failure record(void* event, void* stream) {
  return toFailure(cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)));
}

Failure secondsBetween(void* begin, void* end, double* seconds) {
  float milliseconds = 0;
  const cudaError_t said =
      cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(begin), static_cast<cudaEvent_t>(end));
  *seconds = 1e-3 * milliseconds;
  return toFailure(said);
}

}  // namespace sluice::cuda
