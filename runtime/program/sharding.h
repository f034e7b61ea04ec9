// Sharding: what a rank has of each tensor where tp ranks share the experts, and what every op makes of it.
//
// A product over a sharded dimension gives a term of a sum over the tp ranks of a group, a partial tensor;
// products with tensors that all ranks have whole keep it partial, and the sum of a combine adds the terms.
// Functions between two products need all terms. With tp = 1 everything is whole.
//
// Pure functions.
#pragma once

#include <vector>

#include "runtime/base/expected.h"
#include "runtime/program/program.h"

namespace sluice {

// The shardings of what the family writes, by operand, from the shardings of what it reads. Errors: operands
// whose shardings do not fit; the message names the operand and the family that wrote it.
Expected<std::vector<Sharding>> deriveShardings(const TaskProgram& program, const Family& family);

// Errors: the caller gets or gives a tensor of tokens that is not whole; a part of a tensor whose dimension
// `sharding` does not have.
Status checkSharding(const Buffer& buffer);

}  // namespace sluice
