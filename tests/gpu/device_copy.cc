#include "tests/gpu/device_copy.h"

#include <algorithm>
#include <cstring>

namespace sluice::gpu {
namespace {

constexpr size_t kAlignment = 256;

}  // namespace

Expected<DeviceCopy> DeviceCopy::make(GpuBackend& backend, std::vector<HostRange> ranges) {
  DeviceCopy copy(backend);
  std::ranges::sort(ranges, {}, [](HostRange range) { return range.data(); });
  for (const HostRange range : ranges) {
    if (range.empty()) continue;
    const bool isReached = backend.reaches(range.data());
    const size_t begin = (copy.bytes_ + kAlignment - 1) / kAlignment * kAlignment;
    const size_t offset = begin + reinterpret_cast<uintptr_t>(range.data()) % kAlignment;
    copy.places_.push_back({range, offset, isReached});
    if (!isReached) copy.bytes_ = offset + range.size();
  }
  if (copy.bytes_ == 0) return copy;
  auto memory = backend.reserve(copy.bytes_);
  if (!memory) return memory.error();
  copy.memory_ = *memory;
  std::vector<std::byte> all(copy.bytes_);
  for (const Place& place : copy.places_)
    if (!place.isReached) std::memcpy(all.data() + place.offset, place.host.data(), place.host.size());
  if (Status copied = backend.copyIn(copy.memory_.data, all.data(), all.size()); !copied)
    return copied.error();
  return copy;
}

const void* DeviceCopy::addressOf(const void* pointer) const {
  const auto* const byte = static_cast<const std::byte*>(pointer);
  const auto after = std::ranges::upper_bound(
      places_, byte, {}, [](const Place& place) { return static_cast<const std::byte*>(place.host.data()); });
  if (after == places_.begin()) return pointer;
  const Place& place = *std::prev(after);
  const auto inRange = static_cast<size_t>(byte - place.host.data());
  return inRange < place.host.size() ? deviceAddress(place) + inRange : pointer;
}

void DeviceCopy::translate(StepTables& tables) const {
  for (Product& each : tables.products) {
    translate(each.rowIndex);
    translate(each.bias);
    translate(each.rowWeight);
    translate(each.rowWeightGrad);
  }
  for (WeightGrad& each : tables.weightGrads) {
    translate(each.aIndex);
    translate(each.dyIndex);
  }
  for (RowCopy& each : tables.rowCopies) {
    translate(each.from);
    translate(each.index);
    translate(each.to);
  }
  for (RowWork& each : tables.rowWorks) {
    for (const std::byte*& in : each.in) translate(in);
    for (std::byte*& out : each.out) translate(out);
    translate(each.position);
  }
  for (uint64_t*& each : tables.counters) translate(each);
}

std::vector<MemoryRange> DeviceCopy::memory() const {
  std::vector<MemoryRange> ranges;
  for (const Place& place : places_) ranges.push_back({deviceAddress(place), place.host.size()});
  return ranges;
}

Status DeviceCopy::copyBack() const {
  if (bytes_ == 0) return {};
  std::vector<std::byte> all(bytes_);
  if (Status copied = backend_.copyOut(all.data(), memory_.data, all.size()); !copied) return copied;
  for (const Place& place : places_) {
    const std::byte* const found = all.data() + place.offset;
    if (!place.isReached && std::memcmp(place.host.data(), found, place.host.size()) != 0)
      std::memcpy(place.host.data(), found, place.host.size());
  }
  return {};
}

}  // namespace sluice::gpu
