// SavedSets: which of a layer's sets of saved tensors are in use.
//
// A resource type; any number of threads may use it. take() returns the smallest free number, so ranks that
// take and release in the same order use the same sets.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "runtime/api/context.h"
#include "runtime/base/expected.h"

namespace sluice {

// A set in use. `taken` distinguishes this use from earlier ones of the same set.
struct HeldSet {
  uint32_t set = 0;
  uint64_t taken = 0;
};

class SavedSets {
 public:
  // Error: all sets are in use.
  Expected<HeldSet> take();
  // Called once per take().
  void release(HeldSet held);
  bool isHeld(HeldSet held) const;

  int made() const;  // the largest number that were in use at once
  int inUse() const;

 private:
  mutable std::mutex mutex_;
  std::vector<uint64_t> holders_;  // by set: HeldSet::taken, or 0 where it is free
  uint64_t takings_ = 0;
};

}  // namespace sluice
