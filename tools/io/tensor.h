// Tensor: a contiguous row-major tensor that owns its memory, and TensorMap, the tensors of one file by name.
//
// Resource type, one owner, movable. The data begins at a multiple of 64 bytes; a large tensor begins at a
// huge page and requests huge pages. Shape helpers never overflow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"

namespace sluice::tools {

// Bytes of a tensor; none if a dimension is negative or the product does not fit into an int64.
std::optional<int64_t> tensorBytes(DType type, std::span<const int64_t> shape);

// For example "BF16 [5, 2048]", for messages.
std::string describeTensor(DType type, std::span<const int64_t> shape);

class Tensor {
 public:
  Tensor() = default;
  // Zero-filled. tensorBytes() of the shape must exist.
  Tensor(DType type, std::vector<int64_t> shape);
  // Without data (null): what a file says of a tensor that is read later. tensorBytes() must exist, too.
  static Tensor described(DType type, std::vector<int64_t> shape);

  DType type() const { return type_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t elements() const { return bytes_ / dtypeBytes(type_); }
  int64_t bytes() const { return bytes_; }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_.get());
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  DType type_ = DType::kF32;
  std::vector<int64_t> shape_;
  int64_t bytes_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

using TensorMap = std::map<std::string, Tensor>;

}  // namespace sluice::tools
