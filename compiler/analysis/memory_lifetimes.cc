// Lifetimes of buffers, and the bytes that must be live at once.
#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "compiler/analysis/events.h"
#include "compiler/analysis/memory.h"
#include "runtime/program/space_table.h"

namespace sluice {
namespace {

constexpr std::array kExtents = {Extent::kFixed, Extent::kTokens, Extent::kRows, Extent::kPairs,
                                 Extent::kExperts};

// The heaviest set of buffers of which no two may share memory. Branch and bound, heaviest first. After
// `kMaxSteps` the best set so far, which is a lower bound of the memory as well.
class HeaviestSet {
 public:
  HeaviestSet(const TaskProgram& program, const Lifetimes& lifetimes, std::vector<BufferId> buffers)
      : program_(program), lifetimes_(lifetimes) {
    std::stable_sort(buffers.begin(), buffers.end(), [&](BufferId a, BufferId b) {
      return bytesPerUnit(program.at(a)) > bytesPerUnit(program.at(b));
    });
    extend({}, buffers, 0);
  }

  int64_t bytes() const { return best_; }

 private:
  static constexpr int kMaxSteps = 20000;

  void extend(std::vector<BufferId> chosen, const std::vector<BufferId>& candidates, int64_t bytes) {
    best_ = std::max(best_, bytes);
    int64_t rest = 0;
    for (BufferId b : candidates) rest += bytesPerUnit(program_.at(b));
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (bytes + rest <= best_ || ++steps_ > kMaxSteps) return;
      const int64_t own = bytesPerUnit(program_.at(candidates[i]));
      std::vector<BufferId> remaining;
      for (size_t j = i + 1; j < candidates.size(); ++j)
        if (!lifetimes_.mayShare(candidates[i], candidates[j])) remaining.push_back(candidates[j]);
      chosen.push_back(candidates[i]);
      extend(chosen, remaining, bytes + own);
      chosen.pop_back();
      rest -= own;
    }
  }

  const TaskProgram& program_;
  const Lifetimes& lifetimes_;
  int64_t best_ = 0;
  int steps_ = 0;
};

Formula findPeak(const TaskProgram& program, const Lifetimes& lifetimes,
                 const std::function<bool(BufferId)>& counts) {
  Formula peak;
  for (Extent extent : kExtents) {
    std::vector<BufferId> buffers;
    for (uint32_t b = 0; b < program.buffers.size(); ++b)
      if (isOwnedByRuntime(program.buffers[b]) && findExtent(program.buffers[b]) == extent &&
          counts(BufferId{b}))
        buffers.push_back(BufferId{b});
    peak.at(extent) = HeaviestSet(program, lifetimes, std::move(buffers)).bytes();
  }
  return peak;
}

}  // namespace

int64_t& Formula::at(Extent extent) {
  switch (extent) {
    case Extent::kTokens:
      return tokens;
    case Extent::kRows:
      return rows;
    case Extent::kPairs:
      return pairs;
    case Extent::kExperts:
      return experts;
    case Extent::kFixed:
      break;
  }
  return fixed;
}

Formula& Formula::operator+=(const Formula& other) {
  for (Extent extent : kExtents) at(extent) += other.at(extent);
  return *this;
}

double inBalancedStep(const TaskProgram& program, Formula formula) {
  double bytes = 0;
  for (Extent extent : kExtents)
    bytes += static_cast<double>(formula.at(extent)) * static_cast<double>(balancedExtent(program, extent));
  return bytes;
}

Extent findExtent(const Buffer& buffer) {
  return buffer.shape.empty() ? Extent::kFixed : buffer.shape.front().extent;
}

int64_t bytesPerUnit(const Buffer& buffer) {
  int64_t bytes = dtypeBytes(buffer.type);
  for (const Dim& dim : buffer.shape)
    if (dim.extent == Extent::kFixed) bytes *= dim.size;
  return bytes;
}

Formula sizeFormula(Extent extent, int64_t bytes) {
  Formula formula;
  formula.at(extent) = bytes;
  return formula;
}

