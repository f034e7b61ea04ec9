// Mutations that add families which come late and write where others have read, consistent around it.
#include <algorithm>
#include <string>
#include <utility>

#include "runtime/program/op_table.h"
#include "tests/runtime/program/verify_mutation_tools.h"
#include "tests/runtime/program/verify_mutations.h"

namespace sluice {
namespace {

// One more family in a lane of its own.
void addFamily(TaskProgram& p, Family family) {
  Lane lane{family.name, family.entry, family.space, family.core, 9, 0, {}};
  const FamilyId id{static_cast<uint32_t>(p.families.size())};
  lane.seats.resize(static_cast<size_t>(std::max(p.coreCount(family.core), 1)));
  for (int32_t slot = 0; slot < p.at(family.space).window; ++slot) {
    lane.seats[slot % lane.seats.size()].push_back({id, static_cast<uint32_t>(slot), 0});
  }
  p.families.push_back(std::move(family));
  p.lanes.push_back(std::move(lane));
}

// A new buffer of rows that lies where some other temporary one does; none where other damage left no such.
BufferId addSharedRows(TaskProgram& p, Random& random, int64_t columns, bool symmetric) {
  const auto size = static_cast<int64_t>(p.buffers.size());
  RegionId region;
  for (int64_t i = below(random, size), end = i + size; i < end && !region; ++i) {
    const Buffer& other = p.buffers[i % size];
    if (other.role == Role::kTemp && other.shape[0].extent == Extent::kRows) region = other.region;
  }
  if (region.value >= p.regions.size()) return {};
  Region& shared = p.regions[region.value];
  shared.stride = std::max(shared.stride, (columns * 2 + 63) / 64 * 64);
  shared.symmetric = shared.symmetric || symmetric;
  p.buffers.push_back({"late_" + std::to_string(size),
                       DType::kBF16,
                       {{Extent::kRows, 0}, {Extent::kFixed, columns}},
                       Role::kTemp,
                       region});
  return BufferId{static_cast<uint32_t>(size)};
}

// An activation that waits for up to two events and overwrites what lay in the region of its output.
void addLateRows(TaskProgram& p, Random& random) {
  const FamilyId activation = familyOf(p, EntryId{0}, OpKind::kActivation, SpaceKind::kRows, 0);
  if (!activation) return;
  const Family& model = p.at(activation);
  Family late = model;
  late.name = "late_" + std::to_string(p.families.size());
  late.entry = EntryId{static_cast<uint32_t>(below(random, 3) > 0)};
  const BufferId act = addSharedRows(p, random, model.tiling.n, false);
  if (!act) return;
  late.writes = {act};
  late.waits = {realEvent(p, late.entry, random), realEvent(p, late.entry, random)};
  late.signals = {};
  if (below(random, 4) == 0) late.waits.pop_back();
  addFamily(p, late);
}

// A second dispatch in backward that waits until weight gradients are done at its own rank, and an
// activation after it, so that its arrivals are waited for.
void addLateDispatch(TaskProgram& p, Random& random) {
  const FamilyId dispatch = familyOf(p, EntryId{0}, OpKind::kDispatch, SpaceKind::kSends, 0);
  const FamilyId activation = familyOf(p, EntryId{0}, OpKind::kActivation, SpaceKind::kRows, 0);
  const FamilyId first = familyOf(p, EntryId{1}, OpKind::kGmmWeightGrad, SpaceKind::kExperts, 0);
  const FamilyId second = familyOf(p, EntryId{1}, OpKind::kGmmWeightGrad, SpaceKind::kExperts, 1);
  if (!dispatch || !activation || !first || !second) return;
  const BufferId act = findBuffer(p.at(activation), &Operands::act);
  // other damage came before
  if (act.value >= p.buffers.size() || p.at(act).region.value >= p.regions.size()) return;
  Family late = p.at(dispatch);
  const BufferId rows = operandBuffer(late, &Operands::rows) = addSharedRows(p, random, late.tiling.n, true);
  if (!rows) return;
  const auto one = [&](FamilyId producer) {
    p.events.push_back(
        {"late_done", EntryId{1}, EventSpace::kOne, EventUnit::kTasks, ThresholdRule::kConstant, 0, false});
    countAllExperts(p, p.events.back(), p.at(producer).tiles);
    const EventId id{static_cast<uint32_t>(p.events.size() - 1)};
    setSecond(p.families[producer.value].signals, id);
    return id;
  };
  late.name = "late_" + std::to_string(p.families.size());
  late.entry = EntryId{1};
  late.waits = {one(first)};
  if (below(random, 4) > 0) late.waits.push_back(one(second));
  p.events.push_back(
      {"late_arrived", EntryId{1}, EventSpace::kRows, EventUnit::kRows, ThresholdRule::kRowsOfSlot, 0, true});
  late.signals = {EventId{static_cast<uint32_t>(p.events.size() - 1)}};
  addFamily(p, late);

  Family reader = p.at(activation);
  reader.name = "late_" + std::to_string(p.families.size());
  reader.entry = EntryId{1};
  p.regions.push_back(p.regions[p.buffers[act.value].region.value]);
  p.regions.back().saved = false;
  p.buffers.push_back(p.at(act));
  p.buffers.back().name = reader.name;
  p.buffers.back().role = Role::kTemp;
  p.buffers.back().region = RegionId{static_cast<uint32_t>(p.regions.size() - 1)};
  reader.writes = {BufferId{static_cast<uint32_t>(p.buffers.size() - 1)}};
  reader.waits = late.signals;
  reader.signals = {};
  addFamily(p, reader);
}

}  // namespace

std::vector<Mutation> lateMutations() {
  return {{"late rows", addLateRows}, {"late dispatch", addLateDispatch}};
}

}  // namespace sluice
