#include "runtime/cost/task_cost.h"

#include <algorithm>
#include <cmath>

#include "runtime/program/op_table.h"
#include "runtime/program/space_table.h"
#include "runtime/routing/rows.h"

namespace sluice {
namespace {

constexpr double kBf16 = 2;
constexpr double kF32 = 4;

// Times that b is packed.
double passesOver(const MatrixRates& matrix, double rows) {
  return matrix.rowBlock > 0 ? std::ceil(rows / matrix.rowBlock) : 1;
}

double tileLength(double length, double tile) {
  return tile <= 0 || length <= tile ? length : length / std::ceil(length / tile);
}

// Bytes read from and written to memory, and bytes beyond the core's own cache.
struct Traffic {
  double read = 0;
  double written = 0;
  double spilled = 0;
};

// Sums of a block of rows wait for the next block of the sum in the core's cache, or are spilled from it.
double spilledBytes(const Rates& rates, double rows, double columns, double k, double ofRows = kBf16) {
  const MatrixRates& matrix = rates.matrix;
  if (matrix.sumBlock <= 0 || k <= matrix.sumBlock) return 0;
  const double block = matrix.rowBlock > 0 ? std::min(rows, matrix.rowBlock) : rows;
  const double kept = block * columns * kF32 + block * matrix.sumBlock * ofRows;
  if (kept <= rates.caches.core) return 0;
  return 2 * rows * columns * kF32 * std::ceil(k / matrix.sumBlock);
}

// The bytes by which a read is charged: a tile of a wider matrix is read in short runs, each of which takes
// as long as a longer one.
double inRuns(const Rates& rates, double bytes, double run, bool isWhole) {
  return isWhole ? bytes : bytes * (1 + rates.memory.halfRun / run);
}

// A weight that stays in the last cache is read from memory by the first of its slots, and from the cache by
// the others. Rows that do not fit half of the core's cache beside the weight's columns are read again for
// each tile.
Traffic gmmTraffic(const TaskProgram& program, const Family& family, double rows, double columns,
                   double width, double reuse, const Rates& rates) {
  Traffic traffic;
  const double ofRows = elementBytes(program, rowsRead(family)),
               ofWeight = elementBytes(program, findBuffer(family, &Operands::b));
  const double weight = columns * family.tiling.k * ofWeight, whole = width * family.tiling.k * ofWeight;
  const double a = rows * family.tiling.k * ofRows, tiles = std::max(1.0, width / columns);
  const double first = 2 * whole <= rates.caches.shared ? 1 / reuse : 1;
  const bool isWhole =
      isTransposed(family.op, family.tiling) || tiles <= 1;  // a transposed weight has the sum in its rows
  traffic.read = inRuns(rates, weight * first, columns * ofWeight, isWhole) + a / tiles;
  if (whole > rates.caches.core) traffic.spilled += weight * (1 - first);
  if (a + weight > rates.caches.core / 2) traffic.spilled += a * (1 - 1 / tiles);
  traffic.spilled += spilledBytes(rates, rows, columns, family.tiling.k, ofRows);
  return traffic;
}

// What rounding the factors of a product takes: each task packs what it reads.
double roundingSeconds(const Tiling& tiling, double ofA, double ofB, const VectorRates& rates) {
  const double numbers =
      (tiling.roundA == Rounding::kNone ? 0 : ofA) + (tiling.roundB == Rounding::kNone ? 0 : ofB);
  return numbers > 0 ? numbers / rates.round : 0;
}

// Units multiply codes by codes twice as fast as bf16 numbers.
constexpr double kCodesSpeed = 2;

void addGmm(const TaskProgram& program, const Family& family, double rows, double columns, double width,
            double reuse, const Rates& rates, TaskCost& cost, Traffic& traffic) {
  const MatrixRates& matrix = rates.matrix;
  cost.product =
      productSeconds(matrix, isTransposed(family.op, family.tiling) ? matrix.gmmTransposed : matrix.gmm, rows,
                     columns, family.tiling.k);
  if (const BufferId rows = rowsRead(family); rows && isCodes(program.at(rows).type))
    cost.product /= kCodesSpeed;
  const double k = family.tiling.k, passes = passesOver(matrix, rows);
  cost.product += roundingSeconds(family.tiling, rows * k, passes * columns * k, rates.vector);
  traffic = gmmTraffic(program, family, rows, columns, width, reuse, rates);
}

// Each element of a gradient is written once; the rows are read by all tiles of the expert, and only once
// from memory if the last cache holds them.
Traffic weightGradTraffic(const Family& family, double rows, double m, double n, double resultBytes,
                          const Rates& rates) {
  Traffic traffic;
  const double result = m * n * resultBytes;
  traffic.written = result;
  traffic.read = accumulates(family) ? result : 0;
  const double all = rows * (family.tiling.m + family.tiling.n) * kBf16, mine = rows * (m + n) * kBf16;
  const double tiles = std::max(1.0, double(family.tiling.m) / m * family.tiling.n / n);
  const double first = 2 * all <= rates.caches.shared ? all / tiles : mine;
  traffic.read += std::min(first, mine);
  traffic.read = inRuns(rates, traffic.read, n * kBf16, n >= family.tiling.n);
  if (all > rates.caches.core) traffic.spilled = mine - std::min(first, mine);
  traffic.spilled += spilledBytes(rates, m, n, rows);
  return traffic;
}

}  // namespace

TaskRates::TaskRates(const Rates& rates, int32_t cores)
    : all(rates),
      read(std::min(rates.memory.coreRead, rates.memory.sharedRead / cores)),
      write(std::min(rates.memory.coreWrite, rates.memory.sharedWrite / cores)) {}

TaskRates::TaskRates(const Rates& rates)
    : all(rates), read(rates.memory.coreRead), write(rates.memory.coreWrite) {}

BufferId rowsRead(const Family& family) { return family.reads.empty() ? BufferId{} : family.reads.front(); }

double elementBytes(const TaskProgram& program, BufferId id) {
  return id ? numberBytes(program.at(id).type) : kBf16;
}

double productSeconds(const MatrixRates& matrix, const ProductRate& rate, double m, double n, double k) {
  const double rows = std::ceil(m / matrix.rowUnit) * matrix.rowUnit;
  const double columns = std::ceil(n / matrix.columnUnit) * matrix.columnUnit;
  const double passes = passesOver(matrix, rows);
  return 2 / rate.flops *
         (rows * columns * k + rate.halfRows * columns * k * passes + rate.halfColumns * rows * k +
          rate.halfSum * rows * columns);
}

namespace {

double vectorSeconds(const Family& family, double elements, const VectorRates& rates) {
  const OpInfo& op = findInfo(family.op);
  switch (op.vector) {
    case VectorWork::kActivation:
      return elements / rates.activation;
    case VectorWork::kActivationGrad:
      return elements / rates.activationGrad +
             (findBuffer(family, &Operands::weightedAct) ? elements / rates.copy : 0);
    case VectorWork::kWeightedSum:
      return elements * std::max(1, family.tiling.k) / rates.sum;
    default:
      return elements * (op.element.copies / rates.copy + op.element.sums / rates.sum);
  }
}

}  // namespace

TaskCost taskCost(const TaskProgram& program, const Family& family, double rows, double reuse,
                  const TaskRates& rates) {
  const Rates& all = rates.all;
  const double n = family.tiling.n;
  TaskCost cost;
  Traffic traffic;
  cost.task = all.task;
  const OpInfo& op = findInfo(family.op);
  const double columns = op.usesTileN() ? tileLength(n, family.tiling.tileN) : n;
  if (const int32_t parts = weightParts(family.op, family.tiling); parts > 0) {
    addGmm(program, family, rows, parts * columns, parts * n, reuse, all, cost, traffic);
  } else if (op.isSum()) {
    const double m = tileLength(family.tiling.m, family.tiling.tileM);
    cost.product =
        productSeconds(all.matrix, all.matrix.weightGrad, m, columns, rows) +
        roundingSeconds(family.tiling, m * rows, passesOver(all.matrix, m) * columns * rows, all.vector);
    traffic = weightGradTraffic(family, rows, m, columns,
                                elementBytes(program, findBuffer(family, &Operands::c)), all);
  } else if (op.vector == VectorWork::kNone) {
    const BufferId moved = rowsRead(family);  // none: a number of each
    traffic.read = traffic.written = rows * (moved ? n * elementBytes(program, moved) : kF32);
  }
  // the rows that it adds have arrived, or were written by other cores
  if (op.vector == VectorWork::kWeightedSum)
    traffic.read = rows * columns * family.tiling.k * elementBytes(program, rowsRead(family));
  // rates are of bf16, and what an element takes is in proportion to its bytes
  const double elements = rows * columns * elementBytes(program, rowsRead(family)) / kBf16;
  cost.vector = vectorSeconds(family, elements, all.vector);
  cost.read = traffic.read;
  cost.written = traffic.written;
  const double reading =
      traffic.read / rates.read + (traffic.spilled > 0 ? traffic.spilled / all.caches.coreSpill : 0);
  const double writing = traffic.written / rates.write;
  cost.memory = std::max(0.0, reading - all.memory.overlap * (cost.product + cost.vector)) +
                std::max(0.0, writing - all.memory.writeOverlap * cost.product);
  return cost;
}

SlotWork slotWork(const RoutingTables& tables, SpaceKind space, int64_t index, int32_t slotSize) {
  const RowRange range = findRows(tables, space, index, slotSize);
  const double rows = range.rows;
  if (isRemote(space)) return {rows, 1};
  if (findInfo(space).dense) return {rows, double(liveSlots(tables, space))};
  if (findInfo(space).sums) return {rows, 1};
  const double slots = tables.expertSlots[static_cast<size_t>(range.expert)];
  if (space != SpaceKind::kGroups) return {rows, slots};
  return {rows, std::max(1.0, slots / tables.groups[static_cast<size_t>(index)].slots)};
}

}  // namespace sluice
