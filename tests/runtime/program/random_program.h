// Programs for tests of the file and text forms: a small one written by hand and random ones.
#pragma once

#include <cstdint>

#include "runtime/program/program.h"

namespace sluice {

// Two entries, every kind of record, every optional field given and left out. Means nothing; never changes,
// since the golden file holds it.
TaskProgram smallProgram();

// As smallProgram(), of ranks that own different numbers of experts: it uses what format 1.3 added.
TaskProgram raggedProgram();

// The same with what format 1.4 added: an activation in its field of the tiling.
TaskProgram activationProgram();

// The same with what format 1.5 added: ranks that share experts, and what they have of tensors.
TaskProgram shardedProgram();

// The same with what format 1.7 added: spare places of experts.
TaskProgram placedProgram();
// With codes: an element type, an op and operands of 1.8.
TaskProgram codesProgram();

// The same with what format 1.9 added: roundings of factors.
TaskProgram roundedProgram();

// What format 1.12 added: a weight of 8-bit floats.
TaskProgram floatWeightsProgram();

// What format 1.13 added: scales that are powers of two.
TaskProgram powersProgram();

// What format 1.14 added: scales that are 8-bit floats, and their factor.
TaskProgram factorProgram();

// What format 1.15 added: scales of 16 bits, whose zeros are codes.
TaskProgram sixteenBitsProgram();

// Fields filled at random with anything that the file can hold: odd names (empty, equal, keywords, quotes,
// control bytes), ids of nothing, extreme numbers. The seed says which; the same on every machine.
TaskProgram randomProgram(uint32_t seed);

}  // namespace sluice
