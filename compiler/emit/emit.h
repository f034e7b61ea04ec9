// From the `task` dialect to plain values: the program that analyses work on, until it is finished.
//
// Expects IR that passed the verifiers of the dialect; names that lead nowhere are a broken promise.
#pragma once

#include "compiler/dialect/task.h"
#include "runtime/program/program.h"

namespace sluice {

// What the program says so far, in the order of the IR; what is not there yet is empty. verify() decides
// whether the complete program may run.
TaskProgram emitProgram(task::ProgramOp program);

}  // namespace sluice
