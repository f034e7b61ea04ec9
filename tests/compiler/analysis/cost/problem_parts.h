// Parts of the cost problems that tests make by hand. Header only; free functions on values.
#pragma once

#include <utility>

#include "compiler/analysis/cost/cost.h"

namespace sluice {

// A task that scales `rows` rows of one element takes as many seconds, products take what their operations
// take, and nothing else takes time, unless a test says so.
inline Rates secondsByRow(double productFlops) {
  Rates rates;
  rates.matrix.gmm.flops = rates.matrix.gmmTransposed.flops = rates.matrix.weightGrad.flops = productFlops;
  rates.vector = {1, 1, 1e30, 1};
  rates.memory = {1e30, 1e30, 1e30, 1e30, 0, 0};
  rates.caches = {1e30, 1e30, 1e30};
  rates.link = {1e30, 0};
  return rates;
}

inline EventId addEvent(CostProblem& problem, EventSpace space, bool remote = false) {
  EventArray event;
  event.entry = EntryId{0};
  event.space = space;
  event.remote = remote;
  problem.events.push_back(event);
  return EventId{static_cast<uint32_t>(problem.events.size() - 1)};
}

inline CostFamily family(SpaceKind space, Sync sync, OpKind op = OpKind::kScale) {
  CostFamily out;
  out.name = "f";
  out.op = op;
  out.space = space;
  out.n = 1;
  out.sync = std::move(sync);
  return out;
}

}  // namespace sluice
