// Reports of failed waits: rank, core, task, event, have and need, and what is missing.
//
// Made after a step has failed, or just before; never while tasks run.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "runtime/exec/step.h"
#include "runtime/exec/trace_span.h"

namespace sluice {

// Whether a task of this rank has run.
using IsDone = std::function<bool(const Task&)>;

// `core` is its name (text::coreName). Example:
//   rank 2, core 5: waited 30 s for event rows_arrived[12] (96 of 128 rows) before task up_proj[12,0];
//   missing: 32 rows from rank 3
std::string describeWait(const Step& step, const Task& task, std::string_view core, double seconds,
                         const IsDone& isDone);

// The same for a wait that cannot succeed, because rank `left` left without sending what is missing:
//   rank 3 left while rank 2, core 5 was still waiting for event rows_arrived[12] (96 of 128 rows) before ...
std::string describeLeft(const Step& step, const Task& task, std::string_view core, int left,
                         const IsDone& isDone);

// The message of an aborted step. If a rank was lost and `task` is a waiting task, it includes the event that
// this rank was waiting for:
//   rank 3 (process 4711) has died; rank 2, core 5: was waiting for event rows_arrived[12] (96 of ...
std::string describeAbort(const Step& step, const Task* task, std::string_view core, const IsDone& isDone);

// The task as the next one of its core, which counts from the first of the task's lane.
NextTask nextTask(const Step& step, const Task& task, int core, const IsDone& isDone);

// A rank that has left but owes rows to an event for which the task waits, or -1.
int rankThatLeftOwing(const Step& step, const Task& task);

// Whether the task waits for an event that other ranks signal.
bool waitsForRanks(const Step& step, const Task& task);

// "up_proj[12,0]": family, slot, tile.
std::string taskName(const Step& step, const Task& task);

}  // namespace sluice
