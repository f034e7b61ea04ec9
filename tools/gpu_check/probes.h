// Probes: facts of the hardware of which the model is made and that kernels rely on, and what is not known of
// it yet; the memory and launches of a probe (ProbeRun), and what a check found (CheckResult). On a GPU
// probes come first: where one fails, results of the kernel mean nothing.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
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

// What a check found.
struct CheckResult {
  std::string name;
  bool passed = false;
  std::string text;  // figures, or what is wrong
  double seconds = 0;
  std::map<std::string, double> figures = {};  // those in the text that are for machines
};

using ReportResult = std::function<void(const CheckResult& result)>;

// A probe. Returns figures, or what is wrong; errors of the run come before both.
using ProbeBody = Expected<std::string> (*)(ProbeRun& run);
struct NamedProbe {
  const char* name;
  ProbeBody body;
  bool isOfLaunch = false;  // without which nothing else can run
  bool isForGpus = false;   // of what kernels do not do any more, and the model refuses
};
// What could hang or end the process where it is wrong comes last.
std::span<const NamedProbe> allProbes();

// Runs one, on a backend of one rank.
Expected<std::string> runProbe(const NamedProbe& probe, GpuBackend& backend, const ProbeMachine& machine);
// Runs all probes; each result is reported as soon as it is known. Returns whether all passed.
bool runProbes(GpuBackend& backend, const ProbeMachine& machine, const ReportResult& report);

// These probe products and functions; the others are with the list.
Expected<std::string> probeProducts(ProbeRun& run, int columns);
Expected<std::string> probeSubnormalProducts(ProbeRun& run);
Expected<std::string> probeSubnormalAdditions(ProbeRun& run);
Expected<std::string> probeExponential(ProbeRun& run);
Expected<std::string> probeReciprocal(ProbeRun& run);
Expected<std::string> probeRounding(ProbeRun& run);

}  // namespace sluice::tools