Formula sizeFormula(const Buffer& buffer) { return sizeFormula(findExtent(buffer), bytesPerUnit(buffer)); }

bool isOwnedByRuntime(const Buffer& buffer) {
  if (buffer.role == Role::kTemp || buffer.role == Role::kSaved) return true;
  return buffer.role == Role::kOutput && findExtent(buffer) == Extent::kRows;
}

void Lifetimes::addUses(const TaskProgram& program) {
  uses_.resize(count_);
  for (Uses& uses : uses_) uses.entries.resize(program.entries.size());
  for (uint32_t f = 0; f < program.families.size(); ++f) {
    const Family& family = program.families[f];
    for (BufferId b : family.reads) {
      if (!b) continue;
      uses_[b.value].readers.push_back(f);
      uses_[b.value].entries[family.entry.value] = true;
    }
    for (BufferId b : family.writes) {
      if (!b) continue;
      uses_[b.value].writers.push_back(f);
      uses_[b.value].entries[family.entry.value] = true;
      uses_[b.value].remote = uses_[b.value].remote || sluice::isRemote(program.at(family.space).kind);
    }
  }
  // Saved buffers live from their writer's entry to the last reader's.
  for (uint32_t b = 0; b < count_; ++b) {
    std::vector<bool>& entries = uses_[b].entries;
    if (program.buffers[b].role != Role::kSaved) continue;
    const auto first = std::find(entries.begin(), entries.end(), true);
    const auto last = std::find(entries.rbegin(), entries.rend(), true).base();
    if (first < last) std::fill(first, last, true);
  }
}

Lifetimes::Lifetimes(const TaskProgram& program) : count_(program.buffers.size()) {
  addUses(program);
  mayShare_.resize(count_ * count_);
  const CoverageTable coverage = computeCoverage(program);
  const auto comesAfter = [&](uint32_t later, uint32_t earlier) {
    const Extent extent = findExtent(program.buffers[later]);
    const auto covers = [&](uint32_t writer, uint32_t user) {
      const auto spaceKindAt = [&](uint32_t family) {
        return program.at(program.families[family].space).kind;
      };
      return coverage[writer][user] >= scopeToReuse(spaceKindAt(writer), spaceKindAt(user), extent);
    };
    for (uint32_t writer : uses_[later].writers) {
      if (sluice::isRemote(program.at(program.families[writer].space).kind)) return false;
      for (uint32_t user : uses_[earlier].writers)
        if (!covers(writer, user)) return false;
      for (uint32_t user : uses_[earlier].readers)
        if (sluice::isRemote(program.at(program.families[user].space).kind) || !covers(writer, user))
          return false;
    }
    return true;
  };
  const auto share = [&](uint32_t a, uint32_t b) {
    if (program.buffers[a].role != Role::kTemp || program.buffers[b].role != Role::kTemp) return false;
    if (findExtent(program.buffers[a]) != findExtent(program.buffers[b])) return false;
    bool sameEntry = false;
    for (size_t e = 0; e < program.entries.size(); ++e)
      sameEntry = sameEntry || (uses_[a].entries[e] && uses_[b].entries[e]);
    return !sameEntry || comesAfter(a, b) || comesAfter(b, a);
  };
  for (uint32_t a = 0; a < count_; ++a)
    for (uint32_t b = 0; b < a; ++b) mayShare_[a * count_ + b] = mayShare_[b * count_ + a] = share(a, b);
}

bool Lifetimes::isLive(BufferId buffer, EntryId entry) const {
  return uses_[buffer.value].entries[entry.value];
}

Formula peakOfEntry(const TaskProgram& program, const Lifetimes& lifetimes, EntryId entry) {
  return findPeak(program, lifetimes, [&](BufferId b) { return lifetimes.isLive(b, entry); });
}

Formula peakOfProgram(const TaskProgram& program, const Lifetimes& lifetimes) {
  return findPeak(program, lifetimes, [](BufferId) { return true; });
}

}  // namespace sluice
