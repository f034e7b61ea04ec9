// Operands of a task in the form that CPU kernels take: adds to runtime/exec/step.h the types that only
// these kernels have.
#pragma once

#include "runtime/abi/kernels.h"
#include "runtime/base/rounding.h"
#include "runtime/exec/step.h"
#include "runtime/program/op_table.h"

namespace sluice {

// Rows from `row` on of a buffer of two dimensions.
template <class Matrix>
Matrix matrixAt(const Step& step, BufferId buffer, int64_t row) {
  const BufferAddress& address = step.at(buffer);
  const DType type = step.program().at(buffer).type;
  return {elements<std::byte>(address, row), address.stride / dtypeBytes(type), type};
}

// Likewise from a column on; without data where the operand is absent.
inline ops::Result optionalResultAt(const Step& step, BufferId buffer, int64_t row, int32_t column) {
  if (!buffer) return {nullptr, 0, DType::kBF16};
  return matrixAt<ops::Result>(step, buffer, row).from(0, column);
}

// An operand of rows: those from one on, or tokens and the index by which they are gathered.
struct FactorRows {
  ops::Operand matrix;
  ops::RowIndex index;

  FactorRows from(int64_t row) const {
    if (index) return {matrix, {index.index + row}};
    return {matrix.from(row, 0), {}};
  }
};
inline FactorRows factorRowsAt(const Step& step, const Task& task, OperandName factor, int64_t row) {
  const BufferId buffer = step.operands(task).*factor;
  if (!isGathered(step.program(), step.program().at(task.family), factor))
    return {matrixAt<ops::Operand>(step, buffer, row), {}};
  return {matrixAt<ops::Operand>(step, buffer, 0), {step.tables->tokenOf.data() + row}};
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

// The amax of expert `expert` by which a factor is rounded; 0 if it is not.
inline float amaxAt(const Step& step, BufferId buffer, int32_t expert) {
  const float* const amax = optionalFloats(step, buffer, expert);
  return amax == nullptr ? 0 : *amax;
}

}  // namespace sluice
