// Discrete-event simulation of one entry at all ranks: the plan, tables, lane cursors, events and thresholds
// of the executors; no kernels, no memory of tensors, and a clock from the rates of a device.
//
// All ranks begin at time 0, with the tables made and the events 0. At each moment all tasks and messages
// that end at it take effect, then each worker without a task takes the first ready head of its lanes, as a
// thread of runtime/cpu does. docs/SIMULATOR.md has the formulas, and what they leave out.
//
// Free functions of values; any thread. The same build gives the same result for the same input.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/base/expected.h"
#include "runtime/cost/rates.h"
#include "runtime/exec/plan.h"
#include "runtime/routing/routing.h"
#include "runtime/sim/sim_result.h"

namespace sluice {

struct SimOptions {
  int workers = 0;     // per rank; worker w serves the cores c with c mod workers == w. 0: one per core
  bool spans = false;  // record SimResult::traces
};

// `tables` has the tables of the entry, one per rank. Every simulation ends: each task runs once at most.
// Errors: an entry that takes longer than kMaxSimTime; no memory; tables of ranks that do not belong
// together, so that tasks wait for rows that nobody sends: the message is as for a wait that fails
// (runtime/exec/report.h).
Expected<SimResult> simulateEntry(const Plan& plan, EntryId entry, std::span<const RoutingTables> tables,
                                  const Rates& rates, const SimOptions& options = {});

// The same for one rank that stands for all: every rank sends as it does, so what it sends is what arrives at
// it. The pieces of `tables.sends` are numbered by its own slots, and `tables.returned` are the rows of
// `tables.returns`. Its result has one rank.
Expected<SimResult> simulateOneForAll(const Plan& plan, EntryId entry, int rank, const RoutingTables& tables,
                                      const Rates& rates, const SimOptions& options = {});

}  // namespace sluice
