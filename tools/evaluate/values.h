// Values: a tensor in double precision, and ValueMap, the tensors of one rank by name.
//
// Value type. Integers (expert ids) are represented exactly. Large tensors may stay in the caller's memory,
// in their own type, until their numbers are needed.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tools/io/tensor.h"

namespace sluice::tools {

struct Values {
  std::vector<int64_t> shape;
  std::vector<double> data;        // row-major; empty if `stored` has the numbers
  const Tensor* stored = nullptr;  // not owned

  double at(int64_t i) const {
    return stored ? elementAt(stored->type(), stored->data(), i) : data[static_cast<size_t>(i)];
  }
  // Elements begin .. begin + count - 1.
  std::vector<double> slice(int64_t begin, int64_t count) const;
  // Copies the numbers of `stored` to `data`.
  void load();
  // Number of elements per index of the first dimension.
  int64_t rowLength() const {
    int64_t length = 1;
    for (size_t i = 1; i < shape.size(); ++i) length *= shape[i];
    return length;
  }
  friend bool operator==(const Values&, const Values&) = default;
};

using ValueMap = std::map<std::string, Values>;

Values toValues(const Tensor& tensor);
ValueMap toValues(const TensorMap& tensors);
// The same without copies: the tensors must outlive the map, and what is copied from it.
ValueMap viewTensors(const TensorMap& tensors);

// Rounds every number to the type; integers stay the same.
void roundTo(DType type, std::vector<double>& data);

// Adds to every number a random part, of either sign, of the largest rounding error of the type; integers
// stay the same.
void addNoise(DType type, std::vector<double>& data, std::mt19937_64& random);

// |found - expected| / |expected| over all tensors that were added, L2: 0 if both are 0, NaN if either has a
// NaN.
class ErrorSum {
 public:
  // Both must have the same shape.
  void add(const Values& found, const Values& expected);
  double relative() const;

 private:
  double difference_ = 0, reference_ = 0;
};

// The same of lists.
double relativeError(const std::vector<const Values*>& found, const std::vector<const Values*>& expected);

struct OutputError {
  std::string_view name;
  double relative = 0;  // see relativeError()
};

}  // namespace sluice::tools
