#include "runtime/exec/plan.h"

#include <algorithm>

#include "runtime/program/op_table.h"
#include "runtime/program/space_table.h"

namespace sluice {
namespace {

template <class T>
void addOnce(std::vector<T>& list, T value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

}  // namespace

Plan Plan::make(VerifiedProgram program) {
  Plan plan(std::move(program));
  const TaskProgram& p = plan.program();
  plan.shape_ = {p.mesh, p.experts, p.topK, 1};
  if (const Space* rows = plan.space(SpaceKind::kRows)) plan.shape_.slotRows = rows->slotSize;
  if (const Space* groups = plan.space(SpaceKind::kGroups))
    plan.shape_.groupSlots = groups->slotSize / plan.shape_.slotRows;
  if (const Space* tokens = plan.space(SpaceKind::kTokens)) plan.shape_.tokenSlot = tokens->slotSize;
  plan.deriveFamilies();
  plan.deriveEntries();
  plan.deriveSavedFor();
  return plan;
}

const Space* Plan::space(SpaceKind kind) const { return findSpace(program(), kind); }

int64_t Plan::maxExtent(Extent extent) const { return largestExtent(program(), extent); }

int64_t Plan::maxEvents(EventSpace space) const {
  switch (space) {
    case EventSpace::kOne:
      return 1;
    case EventSpace::kExperts:
      return program().maxExperts();
    case EventSpace::kRows:
      return maxExtent(Extent::kRows) / shape_.slotRows + program().maxExperts();
    case EventSpace::kGroups:
      return shape_.groupSlots == 0
                 ? 0
                 : maxEvents(EventSpace::kRows) / shape_.groupSlots + program().maxExperts();
    case EventSpace::kTokens: {
      const Space* tokens = this->space(SpaceKind::kTokens);
      return tokens ? (program().maxTokens + tokens->slotSize - 1) / tokens->slotSize : 0;
    }
  }
  return 0;
}

void Plan::deriveFamilies() {
  const TaskProgram& p = program();
  families_.resize(p.families.size());
  for (size_t f = 0; f < p.families.size(); ++f) {
    families_[f].space = p.at(p.families[f].space).kind;
    families_[f].operands = findOperands(p.families[f]);
  }
  for (uint32_t lane = 0; lane < p.lanes.size(); ++lane)
    for (const auto& seat : p.lanes[lane].seats)
      for (const TaskRecord& record : seat) families_[record.family.value].lane = LaneId{lane};
}

void Plan::deriveEntries() {
  const TaskProgram& p = program();
  entries_.resize(p.entries.size());
  for (uint32_t lane = 0; lane < p.lanes.size(); ++lane)
    entries_[p.lanes[lane].entry.value].lanes.push_back(LaneId{lane});

  std::vector<EntryId> writer(p.buffers.size());
  for (uint32_t f = 0; f < p.families.size(); ++f) {
    const Family& family = p.families[f];
    EntryPlan& entry = entries_[family.entry.value];
    entry.families.push_back(FamilyId{f});
    for (BufferId id : family.reads)
      if (id && p.at(id).role == Role::kInput) addOnce(entry.reads, id);
    for (BufferId id : family.writes) {
      if (!id) continue;
      writer[id.value] = family.entry;
      if (p.at(id).role != Role::kOutput) continue;
      if (!p.at(id).region) addOnce(entry.writes, id);
      if (p.at(id).region && !isRemote(at(FamilyId{f}).space)) addOnce(entry.rowWrites, id);
    }
  }
  for (uint32_t e = 0; e < p.entries.size(); ++e) {
    EntryPlan& entry = entries_[e];
    const Entry& source = p.entries[e];
    entry.ownLast = takesOwnLast(p, EntryId{e});
    entry.routing = source.routes() ? EntryId{e} : source.routing;
    entry.tables = entry.ownLast == entries_[entry.routing.value].ownLast ? entry.routing : EntryId{e};
    for (const BufferId id : {source.expertIds, source.placement})
      if (id) addOnce(entry.reads, id);
    if (entry.routing != EntryId{e}) addOnce(entry.savedFrom, entry.routing);
    std::stable_sort(entry.lanes.begin(), entry.lanes.end(),
                     [&](LaneId a, LaneId b) { return p.at(a).priority < p.at(b).priority; });
    std::stable_sort(entry.families.begin(), entry.families.end(), [&](FamilyId a, FamilyId b) {
      return verified_.order()[a.value] < verified_.order()[b.value];
    });
    for (FamilyId f : entry.families)
      for (BufferId id : p.at(f).reads)
        if (id && p.at(id).role == Role::kSaved && writer[id.value] != EntryId{e})
          addOnce(entry.savedFrom, writer[id.value]);
  }
}

void Plan::deriveSavedFor() {
  for (EntryPlan& entry : entries_) {
    std::vector<bool> uses(entries_.size());
    uses[static_cast<size_t>(&entry - entries_.data())] = true;
    for (size_t round = 0; round < entries_.size(); ++round)
      for (uint32_t e = 0; e < entries_.size(); ++e) {
        const auto& from = entries_[e].savedFrom;
        if (uses[e] || std::none_of(from.begin(), from.end(), [&](EntryId id) { return uses[id.value]; }))
          continue;
        uses[e] = true;
        entry.savedFor.push_back(EntryId{e});
      }
  }
}

}  // namespace sluice
