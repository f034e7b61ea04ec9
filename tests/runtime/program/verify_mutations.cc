#include "tests/runtime/program/verify_mutations.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "tests/runtime/program/verify_mutation_tools.h"

namespace sluice {
namespace {

std::vector<TaskRecord>& anySeat(TaskProgram& p, Random& random) {
  for (int tries = 0; tries < 100; ++tries) {
    auto& seat = any(any(p.lanes, random).seats, random);
    if (!seat.empty()) return seat;
  }
  return any(any(p.lanes, random).seats, random);
}

TaskRecord& anyRecord(TaskProgram& p, Random& random) { return any(anySeat(p, random), random); }

FamilyId anyFamily(TaskProgram& p, Random& random) { return anyId<FamilyId>(p.families, random); }

void changeLink(TaskProgram& p, Random& random) {
  Family& family = any(p.families, random);
  auto& links = below(random, 2) == 0 ? family.waits : family.signals;
  const EventId id = anyId<EventId>(p.events, random);
  switch (below(random, 4)) {
    case 0:
      std::reverse(links.begin(), links.end());
      break;
    case 1:
      dropLast(links);
      break;
    case 2:
      links.push_back(id);
      break;
    default:
      links.resize(std::max<size_t>(links.size(), 1));
      any(links, random) = id;
      break;
  }
}

void swapRecords(TaskProgram& p, Random& random) {
  auto& seat = anySeat(p, random);
  std::swap(any(seat, random), any(seat, random));
}

void moveRecord(TaskProgram& p, Random& random) {
  auto& from = anySeat(p, random);
  if (from.empty()) return;
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

void changeTiling(TaskProgram& p, Random& random) {
  Tiling& t = any(p.families, random).tiling;
  int32_t* fields[] = {&t.m, &t.n, &t.k, &t.tileM, &t.tileN};
  const auto which = below(random, 11);
  if (which == 5)
    t.activation = static_cast<ActivationKind>(below(random, static_cast<int64_t>(ActivationKind::MAX) + 2));
  else if (which == 6)
    t.alpha = below(random, 2) == 0 ? 0.5f : std::numeric_limits<float>::quiet_NaN();
  else if (which == 7)
    t.flags ^= 1u << below(random, 4);
  else if (which == 8)
    t.limit = {static_cast<uint16_t>(below(random, 1 << 16))};
  else if (which == 9)
    t.roundA = static_cast<Rounding>(below(random, static_cast<int64_t>(Rounding::MAX) + 2));
  else if (which == 10)
    t.roundB = static_cast<Rounding>(below(random, static_cast<int64_t>(Rounding::MAX) + 2));
  else
    anyNumber(*fields[which], random);
}

void changeShape(TaskProgram& p, Random& random) {
  Buffer& buffer = any(p.buffers, random);
  switch (below(random, 4)) {
    case 0:
      anyEnum(any(buffer.shape, random).extent, 5, random);
      break;
    case 1:
      dropLast(buffer.shape);
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
  int32_t* limits[] = {&p.mesh.ep, &p.experts, &p.topK, &p.maxTokens, &p.cores, &p.cubeCores, &p.vectorCores};
  anyNumber(*limits[below(random, 7)], random);
}

// Strides stay small enough for the oracle to allocate.
void changeOffset(int64_t& offset, Random& random) {
  if (below(random, 2) == 0)
    offset += 64 * (below(random, 7) - 2);
  else
    anyNumber(offset, random);
}

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
      {"slot of a record",
       [](auto& p, auto& r) { anyRecord(p, r).slot = static_cast<uint32_t>(below(r, 8)); }},
      {"tile of a record",
       [](auto& p, auto& r) { anyRecord(p, r).tile = static_cast<uint32_t>(below(r, 8)); }},
      {"huge tile",
       [](auto& p, auto& r) { anyRecord(p, r).tile = ~uint32_t{0} - static_cast<uint32_t>(below(r, 2)); }},
      {"family of a record", [](auto& p, auto& r) { anyRecord(p, r).family = anyFamily(p, r); }},
      {"swapped records", swapRecords},
      {"missing record", [](auto& p, auto& r) { dropLast(anySeat(p, r)); }},
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
      {"missing seat", [](auto& p, auto& r) { dropLast(any(p.lanes, r).seats); }},
      {"added seat", [](auto& p, auto& r) { any(p.lanes, r).seats.emplace_back(); }},
      {"missing lane",
       [](auto& p, auto& r) {
         if (p.lanes.empty()) return;
         p.lanes.erase(p.lanes.begin() + below(r, static_cast<int64_t>(p.lanes.size())));
       }},
      {"rotation",
       [](auto& p, auto& r) { any(p.lanes, r).rotation = static_cast<int32_t>(below(r, 6) - 1); }},
      {"priority", [](auto& p, auto& r) { anyNumber(any(p.lanes, r).priority, r); }},
      {"entry of a lane", [](auto& p, auto& r) { any(p.lanes, r).entry = anyId<EntryId>(p.entries, r); }},
      {"space of a lane", [](auto& p, auto& r) { any(p.lanes, r).space = anyId<SpaceId>(p.spaces, r); }},
      {"core of a lane", [](auto& p, auto& r) { anyEnum(any(p.lanes, r).core, 3, r); }},
      {"first core",
       [](auto& p, auto& r) { any(p.lanes, r).firstCore = static_cast<int32_t>(below(r, 7) - 1); }},
  };
}

std::vector<Mutation> tableMutations() {
  return {
      {"threshold factor", [](auto& p, auto& r) { anyNumber(any(p.events, r).factor, r); }},
      {"threshold rule", [](auto& p, auto& r) { anyEnum(any(p.events, r).rule, 9, r); }},
      {"event space", [](auto& p, auto& r) { anyEnum(any(p.events, r).space, 5, r); }},
      {"event unit", [](auto& p, auto& r) { anyEnum(any(p.events, r).unit, 2, r); }},
      {"event remote", [](auto& p, auto& r) { any(p.events, r).remote ^= true; }},
      {"event entry", [](auto& p, auto& r) { any(p.events, r).entry = anyId<EntryId>(p.entries, r); }},
      {"family links", changeLink},
      {"family space", [](auto& p, auto& r) { any(p.families, r).space = anyId<SpaceId>(p.spaces, r); }},
      {"family tiles", [](auto& p, auto& r) { anyNumber(any(p.families, r).tiles, r); }},
      {"family tiling", changeTiling},
      {"family entry", [](auto& p, auto& r) { any(p.families, r).entry = anyId<EntryId>(p.entries, r); }},
      {"family core", [](auto& p, auto& r) { anyEnum(any(p.families, r).core, 3, r); }},
      {"family op", [](auto& p, auto& r) { anyEnum(any(p.families, r).op, 11, r); }},
      {"missing operand", [](auto& p, auto& r) { dropLast(any(p.families, r).reads); }},
      {"buffer shape", changeShape},
      {"buffer type", [](auto& p, auto& r) { anyEnum(any(p.buffers, r).type, 5, r); }},
      {"buffer role", [](auto& p, auto& r) { anyEnum(any(p.buffers, r).role, 4, r); }},
      {"buffer region", [](auto& p, auto& r) { any(p.buffers, r).region = anyId<RegionId>(p.regions, r); }},
      {"buffer offset", [](auto& p, auto& r) { changeOffset(any(p.buffers, r).offset, r); }},
      {"buffer name", [](auto& p, auto& r) { any(p.buffers, r).name = any(p.buffers, r).name; }},
      {"region stride", changeStride},
      {"region extent", [](auto& p, auto& r) { anyEnum(any(p.regions, r).extent, 5, r); }},
      {"region symmetric", [](auto& p, auto& r) { any(p.regions, r).symmetric ^= true; }},
      {"region saved", [](auto& p, auto& r) { any(p.regions, r).saved ^= true; }},
      {"slot size", [](auto& p, auto& r) { anyNumber(any(p.spaces, r).slotSize, r); }},
      {"window", [](auto& p, auto& r) { anyNumber(any(p.spaces, r).window, r); }},
      {"space kind", [](auto& p, auto& r) { anyEnum(any(p.spaces, r).kind, 7, r); }},
      {"entry ids", [](auto& p, auto& r) { any(p.entries, r).expertIds = anyId<BufferId>(p.buffers, r); }},
      {"entry routing", [](auto& p, auto& r) { any(p.entries, r).routing = anyId<EntryId>(p.entries, r); }},
      {"placement", [](auto& p, auto& r) { any(p.entries, r).placement = anyId<BufferId>(p.buffers, r); }},
      {"spare", [](auto& p, auto& r) { p.spare = static_cast<int32_t>(r() % 4) - 1; }},
      {"own routing", [](auto& p, auto&) { p.entries[1] = {"backward", p.entries[0].expertIds, {}}; }},
      {"swapped entries", [](auto& p, auto&) { std::swap(p.entries[0], p.entries[1]); }},
      {"limit", changeLimit},
  };
}

}  // namespace sluice
