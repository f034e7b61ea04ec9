// WorkMemory: memory that a rank's steps use without keeping anything in it: regions that are not saved, and
// the scratch memory of executors. Shared by all programs of a workspace, which take turns.
//
// Regions are assigned to slots, the largest of each program to the first, so that the parts of a slot that
// programs touch begin at the same place. A WorkMemory never changes: grow() makes another one, which reuses
// those slots that are large enough. Each step holds the WorkMemory with which it was requested. When no step
// holds one any more it is freed, except for symmetric slots, which live as long as the transport.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/exec/device.h"

namespace sluice {

// The memory that programs need, by slot.
struct MemoryNeeds {
  struct Slot {
    size_t bytes = 0;
    std::string region;  // the region that needs this many
  };
  std::vector<Slot> local;
  std::vector<Slot> symmetric;
  size_t scratchBytes = 0;

  // Takes the maximum of both.
  void add(const MemoryNeeds& other);
};

// The slots of a program's regions.
struct RegionSlots {
  static constexpr int32_t kSaved = -1;  // the region is not in work memory

  std::vector<int32_t> slotOf;  // by region: index among the slots of its kind, local or symmetric
  MemoryNeeds needs;

  // For a program whose executor needs this much scratch memory.
  static RegionSlots of(const Plan& plan, size_t scratchBytes);
};

struct WorkMemory {
  std::vector<DeviceMemory> local;
  std::vector<SymmetricMemory> symmetric;
  DeviceMemory scratch;

  bool holds(const MemoryNeeds& needs) const;

  // Collective if symmetric slots grow. Errors name the region.
  Expected<std::shared_ptr<const WorkMemory>> grow(const MemoryNeeds& needs, Device& device) const;
};

// The most bytes that any step has used of each slot. Used by the thread that runs steps.
class TouchedMemory {
 public:
  // Records that a step has used this many bytes of the slot.
  void touch(bool symmetric, int32_t slot, const WorkMemory& memory, int64_t bytes);
  // The sum over all slots; includes symmetric slots that were replaced, because they still exist.
  int64_t bytes() const;

 private:
  struct Slot {
    size_t size = 0;  // identifies the slot: a new slot has another size
    int64_t touched = 0;
  };
  std::vector<Slot> local_, symmetric_;
  int64_t replaced_ = 0;
};

}  // namespace sluice
