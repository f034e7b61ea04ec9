#include "runtime/exec/work_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace sluice {
namespace {

void addSlots(std::vector<MemoryNeeds::Slot>& slots, const std::vector<MemoryNeeds::Slot>& others) {
  slots.resize(std::max(slots.size(), others.size()));
  for (size_t i = 0; i < others.size(); ++i)
    if (others[i].bytes > slots[i].bytes) slots[i] = others[i];
}

Error inRegion(const std::string& region, const Error& error) {
  return Error{fmt::format("region '{}': {}", region, error.message)};
}

}  // namespace

void MemoryNeeds::add(const MemoryNeeds& other) {
  addSlots(local, other.local);
  addSlots(symmetric, other.symmetric);
  scratchBytes = std::max(scratchBytes, other.scratchBytes);
}

RegionSlots RegionSlots::of(const Plan& plan, size_t scratchBytes) {
  const auto& regions = plan.program().regions;
  const auto regionBytes = [&](size_t region) {
    return static_cast<size_t>(plan.maxExtent(regions[region].extent) * regions[region].stride);
  };
  RegionSlots slots;
  slots.slotOf.resize(regions.size(), kSaved);
  slots.needs.scratchBytes = scratchBytes;
  std::vector<size_t> largestFirst(regions.size());
  std::iota(largestFirst.begin(), largestFirst.end(), size_t{0});
  std::stable_sort(largestFirst.begin(), largestFirst.end(),
                   [&](size_t a, size_t b) { return regionBytes(a) > regionBytes(b); });
  for (const size_t region : largestFirst) {
    if (regions[region].saved) continue;
    auto& needs = regions[region].symmetric ? slots.needs.symmetric : slots.needs.local;
    slots.slotOf[region] = static_cast<int32_t>(needs.size());
    needs.push_back({regionBytes(region), regions[region].name});
  }
  return slots;
}

bool WorkMemory::holds(const MemoryNeeds& needs) const {
  if (needs.local.size() > local.size() || needs.symmetric.size() > symmetric.size()) return false;
  if (needs.scratchBytes > scratch.bytes) return false;
  for (size_t i = 0; i < needs.local.size(); ++i)
    if (needs.local[i].bytes > local[i].bytes) return false;
  for (size_t i = 0; i < needs.symmetric.size(); ++i)
    if (needs.symmetric[i].bytes > symmetric[i].bytes) return false;
  return true;
}

Expected<std::shared_ptr<const WorkMemory>> WorkMemory::grow(const MemoryNeeds& needs, Device& device) const {
  auto grown = std::make_shared<WorkMemory>(*this);
  grown->local.resize(std::max(local.size(), needs.local.size()));
  grown->symmetric.resize(std::max(symmetric.size(), needs.symmetric.size()));
  for (size_t i = 0; i < needs.symmetric.size(); ++i) {
    const auto& [bytes, region] = needs.symmetric[i];
    if (i < symmetric.size() && bytes <= symmetric[i].bytes) continue;
    auto memory = device.allocate(bytes);
    if (!memory) return inRegion(region, memory.error());
    grown->symmetric[i] = *memory;
  }
  for (size_t i = 0; i < needs.local.size(); ++i) {
    const auto& [bytes, region] = needs.local[i];
    if (i < local.size() && bytes <= local[i].bytes) continue;
    auto memory = device.reserve(bytes);
    if (!memory) return inRegion(region, memory.error());
    grown->local[i] = std::move(*memory);
  }
  if (needs.scratchBytes > scratch.bytes) {
    auto memory = device.reserve(needs.scratchBytes);
    if (!memory) return Error{fmt::format("scratch memory of workers: {}", memory.error().message)};
    grown->scratch = std::move(*memory);
  }
  return std::shared_ptr<const WorkMemory>(std::move(grown));
}

void TouchedMemory::touch(bool symmetric, int32_t slot, const WorkMemory& memory, int64_t bytes) {
  auto& slots = symmetric ? symmetric_ : local_;
  if (slots.size() <= static_cast<size_t>(slot)) slots.resize(static_cast<size_t>(slot) + 1);
  Slot& of = slots[static_cast<size_t>(slot)];
  const size_t size = symmetric ? memory.symmetric[slot].bytes : memory.local[slot].bytes;
  if (of.size != size) {
    if (symmetric) replaced_ += of.touched;
    of = {size, 0};
  }
  of.touched = std::max(of.touched, bytes);
}

int64_t TouchedMemory::bytes() const {
  int64_t bytes = replaced_;
  for (const auto* slots : {&local_, &symmetric_})
    for (const Slot& slot : *slots) bytes += slot.touched;
  return bytes;
}

}  // namespace sluice
