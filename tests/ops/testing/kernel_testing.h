// What the kernel tests share: the list of all implementations, and matrices that detect reads and writes out
// of place.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/abi/kernels.h"

namespace sluice::ops {

struct ProductShape {
  int32_t rows, n, k;
};

struct Implementation {
  std::string name;
  KernelSet kernels;
  bool multipliesBf16;  // a * scale of the weight gradient is rounded
};

// All sets that this machine runs, AVX-VNNI by instructions of AVX2, and AMX on a software tile unit.
std::vector<Implementation> implementations();

// A matrix of `rows` rows, `ld` elements apart. Inputs end with their last element, so that the address
// sanitizer finds reads after it, and contain `gap` between the rows. Outputs are followed by `kGuard`
// elements of `gap`.
template <class T>
class Matrix {
 public:
  static constexpr size_t kGuard = 80;

  // `offset` elements before the first one shift the alignment.
  Matrix(int64_t rows, int64_t cols, int64_t ld, T gap, bool output, int64_t offset = 0)
      : rows_(rows), cols_(cols), ld_(ld), offset_(offset), gap_(gap) {
    const int64_t used = rows > 0 ? (rows - 1) * ld + cols : 0;
    cells_.assign(static_cast<size_t>(offset + used) + (output ? kGuard : 0), gap);
    cells_.shrink_to_fit();
  }

  T* data() { return cells_.data() + offset_; }
  const T* data() const { return cells_.data() + offset_; }
  int64_t ld() const { return ld_; }
  T& at(int64_t row, int64_t col) { return data()[row * ld_ + col]; }
  const T& at(int64_t row, int64_t col) const { return data()[row * ld_ + col]; }

  // Whether every element that does not belong to the matrix still contains `gap`.
  bool gapsAreUntouched() const {
    for (int64_t i = 0; i < static_cast<int64_t>(cells_.size()); ++i) {
      const int64_t place = i - offset_;
      const bool inside = place >= 0 && ld_ > 0 && place / ld_ < rows_ && place % ld_ < cols_;
      if (!inside && std::memcmp(&cells_[i], &gap_, sizeof(T)) != 0) return false;
    }
    return true;
  }

  bool sameBits(const Matrix& other) const {
    for (int64_t r = 0; r < rows_; ++r)
      if (std::memcmp(&at(r, 0), &other.at(r, 0), static_cast<size_t>(cols_) * sizeof(T)) != 0) return false;
    return true;
  }

 private:
  int64_t rows_, cols_, ld_, offset_;
  T gap_;
  std::vector<T> cells_;
};

using Bf16Matrix = Matrix<BFloat16>;
using F32Matrix = Matrix<float>;

inline constexpr BFloat16 kBf16NaN = {0x7fc1};
inline constexpr BFloat16 kBf16Canary = {0xabcd};
inline constexpr float kF32Canary = -123456.75f;

using Random = std::mt19937;

inline float uniform(Random& random, float low, float high) {
  return std::uniform_real_distribution<float>(low, high)(random);
}

// An input of numbers in [-1, 1] with NaN between the rows.
inline Bf16Matrix randomInput(Random& random, int64_t rows, int64_t cols, int64_t ld, int64_t offset = 0) {
  Bf16Matrix matrix(rows, cols, ld, kBf16NaN, false, offset);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) matrix.at(r, c) = toBFloat16(uniform(random, -1, 1));
  return matrix;
}

// Rows of a matrix in any order, some of them several times.
class GatheredRows {
 public:
  GatheredRows(Random& random, int64_t count, int64_t columns)
      : columns_(columns), tokens_(randomInput(random, count / 2 + 1, columns, columns + 5)) {
    for (int64_t i = 0; i < count; ++i)
      index_.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(count / 2 + 1)));
  }

  Operand matrix() const { return {tokens_.data(), tokens_.ld()}; }
  RowIndex index() const { return {index_.data()}; }
  // The same rows one after the other.
  Bf16Matrix copied() const {
    Bf16Matrix rows(std::ssize(index_), columns_, columns_ + 5, kBf16NaN, false);
    for (int64_t r = 0; r < std::ssize(index_); ++r)
      for (int64_t j = 0; j < columns_; ++j) rows.at(r, j) = tokens_.at(index().of(r), j);
    return rows;
  }

 private:
  int64_t columns_;
  Bf16Matrix tokens_;
  std::vector<int32_t> index_;
};

inline std::vector<float> randomFloats(Random& random, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = uniform(random, -1, 1);
  return values;
}

inline Bf16Matrix magnitudes(Bf16Matrix matrix, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) matrix.at(r, c).bits &= 0x7fff;
  return matrix;
}

// Scratch of exactly `bytes` bytes, 64-byte aligned, full of `fill` (0xff: NaN in every type).
class Scratch {
 public:
  explicit Scratch(size_t bytes, int fill = 0xff)
      : memory_(static_cast<std::byte*>(::operator new(bytes, std::align_val_t{64}))) {
    std::memset(memory_.get(), fill, bytes);
  }
  void* data() { return memory_.get(); }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

// Relative error of one rounding to bf16, and of one fp32 operation.
inline constexpr double kBf16Rounding = 1.0 / 256 * 1.0001;
inline constexpr double kF32Rounding = 1.0 / (1 << 24);

// Same class (NaN, infinity with its sign, number), and numbers within `tolerance`.
inline bool agrees(double got, double want, double tolerance) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (std::isinf(want) || std::isinf(got)) return got == want;
  return std::abs(got - want) <= tolerance + 1e-37;
}

}  // namespace sluice::ops
