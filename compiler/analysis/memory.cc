#include "compiler/analysis/memory.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr int64_t kLine = 64;
constexpr size_t kMaxTries = 4000;       // orders tried for an extent, and
constexpr size_t kMaxWork = 20'000'000;  // pairs of buffers looked at for them

int64_t strideFor(const Buffer& buffer) {
  const int64_t bytes = bytesPerUnit(buffer);
  if (bytes < kLine && extentOf(buffer) != Extent::kFixed) return bytes;
  return (bytes + kLine - 1) / kLine * kLine;
}

// A region and what lies in it; the first is the one it was made for.
using Tenants = std::vector<std::vector<BufferId>>;

class Planner {
 public:
  explicit Planner(const Draft& draft) : program_(draft.program), lifetimes_(draft) {}

  MemoryPlan run() {
    std::vector<BufferId> order;
    const Formula least = peakOfProgram(program_, lifetimes_);
    for (Extent extent : {Extent::kFixed, Extent::kTokens, Extent::kRows, Extent::kPairs})
      for (BufferId b : orderOf(extent, least.at(extent))) order.push_back(b);
    // Regions come widest first, whatever their extent.
    Tenants regions = place(order);
    std::stable_sort(regions.begin(), regions.end(), [&](const auto& a, const auto& b) {
      const int64_t left = unit(a.front()), right = unit(b.front());
      return left != right ? left > right : a.front() < b.front();
    });
    MemoryPlan plan;
    plan.of.resize(program_.buffers.size());
    for (const std::vector<BufferId>& tenants : regions) addRegion(tenants, plan);
    return plan;
  }

 private:
  // The buffers of an extent in the order in which they are placed.
  std::vector<BufferId> orderOf(Extent extent, int64_t least) const {
    std::vector<BufferId> order;
    for (uint32_t b = 0; b < program_.buffers.size(); ++b)
      if (isOwnedByRuntime(program_.buffers[b]) && extentOf(program_.buffers[b]) == extent)
        order.push_back(BufferId{b});
    std::stable_sort(order.begin(), order.end(), [&](BufferId a, BufferId b) { return unit(a) > unit(b); });
    int64_t bytes = costOf(order);
    const size_t count = order.size();
    size_t tries = std::min(kMaxTries, kMaxWork / std::max<size_t>(count * count, 1));
    for (bool better = true; better && bytes > least;) {
      better = false;
      for (size_t from = 0; from < count && !better; ++from)
        for (size_t to = 0; to < count && !better && tries > 0; ++to) {
          if (from == to) continue;
          --tries;
          std::vector<BufferId> moved = order;
          const BufferId buffer = moved[from];
          moved.erase(moved.begin() + static_cast<ptrdiff_t>(from));
          moved.insert(moved.begin() + static_cast<ptrdiff_t>(to), buffer);
          const int64_t cost = costOf(moved);
          better = cost < bytes;
          if (better) bytes = cost, order = std::move(moved);
        }
    }
    return order;
  }

  Tenants place(const std::vector<BufferId>& order) const {
    Tenants regions;
    for (BufferId b : order) {
      const auto home =
          std::find_if(regions.begin(), regions.end(), [&](const auto& tenants) { return fits(b, tenants); });
      if (home == regions.end()) {
        regions.push_back({b});
      } else {
        home->push_back(b);
      }
    }
    return regions;
  }

  bool fits(BufferId b, const std::vector<BufferId>& tenants) const {
    const BufferId first = tenants.front();
    if (extentOf(program_.at(b)) != extentOf(program_.at(first))) return false;
    const int64_t stride = strideFor(program_.at(b)), other = strideFor(program_.at(first));
    if ((stride < kLine) != (other < kLine)) return false;
    // Scalars lie without gaps: their region's stride is theirs.
    const auto isScalar = [&](BufferId id) { return program_.at(id).type == DType::kF32; };
    const bool anyScalar = isScalar(b) || std::any_of(tenants.begin(), tenants.end(), isScalar);
    if (anyScalar && stride != other) return false;
    return std::all_of(tenants.begin(), tenants.end(),
                       [&](BufferId other) { return lifetimes_.mayShare(b, other); });
  }

  int64_t costOf(const std::vector<BufferId>& order) const {
    int64_t bytes = 0;
    for (const std::vector<BufferId>& tenants : place(order)) bytes += strideOf(tenants);
    return bytes;
  }

  int64_t strideOf(const std::vector<BufferId>& tenants) const {
    int64_t stride = 0, element = 1;
    for (BufferId b : tenants) {
      stride = std::max(stride, strideFor(program_.at(b)));
      element = std::max<int64_t>(element, dtypeBytes(program_.at(b).type));
    }
    return (stride + element - 1) / element * element;
  }

  int64_t unit(BufferId b) const { return bytesPerUnit(program_.at(b)); }

  void addRegion(const std::vector<BufferId>& tenants, MemoryPlan& plan) const {
    const Buffer& first = program_.at(tenants.front());
    Region region;
    region.name = first.name;
    region.extent = extentOf(first);
    region.stride = strideOf(tenants);
    region.saved = first.role == Role::kSaved;
    for (BufferId b : tenants) {
      region.symmetric = region.symmetric || lifetimes_.isRemote(b);
      plan.of[b.value] = RegionId{static_cast<uint32_t>(plan.regions.size())};
    }
    plan.regions.push_back(std::move(region));
  }

  const TaskProgram& program_;
  Lifetimes lifetimes_;
};

}  // namespace

MemoryPlan planMemory(const Draft& draft) { return Planner(draft).run(); }

}  // namespace sluice
