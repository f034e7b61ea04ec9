// The report of a wait that took too long: rank, core, task, event, have and need, what is missing.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "runtime/exec/step.h"

namespace sluice {

// `core` is its name (text::coreName); `isDone` says whether a task of this rank has run. Example:
//   rank 2, core 5: waited 30 s for event rows_arrived[12] (96 of 128 rows) before task up_proj[12,0];
//   missing: 32 rows from rank 3
std::string describeWait(const Step& step, const Task& task, std::string_view core, double seconds,
                         const std::function<bool(const Task&)>& isDone);

// "up_proj[12,0]": family, slot, tile.
std::string taskName(const Step& step, const Task& task);

}  // namespace sluice
