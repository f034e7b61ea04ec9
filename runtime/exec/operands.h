// Operands of a task in the form that kernels take: addresses of elements.
#pragma once

#include "runtime/base/dtype.h"
#include "runtime/exec/step.h"

namespace sluice {

template <class T>
T* elements(const BufferAddress& address, int64_t row) {
  return reinterpret_cast<T*>(address.data + row * address.stride);
}

template <class T>
int64_t leading(const BufferAddress& address) {
  return address.stride / static_cast<int64_t>(sizeof(T));
}

// Whether what all ranks of a group have whole counts in this rank's `result`: if that is one of the terms of
// a sum, at shard 0 only.
inline bool countsOnce(const Step& step, BufferId result) {
  return step.program().at(result).sharding != Sharding::kPartial ||
         step.program().mesh.shardOf(step.rank) == 0;
}

// The columns from `column` on of the bias for `expert`, which has `width` of them; null where the operand is
// absent, or where `result` is one of the terms of a sum and another rank adds the bias to its own.
template <class T = BFloat16>
const T* findBias(const Step& step, BufferId bias, BufferId result, int32_t expert, int64_t width,
                  int32_t column) {
  if (!bias || !countsOnce(step, result)) return nullptr;
  return elements<T>(step.at(bias), 0) + expert * width + column;
}

// Row `row` of an optional vector; null where the operand is absent.
inline float* optionalFloats(const Step& step, BufferId buffer, int64_t row) {
  return buffer ? elements<float>(step.at(buffer), row) : nullptr;
}

}  // namespace sluice
