#include "compiler/analysis/reference_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "compiler/graph/json_tree.h"

namespace sluice {
namespace {

// What is known of a parameter slot while the nodes of an entry are gone through.
struct SlotState {
  uint32_t producer = 0;
  std::optional<int64_t> splitDim;
};

bool isAllToAll(GraphOp op) { return op == GraphOp::kDispatch || op == GraphOp::kCombine; }
bool isProduct(GraphOp op) { return op == GraphOp::kGmm || op == GraphOp::kGmmWeightGrad; }

class EntryPlanner {
 public:
  EntryPlanner(const Graph& graph, const GraphEntry& entry, const ReferenceSizes& sizes,
               const ReferenceOptions& options, int64_t tasksBefore)
      : graph_(graph), entry_(entry), sizes_(sizes), options_(options), taskCount_(tasksBefore) {}

  // 1. Nodes in topological order: what they wait for, whether they are split, how many tasks they have.
  // 2. The queue of each kind of core: the tasks of its nodes in order, where two nodes that take turns count
  // as one.
  Expected<PlannedEntry> run() {
    planned_.name = entry_.name;
    for (const GraphNode& node : entry_.nodes) {
      if (node.op == GraphOp::kRoute) continue;  // happens outside of the reference's plan
      if (Status added = addNode(node); !added) return added.error();
    }
    planned_.cube = {CoreKind::kCube, options_.cubeCores, {}};
    planned_.vector = {CoreKind::kVector, options_.vectorCores, {}};
    fillQueue(planned_.cube);
    fillQueue(planned_.vector);
    planned_.terminates = std::ranges::any_of(
        planned_.nodes, [](const PlannedNode& node) { return node.op == GraphOp::kGmmWeightGrad; });
    if (planned_.terminates) planned_.vector.tasks.push_back({});
    return std::move(planned_);
  }

 private:
  Error fail(const GraphNode& node, const std::string& message) const {
    return errorAt(graph_.file, node.pos, fmt::format("node '{}' {}", node.name, message));
  }

  Status addNode(const GraphNode& node) {
    if (!node.reference) return fail(node, "says nothing of the reference plan, expected 'reference'");
    const ReferencePlan& reference = *node.reference;
    if (reference.core.empty()) return fail(node, "has no 'core' in its reference, expected cube or vector");
    PlannedNode planned;
    planned.name = node.name;
    planned.alias = node.alias;
    planned.op = node.op;
    planned.inputs = reference.inputs;
    planned.outputs = reference.outputs;
    planned.tiling = reference.tiling;
    if (reference.core == "vector") planned.core = CoreKind::kVector;
    if (Status found = findWaits(node, planned); !found) return found;
    if (reference.split)
      if (Status cut = split(node, *reference.split, planned); !cut) return cut;
    if (Status written = writeSlots(node, planned); !written) return written;
    taskCount_ += planned.tasks();
    if (planned.tasks() > kMaxPlannedTasks || taskCount_ > kMaxPlannedTasks)
      return fail(node, fmt::format("has {} tasks, expected at most {} in a plan", planned.tasks(),
                                    kMaxPlannedTasks));
    planned_.nodes.push_back(std::move(planned));
    return {};
  }

  // What a split node writes is split on its dimension.
  Status writeSlots(const GraphNode& node, const PlannedNode& planned) {
    SlotState state{static_cast<uint32_t>(planned_.nodes.size()), std::nullopt};
    if (planned.split) state.splitDim = node.reference->split->dim.value_or(0);
    for (const auto& [name, slot] : planned.outputs)
      if (const auto [it, isNew] = slots_.emplace(slot, state); !isNew)
        return fail(node, fmt::format("writes parameter slot {}, which node '{}' writes already", slot,
                                      it->second.producer == planned_.nodes.size()
                                          ? node.name
                                          : planned_.nodes[it->second.producer].name));
    return {};
  }

