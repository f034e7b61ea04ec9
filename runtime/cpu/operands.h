// Operands of a task in the form that kernels take: pointers to elements, and the rows a task works on.
#pragma once

#include <algorithm>

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

// Elements [begin, begin + rows) of the first dimension, and the expert whose weight they meet: 0 where there
// is none, for such a weight has no expert axis.
struct RowRange {
  int32_t begin = 0;
  int32_t rows = 0;
  int32_t expert = 0;
};

// The rows of a task in space rows, groups, tokens, experts or once.
inline RowRange rowsOf(const Step& step, const Task& task) {
  const RoutingTables& tables = *step.tables;
  const SpaceKind space = step.plan->at(task.family).space;
  if (space == SpaceKind::kRows) {
    const Slot& slot = tables.slots[task.slot];
    return {slot.row, slot.rows, slot.expert};
  }
  if (space == SpaceKind::kGroups) {
    const SlotGroup& group = tables.groups[task.slot];
    return {group.row, group.rows, group.expert};
  }
  if (space == SpaceKind::kExperts) {
    const int32_t begin = tables.expertRow[task.slot];
    return {begin, tables.expertRow[task.slot + 1] - begin, static_cast<int32_t>(task.slot)};
  }
  if (space == SpaceKind::kOnce) return {0, tables.tokens, 0};
  const int32_t slotSize = step.plan->space(space)->slotSize;
  const int32_t begin = static_cast<int32_t>(task.slot) * slotSize;
  return {begin, std::min(slotSize, tables.tokens - begin), 0};
}

}  // namespace sluice
