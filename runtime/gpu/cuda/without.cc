// Replaces the driver and the kernels in a build without CUDA: every function but isBuilt() fails.
#include "runtime/abi/gpu/chain_plan.h"
#include "runtime/abi/gpu/probe_launch.h"
#include "runtime/gpu/cuda/driver.h"

namespace sluice {
namespace {

constexpr const char* kWithout = "Sluice was built without CUDA: nvcc was not found";

}  // namespace

namespace cuda {

bool isBuilt() { return false; }
Failure countDevices(int* /*count*/) { return kWithout; }
Failure describeVersions(int* /*driver*/, int* /*runtime*/) { return kWithout; }
Failure describe(int /*device*/, DeviceInfo* /*info*/) { return kWithout; }
Failure choose(int /*device*/) { return kWithout; }
Failure allocate(void** /*data*/, size_t /*bytes*/) { return kWithout; }
void release(void* /*data*/) {}
Failure allocateShared(void** /*data*/, size_t /*bytes*/) { return kWithout; }
void releaseShared(void* /*data*/) {}
bool reaches(const void* /*data*/, int /*device*/) { return false; }
bool isOnHost(const void* /*data*/) { return true; }
Failure copyIn(void* /*to*/, const void* /*from*/, size_t /*bytes*/, void* /*stream*/) { return kWithout; }
Failure copyOut(void* /*to*/, const void* /*from*/, size_t /*bytes*/, void* /*stream*/) { return kWithout; }
Failure zero(void* /*data*/, size_t /*bytes*/, void* /*stream*/) { return kWithout; }
Failure makeMap(const gpu::MappedMatrix& /*matrix*/, gpu::TensorMap* /*map*/) { return kWithout; }
Failure makeStream(void** /*stream*/) { return kWithout; }
void endStream(void* /*stream*/) {}
Failure isIdle(void* /*stream*/, bool* /*idle*/) { return kWithout; }
Failure settle(void* /*stream*/) { return kWithout; }
Failure isCaptured(void* /*stream*/, bool* /*captured*/) { return kWithout; }
Failure waitFor(void* /*stream*/, void* /*event*/) { return kWithout; }
Failure makeEvent(void** /*event*/) { return kWithout; }
void endEvent(void* /*event*/) {}
Failure record(void* /*event*/, void* /*stream*/) { return kWithout; }
Failure secondsBetween(void* /*begin*/, void* /*end*/, double* /*seconds*/) { return kWithout; }

}  // namespace cuda

const char* gpu::launchChain(const Launch& /*launch*/, const ActivationKind* /*activation*/, int /*blocks*/,
                             void* /*stream*/) {
  return kWithout;
}

const char* gpu::launchProbe(const ProbeLaunch& /*launch*/) { return kWithout; }

}  // namespace sluice
