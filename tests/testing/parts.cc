#include "tests/testing/parts.h"

#include <cassert>
#include <cstring>

#include "tools/moe/shard.h"

namespace sluice {
namespace {

using tools::Tensor;

Tensor copyOf(const Tensor& tensor) {
  Tensor copy(tensor.type(), tensor.shape());
  if (tensor.bytes() > 0) std::memcpy(copy.data(), tensor.data(), static_cast<size_t>(tensor.bytes()));
  return copy;
}

// Calls copy(begin in the whole tensor, begin in the part, count), in bytes, for every stretch of part
// `index`.
template <class Copy>
void forStretches(Sharding sharding, const Tensor& part, int tp, int index, const Copy& copy) {
  const tools::Stretches stretches = tools::findStretches(sharding, part.shape());
  const int64_t bytes = stretches.length * dtypeBytes(part.type());
  if (bytes == 0) return;
  for (int64_t block = 0; block < stretches.blocks; ++block)
    copy((block * tp + index) * bytes, block * bytes, static_cast<size_t>(bytes));
}

}  // namespace

std::vector<int64_t> wholeShape(Sharding sharding, std::vector<int64_t> partShape, int tp) {
  if (sharding != Sharding::kWhole && sharding != Sharding::kPartial)
    partShape[tools::cutDimension(sharding, partShape.size())] *= tp;
  return partShape;
}

Tensor cutPart(const Tensor& whole, Sharding sharding, int tp, int part) {
  if (sharding == Sharding::kWhole) return copyOf(whole);
  if (sharding == Sharding::kPartial) {
    Tensor term(whole.type(), whole.shape());
    for (int64_t i = part; i < whole.elements(); i += tp)
      setElement(whole.type(), term.data(), i, static_cast<float>(elementAt(whole.type(), whole.data(), i)));
    return term;
  }
  std::vector<int64_t> shape = whole.shape();
  int64_t& size = shape[tools::cutDimension(sharding, shape.size())];
  assert(size % tp == 0);
  size /= tp;
  Tensor out(whole.type(), std::move(shape));
  forStretches(sharding, out, tp, part, [&](int64_t from, int64_t to, size_t bytes) {
    std::memcpy(out.data() + to, whole.data() + from, bytes);
  });
  return out;
}

Tensor joinParts(std::span<const Tensor* const> parts, Sharding sharding) {
  const Tensor& first = *parts.front();
  if (sharding == Sharding::kWhole) return copyOf(first);
  const auto tp = static_cast<int>(parts.size());
  Tensor whole(first.type(), wholeShape(sharding, first.shape(), tp));
  if (sharding == Sharding::kPartial) {
    for (int64_t i = 0; i < whole.elements(); ++i) {
      double sum = 0;
      for (const Tensor* part : parts) sum += elementAt(first.type(), part->data(), i);
      setElement(first.type(), whole.data(), i, static_cast<float>(sum));
    }
    return whole;
  }
  for (int i = 0; i < tp; ++i) {
    const Tensor& part = *parts[static_cast<size_t>(i)];
    forStretches(sharding, part, tp, i, [&](int64_t to, int64_t from, size_t bytes) {
      std::memcpy(whole.data() + to, part.data() + from, bytes);
    });
  }
  return whole;
}

}  // namespace sluice
