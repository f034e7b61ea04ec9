// One task of a step as text: rows, operands, what it waits for and who adds to that, what it signals and who
// waits for it, its place in a lane, its work and its predicted time.
//
// Free functions of values.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/expected.h"
#include "runtime/cost/rates.h"
#include "tools/explain/task_links.h"

namespace sluice::tools {

// The family NAME and, in "NAME[SLOT,TILE]" or "NAME[SLOT]", the slot and tile of which the text is; without
// them slot 0 and tile 0. ENTRY/NAME is a family of that entry, and needed if several entries have the name.
struct TaskQuery {
  std::string entry;  // empty: any
  std::string family;
  int64_t slot = 0;
  int32_t tile = 0;
};

// Error: not of that form.
Expected<TaskQuery> parseTaskQuery(std::string_view text);

// Errors: a family that does not exist (with those that do), or that several entries have.
Expected<FamilyId> findFamily(const TaskProgram& program, const TaskQuery& query);

// Errors: a slot or a tile that the family does not have in this step (found, expected). `rates` are the
// rates of the target named `target`; null: no time is predicted.
Expected<std::string> explainTask(const AllSteps& steps, int rank, FamilyId family, const TaskQuery& query,
                                  const Rates* rates, const std::string& target);

}  // namespace sluice::tools
