// What makes a mutant of a valid program right, on the real executors.
//
// Right is, where a mutant says the same data flow as the program it comes from, the bits of that; where it
// says another (other operands, factors, activations), what the evaluator in double precision computes. Free
// functions on values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/program/program.h"
#include "tests/proof/random_steps.h"

namespace sluice {

// Valid programs of all kinds, small.
std::vector<TaskProgram> mutantBases();

// Whether `program` computes all that `base` does in the same way; it may have families and buffers more.
bool saysTheSame(const TaskProgram& program, const TaskProgram& base);

// The steps that escape() runs.
std::vector<RandomStep> mutantSteps(const TaskProgram& program, uint64_t seed);

StepsRun runParallel(const TaskProgram& program, std::vector<RandomStep>& steps);

// The output that is farthest from what the evaluator computes, and by how much, or "" where none is far.
std::string wrongOutput(const TaskProgram& program, const std::vector<RandomStep>& steps);

// What goes wrong with a mutant that verify() accepts when some steps are run, or "".
std::string escape(const TaskProgram& mutant, const TaskProgram& base, uint64_t seed);

}  // namespace sluice
