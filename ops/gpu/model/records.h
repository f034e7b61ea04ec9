// Which plain store wrote each granule of a memory last.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

namespace sluice::gpu::model {

inline constexpr size_t kGranule = 16;  // bytes that are remembered together

struct Written {
  int thread = 0;            // its number + 1; 0: nobody, or a copy
  uint64_t proxyFences = 0;  // of that thread, before
  uint64_t epoch = 0;        // Machine::epoch of the store
};

// The records of a memory, by the offset of a byte in it. The memory may be large and mostly untouched, so
// they are made in chunks, where a store first writes. A resource.
class Records {
 public:
  // Null: no plain store wrote there.
  Written* find(size_t offset) {
    Chunk* const chunk = findChunk(offset / kBytes);
    return chunk ? &(*chunk)[offset / kGranule % kChunk] : nullptr;
  }
  Written& at(size_t offset) {
    const size_t index = offset / kBytes;
    if (!findChunk(index)) last_ = chunks_.emplace(index, std::make_unique<Chunk>()).first->second.get();
    lastIndex_ = index;
    return (*last_)[offset / kGranule % kChunk];
  }

 private:
  static constexpr size_t kChunk = 1024, kBytes = kChunk * kGranule;
  using Chunk = std::array<Written, kChunk>;

  Chunk* findChunk(size_t index) {
    if (last_ && index == lastIndex_) return last_;
    const auto found = chunks_.find(index);
    if (found == chunks_.end()) return nullptr;
    lastIndex_ = index;
    return last_ = found->second.get();
  }

  std::unordered_map<size_t, std::unique_ptr<Chunk>> chunks_;
  Chunk* last_ = nullptr;  // the chunk that was used last
  size_t lastIndex_ = 0;
};

}  // namespace sluice::gpu::model
