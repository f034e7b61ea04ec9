#include "runtime/gpu/staging.h"

#include <algorithm>
#include <utility>

#include "runtime/program/op_table.h"

namespace sluice {
namespace {

size_t bufferBytes(const Step& step, BufferId id, const BufferAddress& address) {
  const int64_t length = measureLength(step, id);
  return length == 0 ? 0
                     : static_cast<size_t>((length - 1) * address.stride + rowBytes(step.program().at(id)));
}

// Calls body(buffer, whether its content is read) for the operands of the entry's tasks; may repeat a buffer.
template <class Body>
Status forOperands(const Step& step, const Body& body) {
  for (const FamilyId family : step.plan->at(step.entry).families) {
    for (const BufferId id : step.program().at(family).reads)
      if (id)
        if (Status ok = body(id, true); !ok) return ok;
    for (const BufferId id : step.program().at(family).writes)
      if (id)
        if (Status ok = body(id, isAccumulated(step.program(), id)); !ok) return ok;
  }
  return {};
}

}  // namespace

Expected<Step> Staging::begin(const Step& step) {
  addresses_.assign(step.buffers.begin(), step.buffers.end());
  copies_.resize(addresses_.size());
  for (Copy& copy : copies_) copy.isUsed = copy.isFilled = false;
  if (Status staged = forOperands(step, [&](BufferId id, bool isRead) { return stage(step, id, isRead); });
      !staged)
    return staged.error();
  if (Status staged = stageTables(*step.tables); !staged) return staged.error();
  Step result = step;
  result.buffers = addresses_;
  return result;
}

Status Staging::grow(DeviceMemory& memory, size_t bytes) {
  if (memory.bytes >= bytes) return {};
  memory = {};  // first, so that there is room
  auto made = backend_.reserve(bytes);
  if (!made) return made.error();
  memory = std::move(*made);
  return {};
}

Status Staging::stage(const Step& step, BufferId id, bool isRead) {
  const BufferAddress& theirs = step.at(id);
  const size_t bytes = bufferBytes(step, id, theirs);
  if (bytes == 0 || backend_.reaches(theirs.data)) return {};
  Copy& copy = copies_[id.value];
  const BoundTensor& bound = bound_[id.value];
  if (!copy.isUsed) {
    const std::byte* const before = copy.memory.data;
    if (Status there = grow(copy.memory, bytes); !there) return there;
    if (copy.memory.data != before) copy.version = 0;
  }
  copy.isUsed = true;
  addresses_[id.value].data = copy.memory.data;
  const bool isThere = copy.isFilled || (bound.constant && copy.version == bound.version);
  if (!isRead || isThere) return {};
  copy.isFilled = true;
  copy.version = bound.constant ? bound.version : 0;
  return backend_.copyIn(copy.memory.data, theirs.data, bytes);
}

Status Staging::stageTables(const RoutingTables& tables) {
  pairs_ = tables.pairOf.size();
  const size_t bytes = (pairs_ + tables.positionOf.size()) * sizeof(int32_t);
  if (Status there = grow(tables_, bytes); !there) return there;
  if (Status copied = backend_.copyIn(tables_.data, tables.pairOf.data(), pairs_ * sizeof(int32_t)); !copied)
    return copied;
  return backend_.copyIn(tables_.data + pairs_ * sizeof(int32_t), tables.positionOf.data(),
                         tables.positionOf.size() * sizeof(int32_t));
}

Status Staging::end(const Step& step) {
  for (const FamilyId family : step.plan->at(step.entry).families)
    for (const BufferId id : step.program().at(family).writes) {
      if (!id || !copies_[id.value].isUsed) continue;
      copies_[id.value].isUsed = false;  // several families may write it
      const BufferAddress& theirs = step.at(id);
      if (Status copied =
              backend_.copyOut(theirs.data, copies_[id.value].memory.data, bufferBytes(step, id, theirs));
          !copied)
        return copied;
    }
  return {};
}

}  // namespace sluice