  // The producers of the parameter slots, or the node that is named instead.
  Status findWaits(const GraphNode& node, PlannedNode& planned) const {
    const std::string& after = node.reference->after;
    if (!after.empty()) {
      const auto it = std::ranges::find(planned_.nodes, after, &PlannedNode::name);
      if (it == planned_.nodes.end())
        return fail(node, fmt::format("runs after '{}', which is no node before it", after));
      planned.waitsFor = {static_cast<uint32_t>(it - planned_.nodes.begin())};
      return {};
    }
    std::set<uint32_t> producers;
    for (const auto& [name, slot] : planned.inputs)
      if (const auto it = slots_.find(slot); it != slots_.end()) producers.insert(it->second.producer);
    planned.waitsFor.assign(producers.begin(), producers.end());
    return {};
  }

  // A source is split; a node whose named inputs are all split on its dimension is; else it is one task.
  Status split(const GraphNode& node, const ReferenceSplit& split, PlannedNode& planned) const {
    planned.rows = split.rows;
    planned.split = true;
    for (const int64_t input : split.inputs.value_or(std::vector<int64_t>())) {
      if (input >= static_cast<int64_t>(planned.inputs.size()))
        return fail(node, fmt::format("is split on input {} of its reference, which has {}", input,
                                      planned.inputs.size()));
      const auto slot = slots_.find(planned.inputs[input].second);
      if (slot == slots_.end() || slot->second.splitDim != split.dim.value_or(0)) planned.split = false;
    }
    if (!planned.split) return {};
    planned.experts = isAllToAll(node.op) ? sizes_.allExpertNum : sizes_.singleRankExpertNum;
    planned.parts = options_.cubeCores;
    if (isProduct(node.op)) return {};
    const int64_t rows = isAllToAll(node.op) ? sizes_.perExpertSeqToOther : sizes_.perExpertSeq;
    if (split.rows == 0 || rows % split.rows != 0)
      return fail(node, fmt::format("has tiles of {} rows, which do not divide the {} rows that the "
                                    "reference plan keeps for an expert (seq {}, tp {})",
                                    split.rows, rows, sizes_.seqSize, sizes_.tp));
    planned.parts = rows / split.rows;
    return {};
  }

  void fillQueue(PlannedQueue& queue) const {
    std::vector<uint32_t> nodes;
    for (uint32_t i = 0; i < planned_.nodes.size(); ++i)
      if (planned_.nodes[i].core == queue.core) nodes.push_back(i);
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (i + 1 < nodes.size() && takeTurns(nodes[i], nodes[i + 1])) {
        addTurns(queue, nodes[i], nodes[i + 1]);
        ++i;
      } else {
        addTasks(queue, nodes[i]);
      }
    }
  }

  // A product and the weight gradient that becomes ready with it.
  bool takeTurns(uint32_t first, uint32_t second) const {
    const PlannedNode& product = planned_.nodes[first];
    const PlannedNode& grad = planned_.nodes[second];
    return product.op == GraphOp::kGmm && grad.op == GraphOp::kGmmWeightGrad && product.split && grad.split &&
           !product.waitsFor.empty() && product.waitsFor == grad.waitsFor;
  }

  // Expert by expert, the weight gradient first: each core alternates.
  void addTurns(PlannedQueue& queue, uint32_t product, uint32_t grad) const {
    const PlannedNode& node = planned_.nodes[product];
    for (int64_t expert = 0; expert < node.experts; ++expert)
      for (const uint32_t turn : {grad, product})
        for (int64_t part = 0; part < node.parts; ++part) addTask(queue, turn, expert, part);
  }

  // Tiles that are sent go round the ranks and start at this one, so that ranks do not all send to the same
  // rank at once (rank-aware tile reordering). Others stay in order.
  void addTasks(PlannedQueue& queue, uint32_t index) const {
    const PlannedNode& node = planned_.nodes[index];
    const bool goesRound = isAllToAll(node.op) && node.split;
    const int64_t ranks = goesRound ? sizes_.ep : 1;
    const int64_t experts = node.experts / ranks;
    for (int64_t expert = 0; expert < experts; ++expert)
      for (int64_t part = 0; part < node.parts; ++part)
        for (int64_t i = 0; i < ranks; ++i)
          addTask(queue, index, (options_.rank + i) % ranks * experts + expert, part);
  }

