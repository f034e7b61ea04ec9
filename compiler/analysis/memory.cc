#include "compiler/analysis/memory.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

namespace sluice {
namespace {

constexpr int64_t kLine = 64;
constexpr size_t kMaxTries = 4000;       // orders tried per extent
constexpr size_t kMaxWork = 20'000'000;  // pairs of buffers examined for them
// Buffers are placed side by side only if regions that hold one buffer at a time exceed the minimum by more
// than this fraction: in a narrow region the rows of one buffer are closer together.
constexpr int64_t kWorthwhile = 64;

int64_t roundUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

int64_t strideFor(const Buffer& buffer) {
  const int64_t bytes = bytesPerUnit(buffer);
  return bytes < kLine && findExtent(buffer) != Extent::kFixed ? bytes : roundUp(bytes, kLine);
}

struct Tenant {
  BufferId buffer;
  int64_t offset = 0;
};

// A region and its buffers; the first is the one it was made for.
struct Home {
  std::vector<Tenant> tenants;
  int64_t stride = 0;
};

// Whether buffers that live at the same time may share a region.
enum class Beside { kNo, kYes };

// The effect of putting a buffer into a region.
struct Fit {
  int64_t offset = 0;
  int64_t growth = 0;  // of the stride
};

class MemoryPlanner {
 public:
  explicit MemoryPlanner(const TaskProgram& program) : program_(program), lifetimes_(program) {}

  // Finds the homes of all buffers that the runtime owns, in the order of their regions.
  std::vector<Home> run() const {
    std::vector<Home> homes;
    const Formula least = peakOfProgram(program_, lifetimes_);
    for (Extent extent : {Extent::kFixed, Extent::kTokens, Extent::kRows, Extent::kPairs, Extent::kExperts}) {
      std::vector<Home> more = listHomes(extent, least.at(extent));
      std::move(more.begin(), more.end(), std::back_inserter(homes));
    }
    // Regions are sorted widest first, whatever their extent.
    std::stable_sort(homes.begin(), homes.end(), [&](const Home& a, const Home& b) {
      const BufferId first = a.tenants.front().buffer, second = b.tenants.front().buffer;
      return unit(first) != unit(second) ? unit(first) > unit(second) : first < second;
    });
    return homes;
  }

  // Makes the region of a home, without its tenants.
  Region makeRegion(const Home& home) const {
    const Buffer& first = program_.at(home.tenants.front().buffer);
    Region region;
    region.name = first.name;
    region.extent = findExtent(first);
    region.saved = first.role == Role::kSaved;
    int64_t element = 1;
    for (const Tenant& tenant : home.tenants) {
      element = std::max<int64_t>(element, dtypeBytes(program_.at(tenant.buffer).type));
      region.symmetric = region.symmetric || lifetimes_.isRemote(tenant.buffer);
    }
    region.stride = roundUp(home.stride, element);
    return region;
  }

 private:
  std::vector<Home> listHomes(Extent extent, int64_t least) const {
    std::vector<BufferId> order;
    for (uint32_t b = 0; b < program_.buffers.size(); ++b)
      if (isOwnedByRuntime(program_.buffers[b]) && findExtent(program_.buffers[b]) == extent)
        order.push_back(BufferId{b});
    std::stable_sort(order.begin(), order.end(), [&](BufferId a, BufferId b) { return unit(a) > unit(b); });
    std::vector<Home> single = findBestPlan(order, least, Beside::kNo);
    if (countHomeBytes(single) <= least + least / kWorthwhile) return single;
    std::vector<Home> beside = findBestPlan(order, least, Beside::kYes);
    return countHomeBytes(beside) < countHomeBytes(single) ? beside : single;
  }

  // Starts from this order, and moves one buffer at a time earlier or later as long as that helps.
  std::vector<Home> findBestPlan(std::vector<BufferId> order, int64_t least, Beside beside) const {
    std::vector<Home> best = place(order, beside);
    const size_t count = order.size();
    size_t tries = std::min(kMaxTries, kMaxWork / std::max<size_t>(count * count, 1));
    for (bool better = true; better && countHomeBytes(best) > least;) {
      better = false;
      for (size_t from = 0; from < count && !better; ++from)
        for (size_t to = 0; to < count && !better && tries > 0; ++to) {
          if (from == to) continue;
          --tries;
          std::vector<BufferId> moved = order;
          const BufferId buffer = moved[from];
          moved.erase(moved.begin() + static_cast<ptrdiff_t>(from));
          moved.insert(moved.begin() + static_cast<ptrdiff_t>(to), buffer);
          std::vector<Home> homes = place(moved, beside);
          better = countHomeBytes(homes) < countHomeBytes(best);
          if (better) best = std::move(homes), order = std::move(moved);
        }
    }
    return best;
  }

