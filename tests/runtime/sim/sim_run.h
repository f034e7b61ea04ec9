// Simulations for tests: rates whose times can be computed by hand, and steps of any routing.
#pragma once

#include <vector>

#include "runtime/sim/bind_all.h"
#include "runtime/sim/simulate.h"

namespace sluice {

// Nothing takes time.
Rates freeRates();

// By rank: T and the expert ids [T,K].
struct TestRouting {
  int64_t tokens = 0;
  std::vector<int32_t> ids;
};

// Other numbers of tokens at each of at most 3 ranks, masked pairs, and only experts 0, 1 and 3; K is 2.
std::vector<TestRouting> raggedRouting(int ranks);

Plan planOf(const TaskProgram& program);

// The routing of the entries of `plan` that use that of `entry`.
Expected<BoundRouting> bindIds(const Plan& plan, const std::vector<TestRouting>& ranks,
                               EntryId entry = EntryId{0});

// Fails the test where there is an error.
SimResult simulate(const Plan& plan, EntryId entry, const std::vector<TestRouting>& ranks, const Rates& rates,
                   const SimOptions& options = {});

}  // namespace sluice
