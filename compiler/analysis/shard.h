// What each rank has of every tensor of a program where ranks share experts, from what it has of the inputs.
#pragma once

#include "runtime/base/expected.h"
#include "runtime/program/program.h"

namespace sluice {

// Fills the shardings of what families write; families stand after those that write what they read. With
// tp = 1 all tensors are whole. Errors, at the node: operands that do not fit (runtime/program/sharding.h);
// an output of tokens that is not whole.
Expected<TaskProgram> shardTensors(TaskProgram program);

}  // namespace sluice