  // One buffer at a time: each takes the first region it fits. Side by side: each takes the region that grows
  // least, or a new one if every region would grow by more.
  std::vector<Home> place(const std::vector<BufferId>& order, Beside beside) const {
    std::vector<Home> homes;
    for (BufferId b : order) {
      Fit best{0, strideFor(program_.at(b))};
      Home* chosen = nullptr;
      for (Home& home : homes) {
        const std::optional<Fit> fit = fitIn(b, home, beside);
        if (fit && fit->growth < best.growth) best = *fit, chosen = &home;
        if (chosen && (beside == Beside::kNo || best.growth == 0)) break;
      }
      if (!chosen) chosen = &homes.emplace_back();
      chosen->tenants.push_back({b, best.offset});
      chosen->stride += best.growth;
    }
    return homes;
  }

  // The lowest possible place of the buffer in a region, if any.
  std::optional<Fit> fitIn(BufferId b, const Home& home, Beside beside) const {
    const int64_t stride = strideFor(program_.at(b));
    if ((stride < kLine) != (home.stride < kLine)) return std::nullopt;
    // A region either keeps its content between entries or does not.
    const auto isSaved = [&](BufferId id) { return program_.at(id).role == Role::kSaved; };
    if (isSaved(b) != isSaved(home.tenants.front().buffer)) return std::nullopt;
    // Scalars have no gaps: the stride of their region equals theirs.
    const auto isScalar = [&](BufferId id) {
      const Buffer& buffer = program_.at(id);
      return buffer.type == DType::kF32 &&
             (buffer.shape.size() == 1 || buffer.shape[1].size == program_.topK);
    };
    const bool anyScalar = isScalar(b) || std::any_of(home.tenants.begin(), home.tenants.end(),
                                                      [&](const Tenant& t) { return isScalar(t.buffer); });
    if (anyScalar && stride != home.stride) return std::nullopt;
    Fit fit{0, 0};
    if (beside == Beside::kYes && !anyScalar && stride >= kLine) {
      fit.offset = lowestFree(b, home);
    } else if (std::any_of(home.tenants.begin(), home.tenants.end(),
                           [&](const Tenant& t) { return !lifetimes_.mayShare(b, t.buffer); })) {
      return std::nullopt;
    }
    fit.growth = std::max<int64_t>(fit.offset + stride - home.stride, 0);
    return fit;
  }

  // The place after buffers that may not share with this one, in the first gap between them that is wide
  // enough.
  int64_t lowestFree(BufferId b, const Home& home) const {
    std::vector<Tenant> others;
    std::copy_if(home.tenants.begin(), home.tenants.end(), std::back_inserter(others),
                 [&](const Tenant& t) { return !lifetimes_.mayShare(b, t.buffer); });
    std::sort(others.begin(), others.end(),
              [](const Tenant& a, const Tenant& b) { return a.offset < b.offset; });
    int64_t lowest = 0;
    for (const Tenant& other : others) {
      if (other.offset >= lowest + strideFor(program_.at(b))) break;
      lowest = std::max(lowest, other.offset + strideFor(program_.at(other.buffer)));
    }
    return lowest;
  }

  static int64_t countHomeBytes(const std::vector<Home>& homes) {
    int64_t bytes = 0;
    for (const Home& home : homes) bytes += home.stride;
    return bytes;
  }

  int64_t unit(BufferId b) const { return bytesPerUnit(program_.at(b)); }

  const TaskProgram& program_;
  Lifetimes lifetimes_;
};

}  // namespace

Expected<TaskProgram> planMemory(TaskProgram program) {
  if (!program.regions.empty()) return Error{reportLine("", "error", "the program has regions already")};
  const MemoryPlanner planner(program);
  for (const Home& home : planner.run()) {
    for (const Tenant& tenant : home.tenants) {
      Buffer& buffer = program.buffers[tenant.buffer.value];
      buffer.region = RegionId{static_cast<uint32_t>(program.regions.size())};
      buffer.offset = tenant.offset;
    }
    program.regions.push_back(planner.makeRegion(home));
  }
  return program;
}

}  // namespace sluice
