// The work and the time of one task on a core of a device, from the tiling of its family and the rates of the
// device.
//
//   seconds = product + vector work + memory that the two do not hide + cost of a task
//
// Value types and free functions of values.
#pragma once

#include <cstdint>

#include "runtime/cost/rates.h"
#include "runtime/program/program.h"
#include "runtime/routing/routing.h"

namespace sluice {

// Rates of one of `cores` cores that are all busy.
struct TaskRates {
  TaskRates(const Rates& rates, int32_t cores);
  // With the memory to itself, but for a core's own limits.
  explicit TaskRates(const Rates& rates);
  const Rates& all;  // outlives this
  double read = 0;   // bytes per second
  double write = 0;
};

struct TaskCost {
  double product = 0;  // seconds of each part
  double vector = 0;
  double memory = 0;  // the part that the product does not hide
  double task = 0;
  double read = 0;  // bytes from and to the memory that all cores share
  double written = 0;
  double seconds() const { return product + vector + memory + task; }
};

// Seconds of one product of that shape alone, everything in cache.
double productSeconds(const MatrixRates& matrix, const ProductRate& rate, double m, double n, double k);

// The rows that a family works on: those that it reads first. None if it moves only a number of each.
BufferId rowsRead(const Family& family);
// Bytes of a number of a buffer; 2 if that is none.
double elementBytes(const TaskProgram& program, BufferId id);

// The time of a task of `family` of `program` with that many rows; `reuse` consecutive tasks read the same
// weight.
TaskCost taskCost(const TaskProgram& program, const Family& family, double rows, double reuse,
                  const TaskRates& rates);

// The amount of work that each task of a slot has.
struct SlotWork {
  double rows = 0;   // or tokens
  double reuse = 1;  // consecutive tasks that read the same weight
};

// Returns the work of slot `index` of `space`, in which a slot has `slotSize` tokens if it is one of tokens.
SlotWork slotWork(const RoutingTables& tables, SpaceKind space, int64_t index, int32_t slotSize);

}  // namespace sluice