  void addTask(PlannedQueue& queue, uint32_t node, int64_t expert, int64_t part) const {
    queue.tasks.push_back({node, static_cast<uint32_t>(expert * planned_.nodes[node].parts + part)});
  }

  const Graph& graph_;
  const GraphEntry& entry_;
  const ReferenceSizes& sizes_;
  const ReferenceOptions& options_;
  PlannedEntry planned_;
  std::map<int64_t, SlotState> slots_;
  int64_t taskCount_;  // of all entries so far
};

Status expectRange(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return {};
  return Error{fmt::format("error: {} is {}, expected {} to {}", name, value, least, most)};
}

}  // namespace

Expected<ReferenceSizes> referenceSizes(const Graph& graph, const ReferenceOptions& options) {
  if (graph.experts % graph.ranks != 0)
    return Error{
        fmt::format("error: the reference plan gives all ranks as many experts, but {} are no multiple "
                    "of {} ranks",
                    graph.experts, graph.ranks)};
  const int64_t seq = options.seq == 0 ? graph.maxTokens : options.seq;
  if (Status fits = expectRange("tp", options.tp, 1, kMaxRanks); !fits) return fits.error();
  if (Status fits = expectRange("seq", seq, 1, kMaxTokens); !fits) return fits.error();
  if (seq % options.tp != 0)
    return Error{fmt::format("error: seq is {}, expected a multiple of tp, which is {}", seq, options.tp)};
  ReferenceSizes sizes;
  sizes.tp = options.tp;
  sizes.ep = graph.ranks;
  sizes.seqSize = seq;
  sizes.allExpertNum = graph.experts;
  sizes.topK = graph.topK;
  sizes.singleRankExpertNum = graph.experts / graph.ranks;
  sizes.seqAll = seq * graph.ranks * graph.topK / options.tp;
  sizes.perRankSeq = sizes.seqAll / sizes.ep;
  sizes.perExpertSeq = sizes.seqAll / sizes.topK;
  sizes.perExpertSeqToOther = sizes.seqAll / (sizes.ep * sizes.topK);
  return sizes;
}

Expected<StaticPlan> planReference(const Graph& graph, const ReferenceOptions& options) {
  const Expected<ReferenceSizes> sizes = referenceSizes(graph, options);
  if (!sizes) return sizes.error();
  if (Status fits = expectRange("rank", options.rank, 0, graph.ranks - 1); !fits) return fits.error();
  StaticPlan plan{graph.name, options.rank, *sizes, {}};
  int64_t tasks = 0;
  for (const GraphEntry& entry : graph.entries) {
    Expected<PlannedEntry> planned = EntryPlanner(graph, entry, *sizes, options, tasks).run();
    if (!planned) return planned.error();
    tasks += planned->tasks();
    plan.entries.push_back(*std::move(planned));
  }
  return plan;
}

std::vector<PlannedTask> tasksOfCore(const PlannedQueue& queue, int32_t core) {
  std::vector<PlannedTask> tasks;
  for (size_t i = static_cast<size_t>(core); i < queue.tasks.size(); i += static_cast<size_t>(queue.cores))
    tasks.push_back(queue.tasks[i]);
  return tasks;
}

int64_t parameterSlots(const PlannedEntry& entry) {
  std::set<int64_t> slots;
  for (const PlannedNode& node : entry.nodes) {
    for (const auto& [name, slot] : node.inputs) slots.insert(slot);
    for (const auto& [name, slot] : node.outputs) slots.insert(slot);
  }
  return static_cast<int64_t>(slots.size());
}

}  // namespace sluice
