#include "compiler/analysis/cost/cost.h"

#include <algorithm>
#include <cmath>

#include "compiler/analysis/cost/task.h"
#include "compiler/analysis/events.h"
#include "runtime/program/op_table.h"
#include "runtime/program/space_table.h"

namespace sluice {
namespace {

// Slots of one expert with that many rows, as bind cuts them: equal, and as few as the size allows.
double slotsOf(double rows, int32_t slotRows) { return rows > 0 ? std::ceil(rows / slotRows) : 0; }

// Tasks of a family that are alike.
struct Batch {
  double tasks = 0;
  double rows = 0;   // of one task
  double reuse = 1;  // tasks that read the same weight one after the other
};

std::vector<Batch> batchesOf(const CostProblem& problem, const CostFamily& family, const ExpectedRows& rows) {
  const double tiles = static_cast<double>(tilesOf(family));
  const double tokens = static_cast<double>(problem.step.tokens);
  std::vector<Batch> batches;
  switch (family.space) {
    case SpaceKind::kGroups:  // as few groups of whole slots as the size allows, equal to a slot
      for (const ExpertGroup& group : rows.groups)
        if (const double slots = slotsOf(group.rows, problem.slotRows); slots > 0) {
          const double groups = std::ceil(slots / std::max(1, problem.groupRows / problem.slotRows));
          batches.push_back({group.experts * groups * tiles, group.rows / groups, groups});
        }
      break;
    case SpaceKind::kRows:
      for (const ExpertGroup& group : rows.groups)
        if (const double slots = slotsOf(group.rows, problem.slotRows); slots > 0)
          batches.push_back({group.experts * slots * tiles, group.rows / slots, slots});
      break;
    case SpaceKind::kSends:
    case SpaceKind::kReturns: {
      // Each border between two ranks cuts a slot once more.
      double pieces = 0;
      for (const ExpertGroup& group : rows.groups)
        pieces +=
            group.experts * std::min(std::ceil(group.rows), slotsOf(group.rows, problem.slotRows) +
                                                                static_cast<double>(problem.step.ranks - 1));
      if (pieces > 0) batches.push_back({pieces, rows.rows / pieces, 1});
      break;
    }
    case SpaceKind::kTokens:
      if (const double slots = slotsOf(tokens, problem.tokenSlot); slots > 0)
        batches.push_back({slots * tiles, tokens / slots, slots});
      break;
    case SpaceKind::kExperts:
      for (const ExpertGroup& group : rows.groups) batches.push_back({group.experts * tiles, group.rows, 1});
      break;
    case SpaceKind::kOnce:
      batches.push_back({tiles, tokens, 1});
      break;
  }
  return batches;
}

FamilyCost familyCost(const CostProblem& problem, const CostFamily& family, const TaskRates& rates,
                      const ExpectedRows& rows) {
  FamilyCost cost;
  for (const Batch& batch : batchesOf(problem, family, rows)) {
    const TaskCost task = taskCost(family, batch.rows, batch.reuse, rates);
    cost.tasks += batch.tasks;
    cost.longest = std::max(cost.longest, task.seconds());
    cost.seconds += batch.tasks * task.seconds();
    cost.product += batch.tasks * task.product;
    cost.memory += batch.tasks * task.memory;
  }
  if (isRemote(family.space)) {
    const double ranks = static_cast<double>(problem.step.ranks);
    cost.link = rows.rows * (ranks - 1) / ranks * family.n * 2;
  }
  return cost;
}

// The deal goes on over slots and windows, so that cores differ by one task of a family, the same cores in
// every family; or by what the longest task takes more than the others.
double uneven(const FamilyCost& cost, double cores) {
  if (cost.tasks <= 0) return 0;
  const double mean = cost.seconds / cost.tasks;
  return std::max((std::ceil(cost.tasks / cores) - cost.tasks / cores) * mean,
                  (cost.longest - mean) * (1 - 1 / cores));
}

// Routing is never quite what is expected: some core is then late by a part of a task.
double doubt(const FamilyCost& cost, double cores) { return cost.longest * (1 - 1 / cores) / 8; }

// At the end of a chain its last slots are alone, about two at a time: a step of them keeps as many cores
// busy as they have tiles.
double chainEnd(const CostFamily& family, const FamilyCost& cost, double cores) {
  if (family.space != SpaceKind::kRows && family.space != SpaceKind::kGroups &&
      family.space != SpaceKind::kReturns)
    return 0;
  return cost.longest *
         std::max(0.0, 1 - std::min(cost.tasks, 2 * static_cast<double>(tilesOf(family))) / cores);
}

// What the cores of a pool do in an entry, in seconds of all of them.
struct PoolCost {
  double busy = 0;
  double rest = 0;   // of the deal
  double chain = 0;  // ends of chains
  double fill = 0;   // weight gradients, which fill the gaps of the chains
};

double entryCost(const CostProblem& problem, uint32_t entry, const Rates& rates,
                 const std::vector<FamilyCost>& families) {
  const std::vector<CorePool> pools = poolsOf(problem);
  std::vector<PoolCost> costs(pools.size());
  double link = 0;
  for (size_t f = 0; f < families.size(); ++f) {
    const CostFamily& family = problem.families[f];
    if (family.entry != entry) continue;
    const size_t pool = poolOf(pools, family);
    const double cores = pools[pool].cores;
    costs[pool].busy += families[f].seconds / cores;
    costs[pool].rest += uneven(families[f], cores) + doubt(families[f], cores);
    costs[pool].chain += chainEnd(family, families[f], cores);
    link += families[f].link;
    if (infoOf(family.space).sums) costs[pool].fill += families[f].seconds / cores;
  }
  PoolCost most;
  double chain = 0;
  for (const PoolCost& cost : costs) {
    most.busy = std::max(most.busy, cost.busy);
    most.rest = std::max(most.rest, cost.rest);
    chain += std::max(0.0, cost.chain - cost.fill);
  }
  const double latency = link > 0 ? 2 * rates.link.latency : 0;
  return std::max(most.busy, link / rates.link.bandwidth) + most.rest + chain + latency;
}

// As insert-events does it. What it cannot join is reported there.
void addEvents(const TaskProgram& program, CostProblem& problem) {
  Analyzed<TaskProgram> planned = planEvents(program);
  auto* plan = std::get_if<TaskProgram>(&planned);
  if (plan == nullptr) return;
  problem.events = std::move(plan->events);
  for (size_t f = 0; f < problem.families.size(); ++f)
    problem.families[f].sync = {plan->families[f].waits, plan->families[f].signals};
}

}  // namespace

CostProblem costProblemOf(const TaskProgram& program) {
  CostProblem problem;
  problem.step = {program.ranks, program.experts, program.topK, program.maxTokens};
  problem.cores = program.cores;
  problem.cubeCores = program.cubeCores;
  problem.vectorCores = program.vectorCores;
  for (const Space& space : program.spaces) {
    if (space.kind == SpaceKind::kRows) problem.slotRows = space.slotSize;
    if (space.kind == SpaceKind::kTokens) problem.tokenSlot = space.slotSize;
    if (space.kind == SpaceKind::kGroups) problem.groupRows = space.slotSize;
  }
  for (const Entry& entry : program.entries) problem.entries.push_back(entry.name);
  for (const Family& family : program.families) {
    CostFamily out;
    static_cast<Tiling&>(out) = family.tiling;
    out.name = family.name;
    out.entry = family.entry.value;
    out.op = family.op;
    out.space = program.at(family.space).kind;
    out.core = family.core;
    out.wholeRows = needsWholeRows(family);
    if (infoOf(family.op).isSum() && has(family.writes, 0))
      out.resultBytes = static_cast<int32_t>(dtypeBytes(program.at(family.writes[0]).type));
    problem.families.push_back(std::move(out));
  }
  addEvents(program, problem);
  return problem;
}

std::vector<CorePool> poolsOf(const CostProblem& problem) {
  if (problem.cubeCores == 0) return {{CoreKind::kUnified, false, problem.cores}};
  std::vector<CorePool> pools = {
      {CoreKind::kCube, false, problem.cubeCores},
      {CoreKind::kVector, false, problem.vectorCores - problem.communicationCores}};
  if (problem.communicationCores > 0) pools.push_back({CoreKind::kVector, true, problem.communicationCores});
  return pools;
}

size_t poolOf(const std::vector<CorePool>& pools, const CostFamily& family) {
  if (pools.size() == 1) return 0;
  if (family.core == CoreKind::kCube) return 0;
  return isRemote(family.space) ? pools.size() - 1 : 1;
}

int32_t coresOfKind(const CostProblem& problem, const CostFamily& family) {
  if (problem.cubeCores == 0) return std::max(1, problem.cores);
  return std::max(1, family.core == CoreKind::kCube ? problem.cubeCores : problem.vectorCores);
}

int64_t tilesOf(const CostFamily& family) { return std::max<int64_t>(1, tilesOf(family.op, family)); }

void cutBy(const CostSizes& sizes, CostProblem& problem) {
  problem.slotRows = sizes.slotRows;
  problem.tokenSlot = sizes.tokenSlot;
  for (CostFamily& family : problem.families) cutTiles(family.op, family.wholeRows, sizes.tiles, family);
}

LayerCost costOf(const CostProblem& problem, const Rates& rates, const ExpectedRows& rows) {
  LayerCost cost;
  for (const CostFamily& family : problem.families)
    cost.families.push_back(
        familyCost(problem, family, TaskRates(rates, coresOfKind(problem, family)), rows));
  for (uint32_t entry = 0; entry < problem.entries.size(); ++entry) {
    cost.entries.push_back(entryCost(problem, entry, rates, cost.families));
    cost.seconds += cost.entries.back();
  }
  for (const FamilyCost& family : cost.families) cost.busy += family.seconds;
  cost.busy /= std::max(1, problem.cubeCores > 0 ? problem.cubeCores + problem.vectorCores : problem.cores);
  return cost;
}

}  // namespace sluice
