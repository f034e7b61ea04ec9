// Operands of a task in the form that kernels take: pointers to elements.
#pragma once

#include "ops/abi/matrix.h"
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

// Rows from `row` on of a buffer of two dimensions.
template <class Matrix>
Matrix matrixAt(const Step& step, BufferId buffer, int64_t row) {
  const BufferAddress& address = step.at(buffer);
  const DType type = step.program().at(buffer).type;
  return {elements<std::byte>(address, row), address.stride / dtypeBytes(type), type};
}

// Row `row` of an optional vector; null where the operand is absent.
inline float* optionalFloats(const Step& step, BufferId buffer, int64_t row) {
  return buffer ? elements<float>(step.at(buffer), row) : nullptr;
}

}  // namespace sluice
