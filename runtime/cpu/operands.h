// Operands of a task in the form that kernels take: pointers to elements.
#pragma once

#include "ops/abi/kernels.h"
#include "runtime/base/rounding.h"
#include "runtime/exec/step.h"
#include "runtime/program/op_table.h"

namespace sluice {

template <class T>
T* elements(const BufferAddress& address, int64_t row) {
  return reinterpret_cast<T*>(address.data + row * address.stride);
}

// Whether what all ranks of a group have whole counts in this rank's `result`: if that is one of the terms of
// a sum, at shard 0 only.
inline bool countsOnce(const Step& step, BufferId result) {
  return step.program().at(result).sharding != Sharding::kPartial ||
         step.program().mesh.shardOf(step.rank) == 0;
}

template <class T>
int64_t leading(const BufferAddress& address) {
  return address.stride / static_cast<int64_t>(sizeof(T));
}

// Rows from `row` on of a buffer of two dimensions.
template <class Matrix>
Matrix matrixAt(const Step& step, BufferId buffer, int64_t row) {
  const BufferAddress& address = step.at(buffer);
  const DType type = step.program().at(buffer).type;
  return {elements<std::byte>(address, row), address.stride / dtypeBytes(type), type};
}

// The columns from `column` on of the bias for `expert`, which has `width` of them; null where the operand is
// absent, or where `result` is one of the terms of a sum and another rank adds the bias to its own.
template <class T = BFloat16>
const T* biasOf(const Step& step, BufferId bias, BufferId result, int32_t expert, int64_t width,
                int32_t column) {
  if (!bias || !countsOnce(step, result)) return nullptr;
  return elements<T>(step.at(bias), 0) + expert * width + column;
}

// Row `row` of an optional vector; null where the operand is absent.
inline float* optionalFloats(const Step& step, BufferId buffer, int64_t row) {
  return buffer ? elements<float>(step.at(buffer), row) : nullptr;
}

// The scales of codes of `width` columns of the expert's rows, for columns from `first` on.
template <class T>
ops::CodeScalesOf<T> codeScalesAt(const Step& step, BufferId scales, BufferId ends, const RowRange& rows,
                                  int32_t width, int32_t first) {
  return {elements<BFloat16>(step.at(scales), rows.begin), leading<BFloat16>(step.at(scales)),
          elements<BFloat16>(step.at(ends), 0) + int64_t{rows.expert} * width, width, first};
}

// The powers of codes in blocks along rows, from this row and column of the codes on; none where the operand
// is absent.
template <class T>
ops::RowPowersOf<T> rowPowersAt(const Step& step, BufferId powers, int64_t row, int32_t column) {
  if (!powers) return {};
  return {elements<BFloat16>(step.at(powers), row) + column / kMxBlock, leading<BFloat16>(step.at(powers))};
}

// The amax by which a factor of expert `expert` is rounded; 0 if it is not.
inline float amaxAt(const Step& step, const Family& family, size_t factor, int32_t expert) {
  const float* const amax = optionalFloats(step, operandAt(family.reads, *amaxOf(family.op, factor)), expert);
  return amax == nullptr ? 0 : *amax;
}

}  // namespace sluice
