#include "compiler/analysis/cost/replay_step.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

namespace sluice {
namespace {

constexpr int32_t kRowUnit = 16;  // slots are rounded up to it, as bind does

// The rows of `count` experts that stand for all: the groups in their proportions, mixed, since an expert's
// number says nothing of its load. Rounding carries over, so that the sum is right.
std::vector<int32_t> pickExperts(const ExpectedRows& rows, int32_t count) {
  double experts = 0;
  for (const ExpertGroup& group : rows.groups) experts += group.experts;
  std::vector<double> byRank;
  size_t at = 0;
  double before = 0;
  for (int32_t i = 0; i < count; ++i) {
    const double place = (i + 0.5) / count * experts;
    while (at + 1 < rows.groups.size() && place > before + rows.groups[at].experts)
      before += rows.groups[at++].experts;
    byRank.push_back(rows.groups.empty() ? 0 : rows.groups[at].rows);
  }
  int32_t stride = std::max(1, static_cast<int32_t>(count * 0.618));
  while (std::gcd(stride, count) != 1) ++stride;
  std::vector<int32_t> picked;
  double sum = 0;
  for (int32_t i = 0; i < count; ++i) {
    const double next = sum + byRank[static_cast<size_t>(int64_t{i} * stride % count)];
    picked.push_back(static_cast<int32_t>(std::floor(next + 0.5) - std::floor(sum + 0.5)));
    sum = next;
  }
  return picked;
}

// Rows of an expert of `total` before those of `source`; all ranks send it as many.
int32_t rowsBefore(int64_t total, int64_t source, int64_t ranks) {
  return static_cast<int32_t>(total * source / ranks);
}

class Builder {
 public:
  Builder(const CostProblem& problem, const ExpectedRows& rows, int32_t experts)
      : problem_(problem), ranks_(problem.step.ranks), rank_(problem.step.ranks / 2) {
    step_.part = std::min(1.0, experts / static_cast<double>(std::max<int64_t>(1, rows.experts)));
    step_.tokens = static_cast<int32_t>(std::ceil(static_cast<double>(problem.step.tokens) * step_.part));
    step_.tokenSlots = (step_.tokens + problem.tokenSlot - 1) / problem.tokenSlot;
    step_.expertRows = pickExperts(rows, experts);
  }

  ReplayStep build() {
    for (int32_t expert = 0; expert < static_cast<int32_t>(step_.expertRows.size()); ++expert)
      cutExpert(expert);
    numberSlots();
    if (problem_.groupRows > problem_.slotRows) numberGroups();
    orderPieces();
    return std::move(step_);
  }

 private:
  struct Piece {
    ReplayPiece piece;
    int64_t distance = 0;  // of its source, 0 for this rank
  };

  void cutExpert(int32_t expert) {
    const int32_t rows = step_.expertRows[static_cast<size_t>(expert)];
    step_.expertSlots.push_back(0);
    if (rows <= 0) return;
    const int32_t wanted = (rows + problem_.slotRows - 1) / problem_.slotRows;
    const int32_t even = (rows + wanted - 1) / wanted;
    const int32_t length = std::min(problem_.slotRows, (even + kRowUnit - 1) / kRowUnit * kRowUnit);
    const int32_t slots = (rows + length - 1) / length;
    step_.expertSlots.back() = slots;
    cutGroups(expert, slots);
    const auto first = static_cast<int32_t>(step_.slots.size());
    for (int32_t i = 0; i < slots; ++i)
      step_.slots.push_back({expert, std::min(length, rows - i * length), groupOf(i, slots)});
    cutPieces(expert, rows, first, length);
  }

