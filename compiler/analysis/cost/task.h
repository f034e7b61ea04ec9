// The time of one task. Part of the cost model; see cost.h.
//
// Value types and a free function.
#pragma once

#include "compiler/analysis/cost/cost.h"

namespace sluice {

// Rates of one core while all cores are busy.
struct TaskRates {
  TaskRates(const Rates& rates, int32_t cores);
  const Rates& all;  // outlives this
  double read = 0;   // bytes per second
  double write = 0;
};

struct TaskCost {
  double product = 0;  // seconds of each part
  double vector = 0;
  double memory = 0;  // the part that the product does not hide
  double task = 0;
  double seconds() const { return product + vector + memory + task; }
};

// Bytes of a number of an operand of `family`; 2 if it has none.
double elementBytes(const TaskProgram& program, const Family& family, size_t operand = 0);

// The time of a task of `family` of `program` with that many rows; `reuse` consecutive tasks read the same
// weight.
TaskCost taskCost(const TaskProgram& program, const Family& family, double rows, double reuse,
                  const TaskRates& rates);

}  // namespace sluice
