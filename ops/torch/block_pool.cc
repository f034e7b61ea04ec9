#include "ops/torch/block_pool.h"

#include <fmt/format.h>

#include <cstdlib>

#include "runtime/base/huge_pages.h"

namespace sluice {

std::shared_ptr<BlockPool> BlockPool::create() { return std::shared_ptr<BlockPool>(new BlockPool); }

BlockPool::~BlockPool() {
  for (const auto& [bytes, block] : free_) std::free(block);
}

Expected<std::shared_ptr<std::byte>> BlockPool::take(size_t bytes) {
  std::byte* block = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (const auto found = free_.find(bytes); found != free_.end()) {
      block = found->second;
      free_.erase(found);
    }
  }
  if (!block) {
    const size_t rounded = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    block = static_cast<std::byte*>(std::aligned_alloc(kHugePageBytes, rounded));
    if (!block) return Error{fmt::format("cannot allocate {} bytes", bytes)};
    adviseHugePages(block, rounded);
    std::lock_guard lock(mutex_);
    bytes_ += static_cast<int64_t>(bytes);
  }
  return std::shared_ptr<std::byte>(
      block, [pool = shared_from_this(), bytes](std::byte* data) { pool->release(data, bytes); });
}

void BlockPool::trim() {
  std::lock_guard lock(mutex_);
  for (const auto& [bytes, block] : free_) {
    std::free(block);
    bytes_ -= static_cast<int64_t>(bytes);
  }
  free_.clear();
}

int64_t BlockPool::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

void BlockPool::release(std::byte* block, size_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  try {
    free_.emplace(bytes, block);
  } catch (...) {
    // there is no memory to keep the block in the list
    std::free(block);
    bytes_ -= static_cast<int64_t>(bytes);
  }
}

}  // namespace sluice
