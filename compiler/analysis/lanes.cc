#include "compiler/analysis/lanes.h"

#include <algorithm>
#include <tuple>

namespace sluice {
namespace {

// The longest path of events that leads to each family; producers stand before consumers.
std::vector<int32_t> depths(const Draft& draft) {
  std::vector<int32_t> eventDepth(draft.program.events.size(), 0);
  std::vector<int32_t> depth;
  for (const Sync& sync : draft.sync) {
    int32_t deepest = 0;
    for (EventId wait : sync.waits) deepest = std::max(deepest, eventDepth[wait.value]);
    depth.push_back(deepest);
    for (EventId signal : sync.signals)
      eventDepth[signal.value] = std::max(eventDepth[signal.value], deepest + 1);
  }
  return depth;
}

// 0 communication, 1 chain, 2 weight gradients.
int32_t groupOf(SpaceKind kind) {
  switch (kind) {
    case SpaceKind::kSends:
    case SpaceKind::kReturns:
      return 0;
    case SpaceKind::kTokens:
    case SpaceKind::kRows:
    case SpaceKind::kGroups:
      return 1;
    case SpaceKind::kExperts:
    case SpaceKind::kOnce:
      return 2;
  }
  return 2;
}

}  // namespace

Deal dealTasks(int32_t window, int32_t tiles, int32_t cores) {
  Deal deal;
  deal.seats.resize(static_cast<size_t>(cores));
  int32_t seat = 0;
  for (int32_t slot = 0; slot < window; ++slot)
    for (int32_t tile = 0; tile < tiles; ++tile) {
      deal.seats[static_cast<size_t>(seat)].push_back(
          {static_cast<uint32_t>(slot), static_cast<uint32_t>(tile)});
      seat = seat + 1 == cores ? 0 : seat + 1;
    }
  deal.rotation = seat;
  return deal;
}

std::vector<int32_t> rankFamilies(const Draft& draft) {
  const std::vector<int32_t> depth = depths(draft);
  std::vector<int32_t> priority(depth.size(), 0);
  for (uint32_t entry = 0; entry < draft.program.entries.size(); ++entry) {
    std::vector<std::tuple<int32_t, int32_t, size_t>> order;  // group, place in the group, family
    for (size_t f = 0; f < depth.size(); ++f) {
      const Family& family = draft.program.families[f];
      if (family.entry.value != entry) continue;
      const int32_t group = groupOf(draft.program.at(family.space).kind);
      order.emplace_back(group, group == 1 ? -depth[f] : depth[f], f);
    }
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < order.size(); ++i) priority[std::get<2>(order[i])] = static_cast<int32_t>(i);
  }
  return priority;
}

}  // namespace sluice
