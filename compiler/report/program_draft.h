// The draft of a finished program: what its records say of waits and signals, by family. Free function.
#pragma once

#include "compiler/analysis/draft.h"

namespace sluice {

// `program` passed verify(): all records of a family say the same.
Draft draftOfProgram(const TaskProgram& program);

}  // namespace sluice
