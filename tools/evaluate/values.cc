#include "tools/evaluate/values.h"

#include <cassert>
#include <cmath>

namespace sluice::tools {

std::vector<double> Values::slice(int64_t begin, int64_t count) const {
  std::vector<double> numbers(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) numbers[static_cast<size_t>(i)] = at(begin + i);
  return numbers;
}

void Values::load() {
  if (stored == nullptr) return;
  data = slice(0, stored->elements());
  stored = nullptr;
}

Values toValues(const Tensor& tensor) {
  Values values{tensor.shape(), {}, &tensor};
  values.load();
  return values;
}

ValueMap viewTensors(const TensorMap& tensors) {
  ValueMap map;
  for (const auto& [name, tensor] : tensors) map.emplace(name, Values{tensor.shape(), {}, &tensor});
  return map;
}

ValueMap toValues(const TensorMap& tensors) {
  ValueMap map;
  for (const auto& [name, tensor] : tensors) map.emplace(name, toValues(tensor));
  return map;
}

void roundTo(DType type, std::vector<double>& data) {
  if (type != DType::kBF16 && type != DType::kF32) return;
  for (double& value : data) {
    float stored = 0;
    setElement(type, &stored, 0, static_cast<float>(value));
    value = elementAt(type, &stored, 0);
  }
}

void addNoise(DType type, std::vector<double>& data, std::mt19937_64& random) {
  if (type != DType::kBF16 && type != DType::kF32) return;
  const double unit = type == DType::kBF16 ? 0x1p-8 : 0x1p-24;  // half of the last place of 1
  std::uniform_real_distribution<double> part(-unit, unit);
  for (double& value : data) value *= 1 + part(random);
}

void ErrorSum::add(const Values& found, const Values& expected) {
  assert(found.shape == expected.shape);
  for (int64_t i = 0; i < std::ssize(expected.data); ++i) {
    const double wanted = expected.data[static_cast<size_t>(i)], off = found.at(i) - wanted;
    difference_ += off * off;
    reference_ += wanted * wanted;
  }
}

double relativeError(const std::vector<const Values*>& found, const std::vector<const Values*>& expected) {
  ErrorSum sum;
  for (size_t i = 0; i < found.size(); ++i) sum.add(*found[i], *expected[i]);
  return sum.relative();
}

double ErrorSum::relative() const {
  if (difference_ == 0 && reference_ == 0) return 0;
  return std::sqrt(difference_ / reference_);
}

}  // namespace sluice::tools
