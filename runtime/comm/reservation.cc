#include "runtime/comm/reservation.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace sluice {

Reservation::~Reservation() {
  if (data_) munmap(data_, size_);
}

Reservation::Reservation(Reservation&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Expected<Reservation> Reservation::reserve(size_t bytes) {
  Reservation result;
  if (bytes == 0) return result;
  // NORESERVE: the worst case of a routing is far above what any step touches
  void* data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED)
    return Error{fmt::format("cannot reserve {} bytes of address space: {}", bytes, std::strerror(errno))};
  result.data_ = static_cast<std::byte*>(data);
  result.size_ = bytes;
  return result;
}

}  // namespace sluice