  int32_t groupsOf(int32_t slots) const {
    const int32_t most = std::max(1, problem_.groupRows / problem_.slotRows);
    return (slots + most - 1) / most;
  }
  // The slots of an expert are spread over its groups as evenly as they can be.
  int32_t groupOf(int32_t slot, int32_t slots) const {
    return firstGroup_ + static_cast<int32_t>(int64_t{slot} * groupsOf(slots) / slots);
  }
  void cutGroups(int32_t expert, int32_t slots) {
    firstGroup_ = static_cast<int32_t>(step_.groups.size());
    if (problem_.groupRows <= problem_.slotRows) return;
    step_.groups.resize(step_.groups.size() + static_cast<size_t>(groupsOf(slots)), {expert, 0, 0});
  }

  void cutPieces(int32_t expert, int32_t rows, int32_t firstSlot, int32_t length) {
    for (int64_t source = 0; source < ranks_; ++source) {
      const int32_t end = rowsBefore(rows, source + 1, ranks_);
      for (int32_t at = rowsBefore(rows, source, ranks_); at < end;) {
        const int32_t slot = at / length, stop = std::min(end, (slot + 1) * length);
        const int64_t distance = (rank_ - source + ranks_) % ranks_;
        pieces_.push_back({{firstSlot + slot, expert, stop - at, distance == 0}, distance});
        at = stop;
      }
    }
  }

  // By the latest piece of each.
  void numberSlots() {
    std::vector<std::pair<int64_t, size_t>> order;
    for (size_t s = 0; s < step_.slots.size(); ++s) order.emplace_back(0, s);
    for (const Piece& p : pieces_)
      if (p.distance > 0) {
        int64_t& key = order[static_cast<size_t>(p.piece.slot)].first;
        key = std::max(key, 1 + p.piece.expert * ranks_ + p.distance);
      }
    std::sort(order.begin(), order.end());
    std::vector<ReplaySlot> slots;
    std::vector<int32_t> number(order.size());
    for (const auto& [key, s] : order) {
      number[s] = static_cast<int32_t>(slots.size());
      slots.push_back(step_.slots[s]);
    }
    step_.slots = std::move(slots);
    for (Piece& p : pieces_) p.piece.slot = number[static_cast<size_t>(p.piece.slot)];
  }

  void numberGroups() {
    std::vector<std::pair<int32_t, int32_t>> order(step_.groups.size());  // latest slot, group
    for (size_t g = 0; g < order.size(); ++g) order[g] = {0, static_cast<int32_t>(g)};
    for (size_t s = 0; s < step_.slots.size(); ++s) {
      const auto g = static_cast<size_t>(step_.slots[s].group);
      order[g].first = static_cast<int32_t>(s);
      step_.groups[g].rows += step_.slots[s].rows;
      ++step_.groups[g].slots;
    }
    std::sort(order.begin(), order.end());
    std::vector<ReplayGroup> groups;
    std::vector<int32_t> number(order.size());
    for (const auto& [latest, g] : order) {
      number[static_cast<size_t>(g)] = static_cast<int32_t>(groups.size());
      groups.push_back(step_.groups[static_cast<size_t>(g)]);
    }
    step_.groups = std::move(groups);
    for (ReplaySlot& slot : step_.slots) slot.group = number[static_cast<size_t>(slot.group)];
  }

  void orderPieces() {
    std::stable_sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) {
      const auto key = [](const Piece& p) {
        return std::tuple(p.distance > 0, p.distance > 0 ? p.piece.expert : 0, p.distance);
      };
      return key(a) < key(b);
    });
    for (const Piece& p : pieces_) step_.sends.push_back(p.piece);
    // The rank after this one comes first, this one last.
    std::stable_sort(pieces_.begin(), pieces_.end(), [this](const Piece& a, const Piece& b) {
      const auto key = [this](const Piece& p) {
        return std::pair(p.piece.slot, p.distance == 0 ? ranks_ : ranks_ - p.distance);
      };
      return key(a) < key(b);
    });
    for (const Piece& p : pieces_) step_.returns.push_back(p.piece);
  }

