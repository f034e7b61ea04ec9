// Reservation: address space for the worst case; pages are committed when they are first touched.
//
// Resource type: one owner, moved but not copied. Zero-filled, page-aligned. A large reservation begins at a
// huge page and requests huge pages; it is then committed one huge page at a time.
#pragma once

#include <cstddef>

#include "runtime/base/expected.h"

namespace sluice {

class Reservation {
 public:
  Reservation() = default;
  ~Reservation();
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;

  // 0 bytes is legal and reserves nothing.
  static Expected<Reservation> reserve(size_t bytes);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  void* mapping_ = nullptr;  // the whole mapping
  size_t mapped_ = 0;
};

}  // namespace sluice
