#include "compiler/analysis/cost/cost.h"

#include <algorithm>
#include <cmath>

#include "runtime/cost/task_cost.h"
#include "runtime/program/op_table.h"
#include "runtime/program/space_table.h"

namespace sluice {
namespace {

// The slots of one expert with that many rows, as bind cuts them: equal, and as few as the size allows.
double countSlots(double rows, int32_t slotRows) { return rows > 0 ? std::ceil(rows / slotRows) : 0; }

// Tasks of a family that take the same time.
struct Batch {
  double tasks = 0;
  double rows = 0;   // of one task
  double reuse = 1;  // tasks that read the same weight one after the other
};

// The tasks for an expert with that many rows.
double slotsOfExpert(const CostProblem& problem, SpaceKind space, double rows) {
  if (findInfo(space).sums) return 1;
  const int32_t slotRows = problem.slotSize(SpaceKind::kRows);
  const double slots = countSlots(rows, slotRows);
  if (space != SpaceKind::kGroups) return slots;
  // as few groups of whole slots as the size allows, equal to within one slot
  return std::ceil(slots / std::max(1, problem.slotSize(SpaceKind::kGroups) / slotRows));
}

// How many ranks a row goes to.
double countCopies(const CostProblem& problem, SpaceKind space) {
  return space == SpaceKind::kReturns ? problem.program.mesh.returnsTo(0).count : 1;
}

// Each border between two ranks cuts a slot once more.
double countPieces(const CostProblem& problem, const ExpectedRows& rows) {
  const double borders = problem.program.mesh.sources() - 1;
  double pieces = 0;
  for (const ExpertGroup& group : rows.groups)
    pieces += group.experts *
              std::min(std::ceil(group.rows), slotsOfExpert(problem, SpaceKind::kRows, group.rows) + borders);
  return pieces;
}

std::vector<Batch> listBatches(const CostProblem& problem, const Family& family, const ExpectedRows& rows) {
  const SpaceKind space = problem.familySpace(family);
  const double tiles = static_cast<double>(countTiles(family));
  std::vector<Batch> batches;
  if (isRemote(space)) {
    const double pieces = countPieces(problem, rows);
    if (pieces > 0) batches.push_back({pieces * countCopies(problem, space), rows.rows / pieces, 1});
  } else if (findInfo(space).dense) {
    const double tokens = problem.program.maxTokens;
    const double slots = findInfo(space).sums ? 1 : countSlots(tokens, problem.slotSize(space));
    if (slots > 0) batches.push_back({slots * tiles, tokens / slots, slots});
  } else {
    for (const ExpertGroup& group : rows.groups)
      if (const double slots = slotsOfExpert(problem, space, group.rows); slots > 0)
        batches.push_back({group.experts * slots * tiles, group.rows / slots, slots});
  }
  return batches;
}

FamilyCost familyCost(const CostProblem& problem, const Family& family, const TaskRates& rates,
                      const ExpectedRows& rows) {
  FamilyCost cost;
  for (const Batch& batch : listBatches(problem, family, rows)) {
    const TaskCost task = taskCost(problem.program, family, batch.rows, batch.reuse, rates);
    cost.tasks += batch.tasks;
    cost.longest = std::max(cost.longest, task.seconds());
    cost.seconds += batch.tasks * task.seconds();
    cost.product += batch.tasks * task.product;
    cost.memory += batch.tasks * task.memory;
  }
  if (isRemote(problem.familySpace(family))) {
    const double sources = problem.program.mesh.sources(),
                 copies = countCopies(problem, problem.familySpace(family));
    cost.link = rows.rows * (copies - 1 / sources) * family.tiling.n *
                elementBytes(problem.program, rowsRead(family));
  }
  return cost;
}

// The time that an uneven deal adds. The deal continues across slots and windows, so that cores differ by one
// task of a family, the same cores in every family; or by the extra time of the longest task.
double uneven(const FamilyCost& cost, double cores) {
  if (cost.tasks <= 0) return 0;
  const double mean = cost.seconds / cost.tasks;
  return std::max((std::ceil(cost.tasks / cores) - cost.tasks / cores) * mean,
                  (cost.longest - mean) * (1 - 1 / cores));
}

// The time that an unexpected routing adds: some core is then late by a part of a task.
double doubt(const FamilyCost& cost, double cores) { return cost.longest * (1 - 1 / cores) / 8; }

// The idle time at the end of a chain: only about two of its last slots are left at a time, and they keep at
// most as many cores busy as they have tiles.
double chainEnd(const Family& family, SpaceKind space, const FamilyCost& cost, double cores) {
  if (space != SpaceKind::kRows && space != SpaceKind::kGroups && space != SpaceKind::kReturns) return 0;
  return cost.longest *
         std::max(0.0, 1 - std::min(cost.tasks, 2 * static_cast<double>(countTiles(family))) / cores);
}

// Cores that run the same families, but for limits on those that send and return: all cores if they are
// unified; else the cube cores, the vector cores, or the vector cores that only communicate.
std::vector<int32_t> listPools(const CostProblem& problem) {
  const TaskProgram& program = problem.program;
  if (program.cubeCores == 0) return {program.cores};
  std::vector<int32_t> pools = {program.cubeCores, program.vectorCores - problem.communication.reserved};
  if (problem.communication.reserved > 0) pools.push_back(problem.communication.reserved);
  return pools;
}

size_t findPool(const std::vector<int32_t>& pools, const CostProblem& problem, const Family& family) {
  if (pools.size() == 1 || family.core == CoreKind::kCube) return 0;
  return isRemote(problem.familySpace(family)) ? pools.size() - 1 : 1;
}

// The time of the cores of a pool in an entry, in seconds summed over the cores.
struct PoolCost {
  double busy = 0;
  double few = 0;    // of sends and returns that only some of its cores share
  double rest = 0;   // added by the uneven deal
  double chain = 0;  // ends of chains
  double fill = 0;   // weight gradients, which fill the gaps of the chains
};

double entryCost(const CostProblem& problem, uint32_t entry, const Rates& rates,
                 const std::vector<FamilyCost>& families) {
  const std::vector<int32_t> pools = listPools(problem);
  std::vector<PoolCost> costs(pools.size());
  double link = 0;
  for (size_t f = 0; f < families.size(); ++f) {
    const Family& family = problem.program.families[f];
    if (family.entry.value != entry) continue;
    const size_t pool = findPool(pools, problem, family);
    const double all = pools[pool], cores = coreCount(problem, family);
    costs[pool].busy += families[f].seconds / all;
    if (cores < all) costs[pool].few += families[f].seconds / cores;
    costs[pool].rest += uneven(families[f], cores) + doubt(families[f], cores);
    costs[pool].chain += chainEnd(family, problem.familySpace(family), families[f], cores);
    link += families[f].link;
    if (findInfo(problem.familySpace(family)).sums) costs[pool].fill += families[f].seconds / cores;
  }
  PoolCost most;
  double chain = 0;
  for (const PoolCost& cost : costs) {
    most.busy = std::max({most.busy, cost.busy, cost.few});
    most.rest = std::max(most.rest, cost.rest);
    chain += std::max(0.0, cost.chain - cost.fill);
  }
  const double latency = link > 0 ? 2 * rates.link.latency : 0;
  return std::max(most.busy, link / rates.link.bandwidth) + most.rest + chain + latency;
}

}  // namespace

int32_t CostProblem::slotSize(SpaceKind space) const {
  const Space* found = findSpace(program, space);
  return found == nullptr ? 0 : found->slotSize;
}

StepShape CostProblem::step() const {
  return {program.mesh, program.experts, program.topK, program.maxTokens};
}

int32_t coreCount(const CostProblem& problem, const Family& family) {
  return coresFor(problem.program, family, problem.communication).count;
}

int64_t countTiles(const Family& family) {
  return std::max<int64_t>(1, countTiles(family.op, family.tiling));
}

LayerCost computeCost(const CostProblem& problem, const Rates& rates, const ExpectedRows& rows) {
  const TaskProgram& program = problem.program;
  LayerCost cost;
  for (const Family& family : program.families)
    cost.families.push_back(
        familyCost(problem, family, TaskRates(rates, std::max(1, program.coreCount(family.core))), rows));
  for (uint32_t entry = 0; entry < program.entries.size(); ++entry) {
    cost.entries.push_back(entryCost(problem, entry, rates, cost.families));
    cost.seconds += cost.entries.back();
  }
  for (const FamilyCost& family : cost.families) cost.busy += family.seconds;
  cost.busy /= std::max(1, program.cubeCores > 0 ? program.cubeCores + program.vectorCores : program.cores);
  return cost;
}

}  // namespace sluice
