// WorkMemory: memory that a rank's steps use without keeping anything in it: regions that are not saved, and
// the scratch memory of executors. Shared by all programs of a workspace, which use it in turn.
//
// Regions are laid into slots, the largest of each program into the first, so that what programs touch of a
// slot begins at the same place. A WorkMemory never changes: grow() makes another one, which has the slots of
// the first that are large enough. Steps hold the one that they were asked for with; what nobody holds is
// freed, but for symmetric slots, which live as long as the transport.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/exec/device.h"

namespace sluice {

// What programs need, by slot.
struct MemoryNeeds {
  struct Slot {
    size_t bytes = 0;
    std::string region;  // that needs so many
  };
  std::vector<Slot> local;
  std::vector<Slot> symmetric;
  size_t scratchBytes = 0;

  // Whatever either needs.
  void add(const MemoryNeeds& other);
};

// The places of a program's regions.
struct RegionSlots {
  static constexpr int32_t kSaved = -1;  // not here

  std::vector<int32_t> slotOf;  // by region: of its kind, local or symmetric
  MemoryNeeds needs;

  // Of a program whose executor needs so much scratch memory.
  static RegionSlots of(const Plan& plan, size_t scratchBytes);
};

struct WorkMemory {
  std::vector<DeviceMemory> local;
  std::vector<SymmetricMemory> symmetric;
  DeviceMemory scratch;

  bool holds(const MemoryNeeds& needs) const;

  // Collective where symmetric slots grow. Errors name the region.
  Expected<std::shared_ptr<const WorkMemory>> grow(const MemoryNeeds& needs, Device& device) const;
};

// The touched bytes of each slot: the most that a step has used. Used by the thread that runs the step.
class TouchedMemory {
 public:
  // A step has used so many bytes of the slot.
  void touch(bool symmetric, int32_t slot, const WorkMemory& memory, int64_t bytes);
  // Of all slots; symmetric slots that were replaced are still there.
  int64_t bytes() const;

 private:
  struct Slot {
    size_t size = 0;  // of the slot; another one has another size
    int64_t touched = 0;
  };
  std::vector<Slot> local_, symmetric_;
  int64_t replaced_ = 0;
};

}  // namespace sluice
