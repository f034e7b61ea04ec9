#include "compiler/analysis/memory.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "compiler/analysis/coverage.h"

namespace sluice {
namespace {

constexpr int64_t kLine = 64;

Extent extentOf(const Buffer& buffer) {
  return buffer.shape.empty() ? Extent::kFixed : buffer.shape.front().extent;
}

bool ownedByRuntime(const Buffer& buffer) {
  if (buffer.role == Role::kTemp || buffer.role == Role::kSaved) return true;
  return buffer.role == Role::kOutput && extentOf(buffer) == Extent::kRows;
}

// Who touches a buffer.
struct Uses {
  std::vector<size_t> writers;
  std::vector<size_t> readers;
  std::set<uint32_t> entries;
  bool remote = false;
};

std::vector<Uses> usesOf(const TaskProgram& program) {
  std::vector<Uses> uses(program.buffers.size());
  for (size_t f = 0; f < program.families.size(); ++f) {
    const Family& family = program.families[f];
    const SpaceKind kind = program.at(family.space).kind;
    for (BufferId b : family.reads)
      if (b) uses[b.value].readers.push_back(f), uses[b.value].entries.insert(family.entry.value);
    for (BufferId b : family.writes) {
      if (!b) continue;
      uses[b.value].writers.push_back(f);
      uses[b.value].entries.insert(family.entry.value);
      uses[b.value].remote |= kind == SpaceKind::kSends || kind == SpaceKind::kReturns;
    }
  }
  return uses;
}

class Planner {
 public:
  explicit Planner(const Draft& draft)
      : program_(draft.program), coverage_(computeCoverage(draft)), uses_(usesOf(draft.program)) {
    plan_.of.resize(program_.buffers.size());
  }

  MemoryPlan run() {
    std::vector<size_t> order(program_.buffers.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return bytesPerUnit(program_.buffers[a]) > bytesPerUnit(program_.buffers[b]);
    });
    for (size_t b : order)
      if (ownedByRuntime(program_.buffers[b])) place(b);
    return std::move(plan_);
  }

 private:
  void place(size_t b) {
    size_t r = 0;
    while (r < plan_.regions.size() && !fits(b, r)) ++r;
    if (r == plan_.regions.size()) addRegion(b);
    plan_.regions[r].symmetric |= uses_[b].remote;
    plan_.of[b] = RegionId{static_cast<uint32_t>(r)};
    tenants_[r].push_back(b);
  }

  void addRegion(size_t b) {
    const Buffer& buffer = program_.buffers[b];
    Region region;
    region.name = buffer.name;
    region.extent = extentOf(buffer);
    region.stride = bytesPerUnit(buffer);
    if (region.stride >= kLine || region.extent == Extent::kFixed)
      region.stride = (region.stride + kLine - 1) / kLine * kLine;
    region.saved = buffer.role == Role::kSaved;
    plan_.regions.push_back(std::move(region));
    tenants_.emplace_back();
  }

  bool fits(size_t b, size_t r) const {
    const Buffer& buffer = program_.buffers[b];
    const Region& region = plan_.regions[r];
    if (buffer.role != Role::kTemp || extentOf(buffer) != region.extent) return false;
    if ((bytesPerUnit(buffer) < kLine) != (region.stride < kLine) || bytesPerUnit(buffer) > region.stride)
      return false;
    return std::all_of(tenants_[r].begin(), tenants_[r].end(),
                       [&](size_t other) { return mayShare(b, other); });
  }

  bool mayShare(size_t a, size_t b) const {
    if (program_.buffers[b].role != Role::kTemp) return false;
    const bool sameEntry = std::any_of(uses_[a].entries.begin(), uses_[a].entries.end(),
                                       [&](uint32_t entry) { return uses_[b].entries.contains(entry); });
    return !sameEntry || comesAfter(a, b) || comesAfter(b, a);
  }

  // Every writer of `later` covers every reader and writer of `earlier`.
  bool comesAfter(size_t later, size_t earlier) const {
    if (extentOf(program_.buffers[later]) != Extent::kRows) return false;
    const auto covered = [&](size_t writer) {
      const auto done = [&](size_t f) { return coverage_[writer][f] >= Scope::kSlot; };
      return std::all_of(uses_[earlier].readers.begin(), uses_[earlier].readers.end(), done) &&
             std::all_of(uses_[earlier].writers.begin(), uses_[earlier].writers.end(), done);
    };
    return std::all_of(uses_[later].writers.begin(), uses_[later].writers.end(), covered);
  }

  const TaskProgram& program_;
  CoverageTable coverage_;
  std::vector<Uses> uses_;
  MemoryPlan plan_;
  std::vector<std::vector<size_t>> tenants_;
};

}  // namespace

int64_t bytesPerUnit(const Buffer& buffer) {
  int64_t bytes = dtypeBytes(buffer.type);
  for (const Dim& dim : buffer.shape)
    if (dim.extent == Extent::kFixed) bytes *= dim.size;
  return bytes;
}

MemoryPlan planMemory(const Draft& draft) { return Planner(draft).run(); }

}  // namespace sluice
