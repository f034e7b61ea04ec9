// GpuBackend: what a GPU device needs of the machine: memory, tensor maps, and the launch of the persistent
// kernel for a step. CUDA is one, the hardware model of ops/gpu another.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/abi/gpu/matrix.h"
#include "runtime/exec/device.h"
#include "runtime/gpu/step_tables.h"

namespace sluice {

// What a launch leaves: the next record of each list, what each block reported, and how long it took.
struct StepOutcome {
  std::vector<uint32_t> heads;
  std::vector<gpu::StuckReport> reports;
  double seconds = 0;  // by the clock of the device; 0: it has none
};

class GpuBackend {
 public:
  virtual ~GpuBackend() = default;

  virtual int blocks() const = 0;       // that run the tasks of a rank
  virtual int tileColumns() const = 0;  // of the kernel's tiles: 128 or 256

  // As the methods of Device with these names.
  virtual Expected<DeviceMemory> reserve(size_t bytes) = 0;
  virtual Expected<SymmetricMemory> allocate(size_t bytes) = 0;
  // What allocate() gave another rank, as this rank's tasks reach it.
  virtual std::byte* peer(int rank, SymmetricHandle handle) = 0;

  // Whether tasks can access memory at this address.
  virtual bool reaches(const void* data) const = 0;
  virtual bool isOnHost(const void* data) const = 0;  // the host can access it
  // Between the host and memory of the device, after what is followed; done when they return.
  virtual Status copyIn(std::byte* to, const void* from, size_t bytes) = 0;
  virtual Status copyOut(void* to, const std::byte* from, size_t bytes) = 0;
  virtual Status zero(std::byte* data, size_t bytes) = 0;

  // Streams of the caller. mark() is as Device::mark(). Copies and the launch to come begin after what
  // follow() was told of; settle() waits for it. What is enqueued after precede() begins after the last
  // launch.
  virtual Expected<std::shared_ptr<StreamMark>> mark(void* stream) = 0;
  virtual Status follow(StreamMark& mark) = 0;
  virtual Status settle() = 0;
  virtual Status precede(StreamMark& mark) = 0;

  virtual Status makeMap(const gpu::MappedMatrix& matrix, gpu::TensorMap& map) const = 0;

  // Runs all tasks of the step, and returns when none of this rank runs any more. Waits of the kernel last as
  // long as this at most. Errors: of the machine, or the transport was aborted before the launch.
  virtual Expected<StepOutcome> run(const StepTables& tables, Transport& transport,
                                    double timeoutSeconds) = 0;
};

// Makes the backend of a rank. The transport outlives it.
using BackendMaker = std::function<Expected<std::unique_ptr<GpuBackend>>(Transport& transport)>;

}  // namespace sluice