  const CostProblem& problem_;
  const int64_t ranks_, rank_;
  ReplayStep step_;
  std::vector<Piece> pieces_;
  int32_t firstGroup_ = 0;
};

}  // namespace

ReplayStep replayStepOf(const CostProblem& problem, const ExpectedRows& rows, int32_t experts) {
  return Builder(problem, rows, experts).build();
}

int64_t slotsIn(const ReplayStep& step, SpaceKind kind) {
  switch (kind) {
    case SpaceKind::kTokens:
      return step.tokenSlots;
    case SpaceKind::kRows:
      return static_cast<int64_t>(step.slots.size());
    case SpaceKind::kSends:
      return static_cast<int64_t>(step.sends.size());
    case SpaceKind::kReturns:
      return static_cast<int64_t>(step.returns.size());
    case SpaceKind::kExperts:
      return static_cast<int64_t>(step.expertRows.size());
    case SpaceKind::kGroups:
      return static_cast<int64_t>(step.groups.size());
    case SpaceKind::kOnce:
      return 1;
  }
  return 0;
}

int64_t countersIn(const ReplayStep& step, EventSpace space) {
  switch (space) {
    case EventSpace::kRows:
      return slotsIn(step, SpaceKind::kRows);
    case EventSpace::kExperts:
      return slotsIn(step, SpaceKind::kExperts);
    case EventSpace::kTokens:
      return slotsIn(step, SpaceKind::kTokens);
    case EventSpace::kGroups:
      return slotsIn(step, SpaceKind::kGroups);
    case EventSpace::kOne:
      return 1;
  }
  return 1;
}

ReplayView viewOf(const CostProblem& problem, const ReplayStep& step, SpaceKind kind, int64_t index) {
  const auto at = static_cast<size_t>(index);
  const auto ofRows = [&](int64_t slot) {
    const ReplaySlot& s = step.slots[static_cast<size_t>(slot)];
    return ReplayView{
        slot, s.group, s.expert, double(s.rows), double(step.expertSlots[static_cast<size_t>(s.expert)]),
        false};
  };
  const auto ofPiece = [&](const ReplayPiece& piece) {
    ReplayView view = ofRows(piece.slot);
    view.rows = piece.rows;
    view.reuse = 1;
    view.leaves = !piece.own;
    return view;
  };
  switch (kind) {
    case SpaceKind::kRows:
      return ofRows(index);
    case SpaceKind::kSends:
      return ofPiece(step.sends[at]);
    case SpaceKind::kReturns:
      return ofPiece(step.returns[at]);
    case SpaceKind::kExperts:
      return {ReplayView::kNone, ReplayView::kNone, index, double(step.expertRows[at]), 1, false};
    case SpaceKind::kGroups: {
      const ReplayGroup& group = step.groups[at];
      const double slots = step.expertSlots[static_cast<size_t>(group.expert)];
      return {ReplayView::kNone,
              index,
              group.expert,
              double(group.rows),
              std::max(1.0, slots / group.slots),
              false};
    }
    case SpaceKind::kTokens: {
      const int32_t left = step.tokens - static_cast<int32_t>(index) * problem.tokenSlot;
      return {ReplayView::kNone,       ReplayView::kNone,
              ReplayView::kNone,       double(std::min(left, problem.tokenSlot)),
              double(step.tokenSlots), false};
    }
    case SpaceKind::kOnce:
      return {ReplayView::kNone, ReplayView::kNone, ReplayView::kNone, double(step.tokens), 1, false};
  }
  return {};
}

int64_t counterOf(EventSpace space, const ReplayView& view, int64_t index) {
  switch (space) {
    case EventSpace::kRows:
      return view.slot;
    case EventSpace::kGroups:
      return view.group;
    case EventSpace::kExperts:
      return view.expert;
    case EventSpace::kTokens:
      return index;
    case EventSpace::kOne:
      return 0;
  }
  return ReplayView::kNone;
}

}  // namespace sluice
