#include "tools/evaluate/values.h"

#include <cassert>
#include <cmath>

namespace sluice::tools {

Values toValues(const Tensor& tensor) {
  Values values{tensor.shape(), {}};
  values.data.reserve(static_cast<size_t>(tensor.elements()));
  for (int64_t i = 0; i < tensor.elements(); ++i)
    values.data.push_back(elementAt(tensor.type(), tensor.data(), i));
  return values;
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

double relativeError(const std::vector<const Values*>& found, const std::vector<const Values*>& expected) {
  double difference = 0, reference = 0;
  for (size_t n = 0; n < found.size(); ++n) {
    assert(found[n]->shape == expected[n]->shape);
    for (size_t i = 0; i < found[n]->data.size(); ++i) {
      const double wanted = expected[n]->data[i], off = found[n]->data[i] - wanted;
      difference += off * off;
      reference += wanted * wanted;
    }
  }
  if (difference == 0 && reference == 0) return 0;
  return std::sqrt(difference / reference);
}

}  // namespace sluice::tools
