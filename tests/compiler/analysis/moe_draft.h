// The program of docs/SCHEDULE.md as a draft: its events as syncs of its families, without lanes.
#pragma once

#include "compiler/analysis/draft.h"
#include "tests/testing/moe_program.h"

namespace sluice {

inline Draft moeDraft(const MoeShape& shape = {}) {
  Draft draft{buildMoeProgram(shape), {}};
  draft.sync.resize(draft.program.families.size());
  for (const Lane& lane : draft.program.lanes) {
    const TaskRecord& record = lane.seats.front().front();
    Sync& sync = draft.sync[record.family.value];
    for (EventId wait : record.waits)
      if (wait) sync.waits.push_back(wait);
    for (EventId signal : record.signals)
      if (signal) sync.signals.push_back(signal);
  }
  return draft;
}

inline FamilyId familyNamed(const TaskProgram& program, uint32_t entry, std::string_view name) {
  for (uint32_t f = 0; f < program.families.size(); ++f)
    if (program.families[f].entry.value == entry && program.families[f].name == name) return FamilyId{f};
  return {};
}

}  // namespace sluice
