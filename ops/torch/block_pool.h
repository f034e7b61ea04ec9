// BlockPool: memory of large tensors that are made anew in each step, as gradients of weights are. What is
// freed is kept for the next of the same size: new pages of the system take as long as a small step.
//
// Shared by its blocks, which may outlive whoever made it. Thread-safe. Holds at most, of each size, what was
// taken at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/base/expected.h"

namespace sluice {

class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  static std::shared_ptr<BlockPool> create();
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // At a huge page's begin, of any content. Error: there is not that much memory.
  Expected<std::shared_ptr<std::byte>> take(size_t bytes);

  // Frees what was given back and not taken again.
  void trim();

  // Of all blocks, those that are taken included.
  int64_t bytes() const;

 private:
  BlockPool() = default;
  void giveBack(std::byte* block, size_t bytes) noexcept;

  mutable std::mutex mutex_;
  std::multimap<size_t, std::byte*> free_;  // by bytes
  int64_t bytes_ = 0;
};

}  // namespace sluice
