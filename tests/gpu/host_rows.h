// Rows in the memory of cases for row work and copies, at any address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "tests/gpu/device_copy.h"

namespace sluice::gpu {

// Elements of 1 (any bytes), 2 (bf16) or 4 bytes (fp32), with gaps before, between and after the rows. A
// resource: tasks point into it.
class HostRows {
 public:
  struct Layout {
    int elementBytes, rows, columns;
    int offset = 0;       // elements before the first row, whose address is else a multiple of 16
    int spare = 0;        // elements between rows
    std::byte gap{0xFF};  // of what is no row: NaN
  };
  explicit HostRows(const Layout& layout);

  int rows() const { return layout_.rows; }
  int columns() const { return layout_.columns; }
  int elementBytes() const { return layout_.elementBytes; }
  int64_t pitch() const { return int64_t{layout_.columns + layout_.spare} * layout_.elementBytes; }  // bytes
  int rowBytes() const { return layout_.columns * layout_.elementBytes; }
  std::byte* row(int row);
  std::span<const std::byte> row(int row) const;
  double value(int row, int column) const;
  void set(int row, int column, double value);
  // With whole sixteenths in [-1, 1], or with any bytes.
  void fill(std::mt19937& random);
  void clear();
  HostRange memory() const { return rangeOf(bytes_); }
  bool hasKeptGaps() const;
  const std::vector<std::byte>& bytes() const { return bytes_; }

  // Returns the elements as numbers of type T, as ops take them.
  template <class T>
  T* elements() {
    return reinterpret_cast<T*>(row(0));
  }
  int64_t leading() const { return layout_.columns + layout_.spare; }

 private:
  size_t offsetOf(int row) const;

  Layout layout_;
  std::vector<std::byte> bytes_;
};

}  // namespace sluice::gpu
