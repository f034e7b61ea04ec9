// The names that have been declared so far while a text is read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "runtime/base/id.h"

namespace sluice::text {

// Records of one kind. A name is valid inside an entry, or inside the program if the entry is none.
template <class Tag>
class Scope {
 public:
  // Declares the next record; its index is the number of records declared before.
  void declare(const std::string& name, EntryId entry = {}) {
    const auto [at, isNew] = ids_.try_emplace({entry, name}, count_);
    if (!isNew) at->second = kAmbiguous;
    ++count_;
  }

  enum class Result { kFound, kUnknown, kAmbiguous };

  Result find(const std::string& name, EntryId entry, Id<Tag>& id) const {
    const auto at = ids_.find({entry, name});
    if (at == ids_.end()) return Result::kUnknown;
    if (at->second == kAmbiguous) return Result::kAmbiguous;
    id = {at->second};
    return Result::kFound;
  }

 private:
  static constexpr uint32_t kAmbiguous = Id<Tag>::kNoneValue;

  std::map<std::pair<EntryId, std::string>, uint32_t> ids_;
  uint32_t count_ = 0;
};

}  // namespace sluice::text
