// Memory and launches of a probe.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/abi/gpu/probe_launch.h"
#include "runtime/gpu/gpu_backend.h"

namespace sluice::tools {

// Runs a probe, and returns after its end. `memory` is all that it may access. Error: what was wrong.
using LaunchProbe =
    std::function<Status(const gpu::ProbeLaunch& launch, std::span<const MemoryRange> memory)>;

// How probes run.
struct ProbeMachine {
  LaunchProbe launch;
  bool isModel = false;  // which makes rows of a box that do not count NaN, and refuses what breaks a rule
  int signals = 1000;    // between two blocks
  double timeoutSeconds = 0.05;  // of each wait of a kernel
  std::string only;              // the name of one probe; empty: all
};

// Resource type: the memory of one probe. Errors stay: after one, calls do nothing and return zeros.
class ProbeRun {
 public:
  ProbeRun(GpuBackend& backend, const ProbeMachine& machine) : backend_(backend), machine_(machine) {}

  const ProbeMachine& machine() const { return machine_; }
  const Status& status() const { return status_; }
  int blocks() const { return backend_.blocks(); }
  // Without what this one has, and without its errors.
  ProbeRun another() const { return {backend_, machine_}; }

  // A copy in memory of the device.
  template <class T>
  T* upload(const std::vector<T>& values) {
    return reinterpret_cast<T*>(reserve(values.data(), values.size() * sizeof(T)));
  }
  // Over what an upload() of as many values gave.
  template <class T>
  void overwrite(T* data, const std::vector<T>& values) {
    copyIn(reinterpret_cast<std::byte*>(data), values.data(), values.size() * sizeof(T));
  }
  template <class T>
  std::vector<T> download(const T* data, size_t count) {
    std::vector<T> values(count);
    copyOut(values.data(), reinterpret_cast<const std::byte*>(data), count * sizeof(T));
    return values;
  }
  gpu::TensorMap makeMap(const gpu::MappedMatrix& matrix);

  void launch(const gpu::ProbeLaunch& launch);

 private:
  std::byte* reserve(const void* from, size_t bytes);
  void copyIn(std::byte* to, const void* from, size_t bytes);
  void copyOut(void* to, const std::byte* from, size_t bytes);

  GpuBackend& backend_;
  const ProbeMachine& machine_;
  Status status_;
  std::vector<DeviceMemory> memory_;
  std::vector<MemoryRange> ranges_;  // of it, without what was rounded up
};

}  // namespace sluice::tools
