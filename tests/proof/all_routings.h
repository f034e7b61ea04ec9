// Every routing of a small program.
#pragma once

#include <functional>
#include <vector>

#include "runtime/program/program.h"
#include "tests/runtime/program/verify_oracle_routing.h"

namespace sluice {

// Visits all of them: every number of tokens up to `maxTokens` at each rank, each token with every set of up
// to top_k experts. (Which k an expert has changes nothing but which element of [T, K] belongs to a pair: it
// is its place in the set.) Slots have at most `slotRows` rows; slots and pieces are numbered at random. Ends
// early where `visit` returns false. Returns the number visited.
int64_t forEachRouting(const TaskProgram& program, int maxTokens, int slotRows, uint64_t seed,
                       const std::function<bool(const std::vector<OracleRank>&)>& visit);

}  // namespace sluice
