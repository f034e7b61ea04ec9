// The report of a wait that was in vain: rank, core, task, event, have and need, what is missing.
//
// Made when a step has failed, or is about to; never while tasks run.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "runtime/exec/step.h"

namespace sluice {

// Whether a task of this rank has run.
using IsDone = std::function<bool(const Task&)>;

// `core` is its name (text::coreName). Example:
//   rank 2, core 5: waited 30 s for event rows_arrived[12] (96 of 128 rows) before task up_proj[12,0];
//   missing: 32 rows from rank 3
std::string describeWait(const Step& step, const Task& task, std::string_view core, double seconds,
                         const IsDone& isDone);

// The same of a wait that need not go on, since rank `left` has ended without sending what is missing:
//   rank 2, core 5: rank 3 has left, in vain waited for event rows_arrived[12] (96 of 128 rows) before ...
std::string describeLeft(const Step& step, const Task& task, std::string_view core, int left,
                         const IsDone& isDone);

// The message of a step that was aborted. Where a rank was lost, with what this rank waited for, if `task`
// is one that waits:
//   rank 3 (process 4711) has died; rank 2, core 5: was waiting for event rows_arrived[12] (96 of ...
std::string describeAbort(const Step& step, const Task* task, std::string_view core, const IsDone& isDone);

// A rank that has left and owes rows to an event the task waits for, or -1.
int leftDebtor(const Step& step, const Task& task);

// The task waits for an event that other ranks signal.
bool waitsForRanks(const Step& step, const Task& task);

// "up_proj[12,0]": family, slot, tile.
std::string taskName(const Step& step, const Task& task);

}  // namespace sluice
