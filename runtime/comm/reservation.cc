#include "runtime/comm/reservation.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "runtime/base/huge_pages.h"

namespace sluice {

Reservation::~Reservation() {
  if (mapping_) munmap(mapping_, mapped_);
}

Reservation::Reservation(Reservation&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_(std::exchange(other.mapped_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

Expected<Reservation> Reservation::reserve(size_t bytes) {
  Reservation result;
  if (bytes == 0) return result;
  // extra space so that the memory can begin at a huge page
  const size_t slack = wantsHugePages(bytes) && bytes + kHugePageBytes > bytes ? kHugePageBytes : 0;
  // NORESERVE: the worst case of a routing is far more than any step touches
  void* const mapping = mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED)
    return Error{fmt::format("cannot reserve {} bytes of address space: {}", bytes, std::strerror(errno))};
  result.mapping_ = mapping;
  result.mapped_ = bytes + slack;
  result.data_ = static_cast<std::byte*>(mapping);
  result.size_ = bytes;
  if (slack > 0) {
    result.data_ += -reinterpret_cast<uintptr_t>(mapping) % kHugePageBytes;
    adviseHugePages(result.data_, bytes);
  }
  return result;
}

}  // namespace sluice
