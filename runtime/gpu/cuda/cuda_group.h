// CudaGroup: the ranks of one process on one GPU, whose steps are one launch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/gpu/cuda/driver.h"
#include "runtime/gpu/partitions.h"

namespace sluice {

// Resource type, shared by the backends of its ranks.
class CudaGroup {
 public:
  // Error: what CUDA said.
  static Expected<std::shared_ptr<CudaGroup>> make(int device, int blocks, int ranks);
  ~CudaGroup();

  int device() const { return device_; }
  int ranks() const { return partitions_.ranks(); }
  int blocks() const { return blocks_; }    // of a rank
  void* stream() const { return stream_; }  // of copies and launches

  // Memory of the device, zero-filled if asked for.
  Expected<DeviceMemory> reserve(size_t bytes, bool zeroed);
  // The symmetric memory of a rank; each rank makes the same allocations in the same order.
  Expected<SymmetricMemory> allocate(int rank, size_t bytes);
  std::byte* symmetric(int rank, SymmetricHandle handle);

  Expected<StepOutcome> run(const StepTables& tables, Transport& transport, double timeoutSeconds);

 private:
  CudaGroup(int device, int blocks, int ranks)
      : device_(device), blocks_(blocks), partitions_(ranks), symmetric_(static_cast<size_t>(ranks)) {}
  Expected<std::vector<StepOutcome>> launch(std::span<const StepTables* const> tables, Transport& transport,
                                            double timeoutSeconds);
  Status awaitEnd(Transport& transport, std::byte* abortWord, std::span<const MemoryRange> heads,
                  double timeoutSeconds);

  const int device_;
  const int blocks_;
  Partitions partitions_;
  void* stream_ = nullptr;
  void* aside_ = nullptr;    // a stream for what must not wait for a launch
  uint64_t* one_ = nullptr;  // of the host, whence an abort is copied while the kernel runs
  void* begun_ = nullptr;    // events before and after a launch
  void* ended_ = nullptr;
  DeviceMemory arena_;                                // of the tables of all ranks
  std::mutex mutex_;                                  // guards symmetric_
  std::vector<std::vector<DeviceMemory>> symmetric_;  // by rank and handle
};

}  // namespace sluice
