// Mutations that keep a program consistent around the damage.
#include <algorithm>
#include <string>
#include <utility>

#include "tests/runtime/program/verify_mutation_tools.h"
#include "tests/runtime/program/verify_mutations.h"

namespace sluice {
namespace {

void addLink(std::vector<EventId>& links, EventId id, Random& random) {
  if (links.empty() || below(random, 3) > 0)
    setSecond(links, id);
  else
    links[0] = id;
}

void removeLink(std::vector<EventId>& links, Random& random) {
  if (below(random, 2) == 0) std::reverse(links.begin(), links.end());
  dropLast(links);
}

void mergeLanes(TaskProgram& p, Random& random) {
  const auto from = below(random, static_cast<int64_t>(p.lanes.size()));
  const auto into = below(random, static_cast<int64_t>(p.lanes.size()));
  const bool alike = p.lanes[from].entry == p.lanes[into].entry && p.lanes[from].space == p.lanes[into].space;
  if (from == into || (!alike && below(random, 8) > 0)) return;
  const bool first = below(random, 2) == 0, sorted = below(random, 3) == 0;
  for (size_t core = 0; core < p.lanes[from].seats.size() && !p.lanes[into].seats.empty(); ++core) {
    auto& to = p.lanes[into].seats[core % p.lanes[into].seats.size()];  // it may be for fewer cores
    const auto& more = p.lanes[from].seats[core];
    to.insert(first ? to.begin() : to.end(), more.begin(), more.end());
    if (sorted) std::stable_sort(to.begin(), to.end(), [](auto& a, auto& b) { return a.slot < b.slot; });
  }
  p.lanes.erase(p.lanes.begin() + from);
}

void shareRegion(TaskProgram& p, Random& random) {
  Buffer& a = any(p.buffers, random);
  Buffer& b = any(p.buffers, random);
  if (!a.region || !b.region || a.shape[0].extent != b.shape[0].extent) return;
  Region& to = p.regions[a.region.value];
  const Region& from = p.regions[b.region.value];
  to.stride = std::max(to.stride, from.stride);
  to.symmetric = to.symmetric || from.symmetric;
  if (below(random, 8) > 0 && (a.role != Role::kTemp || b.role != Role::kTemp)) return;
  b.region = a.region;
}

// Somewhere else in the same stride, where it fits.
void movePlace(TaskProgram& p, Random& random) {
  Buffer& buffer = any(p.buffers, random);
  if (!buffer.region || buffer.shape[0].extent == Extent::kFixed) return;
  int64_t unit = dtypeBytes(buffer.type);
  for (size_t d = 1; d < buffer.shape.size(); ++d) unit *= buffer.shape[d].size;
  const int64_t step = unit < 64 ? dtypeBytes(buffer.type) : 64;
  buffer.offset = step * below(random, (p.at(buffer.region).stride - unit) / step + 1);
}

// Into the region of another buffer, beside all that lies there, over some of it, or where that one lies.
void joinRegion(TaskProgram& p, Random& random) {
  const Buffer& a = any(p.buffers, random);
  Buffer& b = any(p.buffers, random);
  if (!a.region || !b.region || a.region == b.region || a.shape[0].extent != b.shape[0].extent) return;
  Region& to = p.regions[a.region.value];
  const Region from = p.regions[b.region.value];
  if (to.saved != from.saved && below(random, 8) > 0) return;
  const int64_t beside = to.stride < 64 && to.stride + from.stride > 64 ? 64 : to.stride;
  if (below(random, 2) == 0) {
    b.offset += beside;
    to.stride = beside + from.stride;
  } else {
    b.offset = a.offset;
    to.stride = std::max(to.stride, b.offset + from.stride);
  }
  if (to.stride > 64) to.stride = (to.stride + 63) / 64 * 64;
  to.symmetric = to.symmetric || from.symmetric;
  b.region = a.region;
}

void splitRegion(TaskProgram& p, Random& random) {
  Buffer& buffer = any(p.buffers, random);
  if (!buffer.region) return;
  p.regions.push_back(p.at(buffer.region));
  buffer.region = RegionId{static_cast<uint32_t>(p.regions.size() - 1)};
}

void widenRegion(TaskProgram& p, Random& random) {
  int64_t& stride = any(p.regions, random).stride;
  stride = stride < 32 ? stride * 2 : (stride + 127) / 64 * 64;
}

// One event less, with every reference to it.
void removeEvent(TaskProgram& p, Random& random) {
  const auto gone = static_cast<uint32_t>(below(random, static_cast<int64_t>(p.events.size())));
  p.events.erase(p.events.begin() + gone);
  const auto remove = [&](std::vector<EventId>& links) {
    std::erase(links, EventId{gone});
    for (EventId& id : links)
      if (id.value > gone) --id.value;
  };
  for (Family& family : p.families) remove(family.waits), remove(family.signals);
}

// A new event from one family to another, with the threshold that is delivered.
void addEvent(TaskProgram& p, Random& random) {
  const FamilyId producer = realFamily(p, random), consumer = realFamily(p, random);
  const Family& family = p.at(producer);
  EventArray event{"added",      family.entry, EventSpace::kOne, EventUnit::kTasks, ThresholdRule::kConstant,
                   family.tiles, false};
  const bool grouped = std::any_of(p.spaces.begin(), p.spaces.end(),
                                   [](const Space& space) { return space.kind == SpaceKind::kGroups; });
  switch (p.at(family.space).kind) {
    case SpaceKind::kRows:
      event.space = below(random, 2) == 0 ? EventSpace::kRows : EventSpace::kExperts;
      if (event.space == EventSpace::kExperts) event.rule = ThresholdRule::kSlotsOfExpert;
      if (grouped && below(random, 2) == 0)
        event.space = EventSpace::kGroups, event.rule = ThresholdRule::kSlotsOfGroup;
      break;
    case SpaceKind::kGroups:
      event.space = below(random, 2) == 0 ? EventSpace::kGroups : EventSpace::kExperts;
      if (event.space == EventSpace::kExperts) event.rule = ThresholdRule::kGroupsOfExpert;
      break;
    case SpaceKind::kExperts:
      event.space = EventSpace::kExperts;
      if (below(random, 2) == 0) countAllExperts(p, event, event.factor);
      break;
    case SpaceKind::kTokens:
      event.space = below(random, 2) == 0 ? EventSpace::kTokens : EventSpace::kOne;
      if (event.space == EventSpace::kOne) event.rule = ThresholdRule::kSlotsOfTokens;
      break;
    case SpaceKind::kOnce:
      break;
    case SpaceKind::kSends:
      event.space = below(random, 2) == 0 ? EventSpace::kRows : EventSpace::kExperts;
      event.rule =
          event.space == EventSpace::kRows ? ThresholdRule::kRowsOfSlot : ThresholdRule::kRowsOfExpert;
      if (grouped && event.space == EventSpace::kRows && below(random, 2) == 0)
        event.space = EventSpace::kGroups;
      break;
    case SpaceKind::kReturns:
      event.rule = ThresholdRule::kValidPairs;
      break;
  }
  const bool counted =
      event.rule == ThresholdRule::kConstant || event.rule == ThresholdRule::kSlotsOfExpert ||
      event.rule == ThresholdRule::kSlotsOfTokens || event.rule == ThresholdRule::kSlotsOfGroup ||
      event.rule == ThresholdRule::kGroupsOfExpert || event.rule == ThresholdRule::kExpertsOfRank;
  if (!counted) {
    event.unit = EventUnit::kRows;
    event.factor = 0;
    event.remote = true;
  }
  p.events.push_back(event);
  const EventId id{static_cast<uint32_t>(p.events.size() - 1)};
  addLink(p.families[producer.value].signals, id, random);
  addLink(p.families[consumer.value].waits, id, random);
}

// One more producer of an event that counts tasks, with the constant that makes it right.
void addProducer(TaskProgram& p, Random& random) {
  const FamilyId family = realFamily(p, random);
  const EventId id = realEvent(p, p.at(family).entry, random);
  addLink(p.families[family.value].signals, id, random);
  if (p.events[id.value].unit == EventUnit::kTasks) p.events[id.value].factor += p.at(family).tiles;
}

void changeWait(TaskProgram& p, Random& random) {
  Family& family = p.families[realFamily(p, random).value];
  if (below(random, 3) == 0)
    removeLink(family.waits, random);
  else
    addLink(family.waits, realEvent(p, family.entry, random), random);
}

// Another tile size, with the lane dealt again; the event after it follows or not.
void changeTiles(TaskProgram& p, Random& random) {
  const FamilyId id = realFamily(p, random);
  Family& family = p.families[id.value];
  if (family.tiling.tileN == 0) return;
  const auto lane = std::find_if(p.lanes.begin(), p.lanes.end(), [&](const Lane& l) {
    return std::any_of(l.seats.begin(), l.seats.end(),
                       [&](auto& seat) { return !seat.empty() && seat[0].family == id; });
  });
  if (lane == p.lanes.end()) return;
  family.tiling.tileN = static_cast<int32_t>(1 + below(random, family.tiling.n + 4));
  const int32_t old = family.tiles;
  family.tiles = ceilDiv(family.tiling.n, family.tiling.tileN);
  if (family.op == OpKind::kGmmWeightGrad) family.tiles *= ceilDiv(family.tiling.m, family.tiling.tileM);
  for (auto& seat : lane->seats) seat.clear();
  // earlier changes may have made sizes enormous
  const int64_t tasks = std::min<int64_t>(int64_t{p.at(family.space).window} * family.tiles, 1 << 16);
  for (int64_t task = 0; task < tasks; ++task) {
    const auto slot = static_cast<uint32_t>(task / family.tiles);
    const auto tile = static_cast<uint32_t>(task % family.tiles);
    lane->seats[task % lane->seats.size()].push_back({id, slot, tile});
  }
  if (!family.signals.empty() && below(random, 2) == 0)
    p.events[family.signals[0].value].factor += family.tiles - old;
}

void changeOperand(TaskProgram& p, Random& random) {
  Family& family = p.families[realFamily(p, random).value];
  auto& side = below(random, 2) == 0 ? family.reads : family.writes;
  BufferId& operand = any(side, random);
  if (operand.value >= p.buffers.size() || below(random, 3) == 0) {
    operand = anyId<BufferId>(p.buffers, random);
    return;
  }
  // One of the same kind is the likelier to pass the first checks.
  const Buffer old = p.at(operand);
  for (int tries = 0; tries < 20; ++tries) {
    const BufferId other{static_cast<uint32_t>(below(random, static_cast<int64_t>(p.buffers.size())))};
    if (other == operand || p.at(other).shape != old.shape || p.at(other).type != old.type) continue;
    operand = other;
    return;
  }
}

}  // namespace

std::vector<Mutation> subtleMutations() {
  std::vector<Mutation> all = lateMutations();
  for (const Mutation& mutation : coreMutations()) all.push_back(mutation);
  const std::vector<Mutation> more = {
      {"waits of a family", changeWait},
      {"signals of a family",
       [](auto& p, auto& r) { removeLink(p.families[realFamily(p, r).value].signals, r); }},
      {"added event", addEvent},
      {"added producer", addProducer},
      {"other tiles", changeTiles},
      {"shared region", shareRegion},
      {"other place", movePlace},
      {"joined region", joinRegion},
      {"split region", splitRegion},
      {"wider region", widenRegion},
      {"removed event", removeEvent},
      {"merged lanes", mergeLanes},
      {"operand", changeOperand},
  };
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace sluice
