#include "runtime/comm/boards.h"

#include <cstring>

#include "runtime/base/cache_line.h"
#include "runtime/base/hash.h"

namespace sluice {
namespace {

constexpr size_t kChecksumBytes = sizeof(uint64_t);

}  // namespace

Expected<Boards> Boards::create(Transport& transport, size_t bytes, size_t wordBytes) {
  Boards boards;
  boards.transport_ = &transport;
  boards.message_.resize(kChecksumBytes + bytes);
  boards.begin_ = roundUpToLine(wordBytes);
  boards.stride_ = roundUpToLine(boards.message_.size());
  auto memory =
      transport.allocate(boards.begin_ + 2 * boards.stride_ * static_cast<size_t>(transport.size()));
  if (!memory) return memory.error();
  boards.memory_ = *memory;
  boards.blocks_ = transport.sharesMemory() ? transport.direct(0, *memory) : transport.local(*memory);
  return boards;
}

size_t Boards::findOffset(uint64_t number, int rank) const {
  return begin_ +
         ((number & 1) * static_cast<size_t>(transport_->size()) + static_cast<size_t>(rank)) * stride_;
}

const std::byte* Boards::of(uint64_t number, int rank) const {
  return blocks_ + findOffset(number, rank) + kChecksumBytes;
}

void Boards::put(uint64_t number, std::span<const std::byte> block) {
  std::byte* const data = message_.data() + kChecksumBytes;
  std::memcpy(data, block.data(), block.size());
  const uint64_t checksum = hashContent(std::span(message_).subspan(kChecksumBytes), number);
  std::memcpy(message_.data(), &checksum, kChecksumBytes);
  const int ranks = transport_->size(), rank = transport_->rank();
  const size_t offset = findOffset(number, rank);
  if (transport_->sharesMemory())
    return transport_->put(0, memory_, offset, message_.data(), message_.size());
  for (int i = 0; i < ranks; ++i)
    transport_->put((rank + i) % ranks, memory_, offset, message_.data(), message_.size());
}

bool Boards::isWhole(uint64_t number, int rank) const {
  const std::byte* const block = of(number, rank);
  uint64_t checksum = 0;
  std::memcpy(&checksum, block - kChecksumBytes, kChecksumBytes);
  return checksum == hashContent(std::span(block, message_.size() - kChecksumBytes), number);
}

}  // namespace sluice
