#include "runtime/exec/saved_state.h"

#include <fmt/format.h>

#include "runtime/base/huge_pages.h"

namespace sluice {
namespace {

constexpr size_t kPage = 4096;

// A region that is large enough for huge pages begins at one.
size_t alignedFor(size_t bytes, size_t offset) {
  const size_t alignment = wantsHugePages(bytes) ? kHugePageBytes : kPage;
  return (offset + alignment - 1) / alignment * alignment;
}

}  // namespace

Expected<std::unique_ptr<SavedState>> SavedState::create(const Plan& plan, Device& device, uint32_t number) {
  auto state = std::make_unique<SavedState>();
  const TaskProgram& program = plan.program();
  state->number = number;
  state->local.resize(program.regions.size());
  state->offsets.resize(program.regions.size());
  state->touched.resize(program.regions.size());
  state->largest.resize(program.entries.size());
  state->tables.resize(program.entries.size());
  state->done.resize(program.entries.size());
  state->staleBy.resize(program.entries.size());
  state->digests.resize(program.entries.size());
  size_t end = 0;
  std::string names;
  for (size_t r = 0; r < program.regions.size(); ++r) {
    const Region& region = program.regions[r];
    if (!region.saved) continue;
    const auto bytes = static_cast<size_t>(plan.maxExtent(region.extent) * region.stride);
    if (region.symmetric) {
      state->offsets[r] = alignedFor(bytes, end);
      end = state->offsets[r] + bytes;
      names += fmt::format("{}region '{}'", names.empty() ? "" : ", ", region.name);
      continue;
    }
    auto memory = device.reserve(bytes);
    if (!memory) return Error{fmt::format("region '{}': {}", region.name, memory.error().message)};
    state->local[r] = std::move(*memory);
  }
  if (names.empty()) return state;
  auto memory = device.allocate(end);
  if (!memory) return Error{fmt::format("{}: {}", names, memory.error().message)};
  state->symmetric = *memory;
  return state;
}

void SavedState::forget(const Plan& plan, EntryId entry) {
  done[entry.value] = false;
  staleBy[entry.value] = {};
  for (const EntryId later : plan.at(entry).savedFor) {
    if (done[later.value]) staleBy[later.value] = entry;
    done[later.value] = false;
  }
}

Expected<SavedState*> SavedStates::get(const Plan& plan, Device& device, uint32_t number) {
  const std::lock_guard lock(mutex_);
  if (const auto found = states_.find(number); found != states_.end()) return found->second.get();
  auto state = SavedState::create(plan, device, number);
  if (!state) return state.error();
  return (states_[number] = std::move(*state)).get();
}

int64_t SavedStates::bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  for (const auto& [number, state] : states_) bytes += state->bytes.load(std::memory_order_relaxed);
  return bytes;
}

}  // namespace sluice
