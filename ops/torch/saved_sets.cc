#include "ops/torch/saved_sets.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {

Expected<HeldSet> SavedSets::take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto free = std::find(holders_.begin(), holders_.end(), 0);
  const HeldSet held{static_cast<uint32_t>(free - holders_.begin()), takings_ + 1};
  if (held.set == kMaxSavedSets)
    return Error{
        fmt::format("all {} sets of saved tensors of this layer are in use: that many forwards wait "
                    "for their backward",
                    kMaxSavedSets)};
  if (free == holders_.end()) holders_.push_back(0);
  holders_[held.set] = held.taken;
  ++takings_;
  return held;
}

void SavedSets::release(HeldSet held) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (held.set < holders_.size() && holders_[held.set] == held.taken) holders_[held.set] = 0;
}

bool SavedSets::isHeld(HeldSet held) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return held.set < holders_.size() && held.taken != 0 && holders_[held.set] == held.taken;
}

int SavedSets::made() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(holders_.size());
}

int SavedSets::inUse() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(holders_.size() - std::count(holders_.begin(), holders_.end(), 0));
}

}  // namespace sluice
