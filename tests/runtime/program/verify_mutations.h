// Ways to damage a program, for the mutation test of verify().
#pragma once

#include <functional>
#include <random>
#include <vector>

#include "runtime/program/program.h"

namespace sluice {

using Random = std::mt19937_64;

// One class of damage. Some kinds are blunt (a field gets any value), some keep the program consistent
// around the damage, so that only the property in question is at stake. A mutation may change nothing.
struct Mutation {
  const char* name;
  std::function<void(TaskProgram&, Random&)> apply;
};

std::vector<Mutation> recordMutations();  // task records, and the lanes they stand in
std::vector<Mutation> tableMutations();   // events, families, buffers, regions, spaces, entries, limits
std::vector<Mutation> subtleMutations();  // consistent around the damage

}  // namespace sluice
