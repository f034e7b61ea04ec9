#include "compiler/report/program_draft.h"

namespace sluice {

Draft draftOfProgram(const TaskProgram& program) {
  Draft draft{program, std::vector<Sync>(program.families.size())};
  std::vector<bool> known(program.families.size());
  for (const Lane& lane : program.lanes)
    for (const std::vector<TaskRecord>& seat : lane.seats)
      for (const TaskRecord& record : seat) {
        if (known[record.family.value]) continue;
        known[record.family.value] = true;
        Sync& sync = draft.sync[record.family.value];
        for (EventId wait : record.waits)
          if (wait) sync.waits.push_back(wait);
        for (EventId signal : record.signals)
          if (signal) sync.signals.push_back(signal);
      }
  return draft;
}

}  // namespace sluice
