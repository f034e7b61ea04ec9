// From the `task` dialect to plain values: the draft that analyses work on, and the finished program.
//
// Both expect IR that passed the verifiers of the dialect; names that lead nowhere are a broken promise.
#pragma once

#include "compiler/analysis/draft.h"
#include "compiler/dialect/task.h"

namespace sluice {

// What the program says so far, in the order of the IR. Records that are not there yet are empty. A family's
// waits and signals also stand in the records of its lanes.
Draft draftOf(task::ProgramOp program);

// The complete program. verify() decides whether it may run.
inline TaskProgram emitProgram(task::ProgramOp program) { return draftOf(program).program; }

}  // namespace sluice
