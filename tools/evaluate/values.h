// Values: a tensor in double precision, and ValueMap, the tensors of one rank by name.
//
// Value type. Integers (expert ids) are held exactly.
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
  std::vector<double> data;  // row-major

  // Elements of one step of the first dimension.
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

// Rounds every number as a tensor of the type stores it; integers stay as they are.
void roundTo(DType type, std::vector<double>& data);

// Changes every number by a random part, of either sign, of the most that rounding to the type may change;
// integers stay as they are.
void addNoise(DType type, std::vector<double>& data, std::mt19937_64& random);

// |found - expected| / |expected| over all tensors, L2: 0 where both are 0, NaN where either has one. The
// lists have the same shapes.
double relativeError(const std::vector<const Values*>& found, const std::vector<const Values*>& expected);

struct OutputError {
  std::string_view name;
  double relative = 0;  // as relativeError() has it
};

}  // namespace sluice::tools
