// What a backend needs of CUDA, in plain types: nvcc does not compile the headers of fmt.
//
// A function that fails returns what CUDA said, a text that stays until the thread fails again; null: nothing
// was wrong. In a build without CUDA every function but isBuilt() fails.
#pragma once

#include <cstddef>

#include "runtime/abi/gpu/matrix.h"

namespace sluice::cuda {

using Failure = const char*;

bool isBuilt();

struct DeviceInfo {
  char name[256];
  int major, minor;  // compute capability
  int multiprocessors;
  double clock;  // Hz, the most
  size_t bytes;  // of memory
  size_t freeBytes;
};
Failure countDevices(int* count);
// Versions of CUDA, 13000 for 13.0: what the driver supports (0: there is no driver), and what this build
// needs.
Failure describeVersions(int* driver, int* runtime);
Failure describe(int device, DeviceInfo* info);

// All below is for the device that the calling thread has chosen.
Failure choose(int device);
Failure allocate(void** data, size_t bytes);
void release(void* data);
// Allocates memory of the host that tasks can access, too.
Failure allocateShared(void** data, size_t bytes);
void releaseShared(void* data);
// Whether tasks on that device can access memory at this address.
bool reaches(const void* data, int device);
// Whether the host can.
bool isOnHost(const void* data);
// After what the stream holds; done when they return.
Failure copyIn(void* to, const void* from, size_t bytes, void* stream);
Failure copyOut(void* to, const void* from, size_t bytes, void* stream);
Failure zero(void* data, size_t bytes, void* stream);

Failure makeMap(const gpu::MappedMatrix& matrix, gpu::TensorMap* map);

// A stream of its own, which waits for no other.
Failure makeStream(void** stream);
void endStream(void* stream);
// Whether all that was launched in it is done.
Failure isIdle(void* stream, bool* idle);
// Waits for that.
Failure settle(void* stream);
// Whether what is enqueued in it becomes a part of a graph instead.
Failure isCaptured(void* stream, bool* captured);
// What is enqueued from now on begins when the event, as it was last recorded, has happened.
Failure waitFor(void* stream, void* event);

// Events, which know when they happened.
Failure makeEvent(void** event);
void endEvent(void* event);
// It happens when all that was enqueued in the stream before is done.
Failure record(void* event, void* stream);
// Between two that have happened.
Failure secondsBetween(void* begin, void* end, double* seconds);

}  // namespace sluice::cuda
