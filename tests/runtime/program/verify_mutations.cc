#include "tests/runtime/program/verify_mutations.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace sluice {
namespace {

int64_t below(Random& random, int64_t count) {
  return count <= 0 ? 0 : static_cast<int64_t>(random() % static_cast<uint64_t>(count));
}

template <class T>
T& any(std::vector<T>& table, Random& random) {
  return table[below(random, static_cast<int64_t>(table.size()))];
}

// An id of the table, now and then none, one past the end, or far out.
template <class IdType, class T>
IdType anyId(const std::vector<T>& table, Random& random) {
  const auto size = static_cast<uint32_t>(table.size());
  switch (below(random, 12)) {
    case 0:
      return IdType{};
    case 1:
      return IdType{size};
    case 2:
      return IdType{0x7fffffffu};
    default:
      return IdType{static_cast<uint32_t>(below(random, size))};
  }
}

template <class Enum>
void anyEnum(Enum& value, int known, Random& random) {
  value = static_cast<Enum>(below(random, known + 1));
}

// Near the old value, or one of the usual suspects.
template <class Number>
void anyNumber(Number& value, Random& random) {
  switch (below(random, 9)) {
    case 0:
      value = 0;
      break;
    case 1:
      value = -1;
      break;
    case 2:
      value = std::numeric_limits<Number>::max();
      break;
    case 3:
      value = std::numeric_limits<Number>::min();
      break;
    case 4:
      value = value < 512 && value > 0 ? value * 2 : value;
      break;
    case 5:
      value = value / 2;
      break;
    default:
      value = static_cast<Number>(value % 4096 + below(random, 7) - 3);
      break;
  }
}

std::vector<TaskRecord>& anySeat(TaskProgram& p, Random& random) {
  for (;;) {
    auto& seat = any(any(p.lanes, random).seats, random);
    if (!seat.empty()) return seat;
  }
}

TaskRecord& anyRecord(TaskProgram& p, Random& random) { return any(anySeat(p, random), random); }

void forFamily(TaskProgram& p, FamilyId family, const std::function<void(TaskRecord&)>& change) {
  for (Lane& lane : p.lanes)
    for (auto& seat : lane.seats)
      for (TaskRecord& record : seat)
        if (record.family == family) change(record);
}

FamilyId anyFamily(TaskProgram& p, Random& random) { return anyId<FamilyId>(p.families, random); }

FamilyId realFamily(TaskProgram& p, Random& random) {
  return FamilyId{static_cast<uint32_t>(below(random, static_cast<int64_t>(p.families.size())))};
}

EventId realEvent(TaskProgram& p, EntryId entry, Random& random) {
  for (;;) {
    const EventId id{static_cast<uint32_t>(below(random, static_cast<int64_t>(p.events.size())))};
    if (p.at(id).entry == entry) return id;
  }
}

void changeLink(TaskProgram& p, Random& random, TaskRecord& record) {
  auto& links = below(random, 2) == 0 ? record.waits : record.signals;
  if (below(random, 6) == 0) return std::swap(links[0], links[1]);
  links[below(random, 2)] = anyId<EventId>(p.events, random);
}

// What a family waits for and signals, for all of its records alike.
TaskRecord linksOf(TaskProgram& p, FamilyId family) {
  TaskRecord links;
  forFamily(p, family, [&](TaskRecord& record) { links = record; });
  return links;
}

void setLinks(TaskProgram& p, FamilyId family, const TaskRecord& links) {
  forFamily(p, family, [&](TaskRecord& record) {
    record.waits = links.waits;
    record.signals = links.signals;
  });
}

void addLink(std::array<EventId, 2>& links, EventId id, Random& random) {
  if (links[0].none())
    links[0] = id;
  else
    links[below(random, 3) > 0 ? 1 : 0] = id;
}

void removeLink(std::array<EventId, 2>& links, Random& random) {
  if (below(random, 2) == 0) links[0] = links[1];
  links[1] = {};
}

void swapRecords(TaskProgram& p, Random& random) {
  auto& seat = anySeat(p, random);
  std::swap(any(seat, random), any(seat, random));
}

void moveRecord(TaskProgram& p, Random& random) {
  auto& from = anySeat(p, random);
  const auto at = from.begin() + below(random, static_cast<int64_t>(from.size()));
  const TaskRecord record = *at;
  from.erase(at);
  auto& to = below(random, 4) == 0
                 ? any(any(p.lanes, random).seats, random)
                 : any(p.lanes[std::min<size_t>(record.family.value, p.lanes.size() - 1)].seats, random);
  if (below(random, 2) == 0) {
    const auto place =
        std::find_if(to.begin(), to.end(), [&](auto& other) { return other.slot > record.slot; });
    to.insert(place, record);
  } else {
    to.insert(to.begin() + below(random, static_cast<int64_t>(to.size()) + 1), record);
  }
}

void mergeLanes(TaskProgram& p, Random& random) {
  const auto from = below(random, static_cast<int64_t>(p.lanes.size()));
  const auto into = below(random, static_cast<int64_t>(p.lanes.size()));
  const bool alike = p.lanes[from].entry == p.lanes[into].entry && p.lanes[from].space == p.lanes[into].space;
  if (from == into || (!alike && below(random, 8) > 0)) return;
  const bool first = below(random, 2) == 0, sorted = below(random, 3) == 0;
  for (size_t core = 0; core < p.lanes[into].seats.size(); ++core) {
    auto& to = p.lanes[into].seats[core];
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

void splitRegion(TaskProgram& p, Random& random) {
  Buffer& buffer = any(p.buffers, random);
  if (!buffer.region) return;
  p.regions.push_back(p.at(buffer.region));
  buffer.region = RegionId{static_cast<uint32_t>(p.regions.size() - 1)};
}

// A new event from one family to another, with the threshold that is delivered.
void addEvent(TaskProgram& p, Random& random) {
  const FamilyId producer = realFamily(p, random), consumer = realFamily(p, random);
  const Family& family = p.at(producer);
  EventArray event{"added",      family.entry, EventSpace::kOne, EventUnit::kTasks, ThresholdRule::kConstant,
                   family.tiles, false};
  switch (p.at(family.space).kind) {
    case SpaceKind::kRows:
      event.space = below(random, 2) == 0 ? EventSpace::kRows : EventSpace::kExperts;
      if (event.space == EventSpace::kExperts) event.rule = ThresholdRule::kSlotsOfExpert;
      break;
    case SpaceKind::kExperts:
      event.space = below(random, 2) == 0 ? EventSpace::kOne : EventSpace::kExperts;
      if (event.space == EventSpace::kOne) event.factor *= p.expertsPerRank();
      break;
    case SpaceKind::kTokens:
      event.space = EventSpace::kTokens;
      break;
    case SpaceKind::kSends:
      event.space = below(random, 2) == 0 ? EventSpace::kRows : EventSpace::kExperts;
      event.rule =
          event.space == EventSpace::kRows ? ThresholdRule::kRowsOfSlot : ThresholdRule::kRowsOfExpert;
      break;
    case SpaceKind::kReturns:
      event.rule = ThresholdRule::kValidPairs;
      break;
  }
  if (event.rule != ThresholdRule::kConstant && event.rule != ThresholdRule::kSlotsOfExpert) {
    event.unit = EventUnit::kRows;
    event.factor = 0;
    event.remote = true;
  }
  p.events.push_back(event);
  const EventId id{static_cast<uint32_t>(p.events.size() - 1)};
  TaskRecord links = linksOf(p, producer);
  addLink(links.signals, id, random);
  setLinks(p, producer, links);
  links = linksOf(p, consumer);
  addLink(links.waits, id, random);
  setLinks(p, consumer, links);
}

// One more producer of an event that counts tasks, with the constant that makes it right.
void addProducer(TaskProgram& p, Random& random) {
  const FamilyId family = realFamily(p, random);
  const EventId id = realEvent(p, p.at(family).entry, random);
  TaskRecord links = linksOf(p, family);
  addLink(links.signals, id, random);
  setLinks(p, family, links);
  if (p.events[id.value].unit == EventUnit::kTasks) p.events[id.value].factor += p.at(family).tiles;
}

void changeWait(TaskProgram& p, Random& random) {
  const FamilyId family = realFamily(p, random);
  TaskRecord links = linksOf(p, family);
  switch (below(random, 3)) {
    case 0:
      removeLink(links.waits, random);
      break;
    case 1:
      links.waits[0] = realEvent(p, p.at(family).entry, random);
      break;
    default:
      addLink(links.waits, realEvent(p, p.at(family).entry, random), random);
      break;
  }
  setLinks(p, family, links);
}

// Another tile size, with the lane dealt again; the event behind it follows or not.
void changeTiles(TaskProgram& p, Random& random) {
  const FamilyId id = realFamily(p, random);
  Family& family = p.families[id.value];
  if (family.op != OpKind::kGmm && family.op != OpKind::kGmmWeightGrad) return;
  const auto lane = std::find_if(p.lanes.begin(), p.lanes.end(), [&](const Lane& l) {
    return std::any_of(l.seats.begin(), l.seats.end(),
                       [&](auto& seat) { return !seat.empty() && seat[0].family == id; });
  });
  if (lane == p.lanes.end()) return;
  family.tiling.tileN = static_cast<int32_t>(1 + below(random, family.tiling.n + 4));
  const int32_t old = family.tiles;
  family.tiles = ceilDiv(family.tiling.n, family.tiling.tileN);
  if (family.op == OpKind::kGmmWeightGrad) family.tiles *= ceilDiv(family.tiling.m, family.tiling.tileM);
  TaskRecord record = linksOf(p, id);
  for (auto& seat : lane->seats) seat.clear();
  for (int64_t task = 0; task < int64_t{p.at(family.space).window} * family.tiles; ++task) {
    record.slot = static_cast<uint32_t>(task / family.tiles);
    record.tile = static_cast<uint32_t>(task % family.tiles);
    lane->seats[task % lane->seats.size()].push_back(record);
  }
  if (record.signals[0] && below(random, 2) == 0)
    p.events[record.signals[0].value].factor += family.tiles - old;
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

void changeTiling(TaskProgram& p, Random& random) {
  Tiling& t = any(p.families, random).tiling;
  int32_t* fields[] = {&t.m, &t.n, &t.k, &t.tileM, &t.tileN, &t.reserved0, &t.reserved1};
  const auto which = below(random, 8);
  if (which == 7)
    t.flags ^= 1u << below(random, 4);
  else
    anyNumber(*fields[which], random);
}

void changeShape(TaskProgram& p, Random& random) {
  Buffer& buffer = any(p.buffers, random);
  switch (below(random, 4)) {
    case 0:
      anyEnum(any(buffer.shape, random).extent, 4, random);
      break;
    case 1:
      buffer.shape.pop_back();
      break;
    case 2:
      buffer.shape.push_back({Extent::kFixed, 2});
      break;
    default:
      anyNumber(any(buffer.shape, random).size, random);
      break;
  }
}

void changeLimit(TaskProgram& p, Random& random) {
  int32_t* limits[] = {&p.ranks, &p.experts, &p.topK, &p.maxTokens, &p.cores};
  anyNumber(*limits[below(random, 5)], random);
}

// Strides stay small enough for the oracle to allocate.
void changeStride(TaskProgram& p, Random& random) {
  int64_t& stride = any(p.regions, random).stride;
  switch (below(random, 4)) {
    case 0:
      stride += 64 * (below(random, 5) - 2);
      break;
    case 1:
      stride = below(random, 256);
      break;
    case 2:
      stride = int64_t{1} << (46 + below(random, 17));
      break;
    default:
      stride = -stride;
      break;
  }
}

}  // namespace

std::vector<Mutation> recordMutations() {
  return {
      {"links of one record", [](auto& p, auto& r) { changeLink(p, r, anyRecord(p, r)); }},
      {"slot of a record",
       [](auto& p, auto& r) { anyRecord(p, r).slot = static_cast<uint32_t>(below(r, 8)); }},
      {"tile of a record",
       [](auto& p, auto& r) { anyRecord(p, r).tile = static_cast<uint32_t>(below(r, 8)); }},
      {"huge tile",
       [](auto& p, auto& r) { anyRecord(p, r).tile = ~uint32_t{0} - static_cast<uint32_t>(below(r, 2)); }},
      {"flags of a record",
       [](auto& p, auto& r) { anyRecord(p, r).flags = static_cast<uint32_t>(below(r, 3)); }},
      {"family of a record", [](auto& p, auto& r) { anyRecord(p, r).family = anyFamily(p, r); }},
      {"swapped records", swapRecords},
      {"missing record", [](auto& p, auto& r) { anySeat(p, r).pop_back(); }},
      {"double record",
       [](auto& p, auto& r) {
         auto& s = anySeat(p, r);
         s.push_back(any(s, r));
       }},
      {"overwritten record",
       [](auto& p, auto& r) {
         auto& s = anySeat(p, r);
         any(s, r) = any(s, r);
       }},
      {"moved record", moveRecord},
      {"swapped seats",
       [](auto& p, auto& r) {
         auto& l = any(p.lanes, r);
         std::swap(any(l.seats, r), any(l.seats, r));
       }},
      {"missing seat", [](auto& p, auto& r) { any(p.lanes, r).seats.pop_back(); }},
      {"added seat", [](auto& p, auto& r) { any(p.lanes, r).seats.emplace_back(); }},
      {"merged lanes", mergeLanes},
      {"missing lane",
       [](auto& p, auto& r) {
         p.lanes.erase(p.lanes.begin() + below(r, static_cast<int64_t>(p.lanes.size())));
       }},
      {"rotation",
       [](auto& p, auto& r) { any(p.lanes, r).rotation = static_cast<int32_t>(below(r, 6) - 1); }},
      {"priority", [](auto& p, auto& r) { anyNumber(any(p.lanes, r).priority, r); }},
      {"entry of a lane", [](auto& p, auto& r) { any(p.lanes, r).entry = anyId<EntryId>(p.entries, r); }},
      {"space of a lane", [](auto& p, auto& r) { any(p.lanes, r).space = anyId<SpaceId>(p.spaces, r); }},
      {"core of a lane", [](auto& p, auto& r) { anyEnum(any(p.lanes, r).core, 3, r); }},
  };
}

std::vector<Mutation> tableMutations() {
  return {
      {"threshold factor", [](auto& p, auto& r) { anyNumber(any(p.events, r).factor, r); }},
      {"threshold rule", [](auto& p, auto& r) { anyEnum(any(p.events, r).rule, 5, r); }},
      {"event space", [](auto& p, auto& r) { anyEnum(any(p.events, r).space, 4, r); }},
      {"event unit", [](auto& p, auto& r) { anyEnum(any(p.events, r).unit, 2, r); }},
      {"event remote", [](auto& p, auto& r) { any(p.events, r).remote ^= true; }},
      {"event entry", [](auto& p, auto& r) { any(p.events, r).entry = anyId<EntryId>(p.entries, r); }},
      {"family space", [](auto& p, auto& r) { any(p.families, r).space = anyId<SpaceId>(p.spaces, r); }},
      {"family tiles", [](auto& p, auto& r) { anyNumber(any(p.families, r).tiles, r); }},
      {"family tiling", changeTiling},
      {"family entry", [](auto& p, auto& r) { any(p.families, r).entry = anyId<EntryId>(p.entries, r); }},
      {"family op", [](auto& p, auto& r) { anyEnum(any(p.families, r).op, 7, r); }},
      {"operand", changeOperand},
      {"missing operand", [](auto& p, auto& r) { any(p.families, r).reads.pop_back(); }},
      {"buffer shape", changeShape},
      {"buffer type", [](auto& p, auto& r) { anyEnum(any(p.buffers, r).type, 5, r); }},
      {"buffer role", [](auto& p, auto& r) { anyEnum(any(p.buffers, r).role, 4, r); }},
      {"buffer region", [](auto& p, auto& r) { any(p.buffers, r).region = anyId<RegionId>(p.regions, r); }},
      {"buffer name", [](auto& p, auto& r) { any(p.buffers, r).name = any(p.buffers, r).name; }},
      {"region stride", changeStride},
      {"region extent", [](auto& p, auto& r) { anyEnum(any(p.regions, r).extent, 4, r); }},
      {"region symmetric", [](auto& p, auto& r) { any(p.regions, r).symmetric ^= true; }},
      {"region saved", [](auto& p, auto& r) { any(p.regions, r).saved ^= true; }},
      {"slot size", [](auto& p, auto& r) { anyNumber(any(p.spaces, r).slotSize, r); }},
      {"window", [](auto& p, auto& r) { anyNumber(any(p.spaces, r).window, r); }},
      {"space kind", [](auto& p, auto& r) { anyEnum(any(p.spaces, r).kind, 5, r); }},
      {"entry ids", [](auto& p, auto& r) { any(p.entries, r).expertIds = anyId<BufferId>(p.buffers, r); }},
      {"entry routing", [](auto& p, auto& r) { any(p.entries, r).routing = anyId<EntryId>(p.entries, r); }},
      {"own routing", [](auto& p, auto&) { p.entries[1] = {"backward", p.entries[0].expertIds, {}}; }},
      {"swapped entries", [](auto& p, auto&) { std::swap(p.entries[0], p.entries[1]); }},
      {"limit", changeLimit},
  };
}

std::vector<Mutation> subtleMutations() {
  return {
      {"waits of a family", changeWait},
      {"signals of a family",
       [](auto& p, auto& r) {
         const FamilyId family = realFamily(p, r);
         TaskRecord links = linksOf(p, family);
         removeLink(links.signals, r);
         setLinks(p, family, links);
       }},
      {"added event", addEvent},
      {"added producer", addProducer},
      {"other tiles", changeTiles},
      {"shared region", shareRegion},
      {"split region", splitRegion},
      {"merged lanes", mergeLanes},
      {"operand", changeOperand},
  };
}

}  // namespace sluice
