#include "tests/testing/program_builder.h"

namespace sluice {
namespace {

template <class IdType, class T>
IdType append(std::vector<T>& table, T value) {
  table.push_back(std::move(value));
  return IdType{static_cast<uint32_t>(table.size() - 1)};
}

// Rows of 64 bytes and more begin on a cache line.
int64_t strideFor(int64_t rowBytes) { return rowBytes < 64 ? rowBytes : (rowBytes + 63) / 64 * 64; }

}  // namespace

SpaceId ProgramBuilder::space(const char* name, SpaceKind kind, int slotSize, int window) {
  return append<SpaceId>(program.spaces, Space{name, kind, slotSize, window});
}

void ProgramBuilder::beginEntry(const char* name, BufferId expertIds, EntryId routing) {
  entry = append<EntryId>(program.entries, Entry{name, expertIds, routing});
}

RegionId ProgramBuilder::region(const char* name, Extent extent, int64_t rowBytes, bool symmetric,
                                bool saved) {
  return append<RegionId>(program.regions, Region{name, extent, strideFor(rowBytes), symmetric, saved});
}

BufferId ProgramBuilder::buffer(const char* name, DType type, std::vector<Dim> shape, Role role,
                                RegionId region) {
  return append<BufferId>(program.buffers, Buffer{name, type, std::move(shape), role, region});
}

BufferId ProgramBuilder::own(const char* name, DType type, std::vector<Dim> shape, Role role,
                             bool symmetric) {
  int64_t bytes = dtypeBytes(type);
  for (size_t i = 1; i < shape.size(); ++i) bytes *= shape[i].size;
  const RegionId place = region(name, shape.front().extent, bytes, symmetric, role == Role::kSaved);
  return buffer(name, type, std::move(shape), role, place);
}

EventId ProgramBuilder::event(const char* name, EventSpace space, EventUnit unit, ThresholdRule rule,
                              int64_t factor, bool remote) {
  return append<EventId>(program.events, EventArray{name, entry, space, unit, rule, factor, remote});
}

EventId ProgramBuilder::rowsArrived() {
  return event("rows_arrived", EventSpace::kRows, EventUnit::kRows, ThresholdRule::kRowsOfSlot, 0, true);
}

EventId ProgramBuilder::expertRows() {
  return event("expert_rows", EventSpace::kExperts, EventUnit::kRows, ThresholdRule::kRowsOfExpert, 0, true);
}

EventId ProgramBuilder::allReturned() {
  return event("returned", EventSpace::kOne, EventUnit::kRows, ThresholdRule::kValidPairs, 0, true);
}

EventId ProgramBuilder::done(const char* name, EventSpace space, int64_t tiles) {
  return event(name, space, EventUnit::kTasks, ThresholdRule::kConstant, tiles, false);
}

EventId ProgramBuilder::expertDone(const char* name, int64_t tiles) {
  return event(name, EventSpace::kExperts, EventUnit::kTasks, ThresholdRule::kSlotsOfExpert, tiles, false);
}

EventId ProgramBuilder::allTokens(const char* name, int64_t tiles) {
  return event(name, EventSpace::kOne, EventUnit::kTasks, ThresholdRule::kSlotsOfTokens, tiles, false);
}

EventId ProgramBuilder::allExperts(const char* name, int64_t tiles) {
  const bool differ = program.expertsDiffer();
  return event(name, EventSpace::kOne, EventUnit::kTasks,
               differ ? ThresholdRule::kExpertsOfRank : ThresholdRule::kConstant,
               differ ? tiles : tiles * program.maxExperts(), false);
}

void ProgramBuilder::family(FamilySpec spec) {
  const auto given = [](const std::array<EventId, 2>& ids) {
    std::vector<EventId> list;
    for (EventId id : ids)
      if (id) list.push_back(id);
    return list;
  };
  const FamilyId id = append<FamilyId>(
      program.families,
      Family{spec.name, "", entry, spec.op, CoreKind::kUnified, spec.space, spec.tiles, spec.tiling,
             std::move(spec.reads), std::move(spec.writes), given(spec.waits), given(spec.signals)});
  const int64_t tasks = int64_t{program.at(spec.space).window} * spec.tiles;
  Lane lane{spec.name, entry, spec.space, CoreKind::kUnified, spec.priority, 0, {}};
  lane.rotation = static_cast<int32_t>(tasks % program.cores);
  lane.seats.resize(program.cores);
  for (int64_t task = 0; task < tasks; ++task) {
    const auto slot = static_cast<uint32_t>(task / spec.tiles);
    const auto tile = static_cast<uint32_t>(task % spec.tiles);
    lane.seats[task % program.cores].push_back({id, slot, tile});
  }
  program.lanes.push_back(std::move(lane));
}

}  // namespace sluice
