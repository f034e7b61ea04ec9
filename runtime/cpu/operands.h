// Operands of a task in the form that kernels take: pointers to elements.
#pragma once

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

// Row `row` of an optional vector; null where the operand is absent.
inline float* optionalFloats(const Step& step, BufferId buffer, int64_t row) {
  return buffer ? elements<float>(step.at(buffer), row) : nullptr;
}

}  // namespace sluice
