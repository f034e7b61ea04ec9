// Staging: copies, in memory of the device, of what a step touches in memory that tasks cannot access:
// tensors of the caller on the host, and the tables of the routing.
#pragma once

#include <span>
#include <vector>

#include "runtime/gpu/gpu_backend.h"

namespace sluice {

// Each executor has one. A copy is kept for later steps; where the caller has promised that the content of a
// tensor stays, it is copied once.
class Staging {
 public:
  explicit Staging(GpuBackend& backend) : backend_(backend) {}

  void bind(std::span<const BoundTensor> bound) { bound_.assign(bound.begin(), bound.end()); }

  // The step with addresses that tasks can access, and the content there. The result refers to this object
  // and to `step`. Errors: no memory on the device, or a copy that failed.
  Expected<Step> begin(const Step& step);
  // Copies what tasks wrote back to where the caller expects it.
  Status end(const Step& step);

  const int32_t* pairOf() const { return reinterpret_cast<const int32_t*>(tables_.data); }
  const int32_t* positionOf() const { return pairOf() + pairs_; }

 private:
  struct Copy {
    DeviceMemory memory;
    bool isUsed = false;    // in this step
    bool isFilled = false;  // in this step
    uint64_t version = 0;   // of the content, where it stays
  };

  Status grow(DeviceMemory& memory, size_t bytes);
  Status stage(const Step& step, BufferId id, bool isRead);
  Status stageTables(const RoutingTables& tables);

  GpuBackend& backend_;
  std::vector<BoundTensor> bound_;        // by buffer
  std::vector<Copy> copies_;              // by buffer
  std::vector<BufferAddress> addresses_;  // of the step, by buffer
  DeviceMemory tables_;
  size_t pairs_ = 0;
};

}  // namespace sluice
