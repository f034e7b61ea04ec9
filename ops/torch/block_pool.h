// BlockPool: memory of large tensors that are made again in each step, such as weight gradients. Freed blocks
// are kept for the next tensor of the same size, because getting new pages from the system takes as long as a
// small step.
//
// Shared by its blocks, which may outlive the code that made it. Thread-safe. It keeps at most as many blocks
// per size as were in use at once.
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

  // Aligned to a huge page, with undefined content. Error: out of memory.
  Expected<std::shared_ptr<std::byte>> take(size_t bytes);

  // Frees the blocks that are not in use.
  void trim();

  // The bytes of all blocks, including those in use.
  int64_t bytes() const;

 private:
  BlockPool() = default;
  void release(std::byte* block, size_t bytes) noexcept;

  mutable std::mutex mutex_;
  std::multimap<size_t, std::byte*> free_;  // by bytes
  int64_t bytes_ = 0;
};

}  // namespace sluice
