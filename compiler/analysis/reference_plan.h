// Reference plan: the static schedule of the multicore MoE-FFN system that Sluice is compared with
// (--policy=reference).
//
// All tables are sized for the worst case when the plan is made: a tile has a task whether rows reach it or
// not. Core w of a kind runs positions w, w + cores, ... of the queue of its kind, in order. The plan is for
// comparison: it is printed (reference_plan_text.h), never run.
//
// Value types; free functions on values.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "runtime/base/expected.h"
#include "runtime/program/program.h"

namespace sluice {

struct ReferenceOptions {
  int64_t tp = 1;          // tensor-parallel ranks
  int64_t seq = 0;         // tokens that tp ranks share; 0: the most tokens of the graph
  int64_t rank = 0;        // whose queues
  int32_t cubeCores = 24;  // for products
  int32_t vectorCores = 48;
};

// The values a plan is sized from, under the reference's names.
struct ReferenceSizes {
  int64_t tp = 1;
  int64_t ep = 1;
  int64_t seqSize = 0;
  int64_t allExpertNum = 0;
  int64_t topK = 0;
  int64_t singleRankExpertNum = 0;  // all_expert_num / ep
  int64_t seqAll = 0;               // seq_size ep top_k / tp
  int64_t perRankSeq = 0;           // seq_all / ep
  int64_t perExpertSeq = 0;         // seq_all / top_k: the most rows an expert may receive
  int64_t perExpertSeqToOther = 0;  // seq_all / (ep top_k): the most rows of one rank for one expert
  friend bool operator==(const ReferenceSizes&, const ReferenceSizes&) = default;
};

struct PlannedNode {
  std::string name;
  std::string alias;
  GraphOp op = GraphOp::kGmm;
  CoreKind core = CoreKind::kCube;
  ReferencePlan::Slots inputs, outputs;  // parameter slots
  std::optional<int64_t> tiling;         // tiling slot
  int64_t rows = 0;                      // of a tile
  bool split = false;
  int64_t experts = 1;  // of all ranks for dispatch and combine, of this rank for others; 1 if not split
  int64_t parts = 1;    // tasks of an expert
  std::vector<uint32_t> waitsFor;  // nodes of the entry, ascending

  int64_t tasks() const { return experts * parts; }
};

// Task `index` of a node: expert index / parts, part index % parts. For dispatch and combine the experts of
// rank 0 come first, for products part p is what core p does.
struct PlannedTask {
  static constexpr uint32_t kTerminate = std::numeric_limits<uint32_t>::max();
  uint32_t node = kTerminate;  // of the entry
  uint32_t index = 0;
  friend bool operator==(const PlannedTask&, const PlannedTask&) = default;
};

struct PlannedQueue {
  CoreKind core = CoreKind::kCube;
  int32_t cores = 1;
  std::vector<PlannedTask> tasks;
};

struct PlannedEntry {
  std::string name;
  std::vector<PlannedNode> nodes;  // in topological order
  PlannedQueue cube, vector;
  bool terminates = false;  // by a task of its own, the last of the vector queue

  int64_t tasks() const { return static_cast<int64_t>(cube.tasks.size() + vector.tasks.size()); }
};

struct StaticPlan {
  std::string graph;
  int64_t rank = 0;
  ReferenceSizes sizes;
  std::vector<PlannedEntry> entries;
};

// Tables beyond this are an error: the reference's own largest case has 24,961 tasks.
inline constexpr int64_t kMaxPlannedTasks = 1 << 20;

// Errors: a value out of range; a seq that tp does not divide. The ranks of `graph` are ep.
Expected<ReferenceSizes> referenceSizes(const Graph& graph, const ReferenceOptions& options);

// The plan of every entry of a graph that readGraph() returned. Errors, with file, line and column: a node
// without 'reference', a reference that does not fit its entry, tiles that do not divide the rows, too many
// tasks.
Expected<StaticPlan> planReference(const Graph& graph, const ReferenceOptions& options);

// What core `core` of the queue's kind runs, in order.
std::vector<PlannedTask> tasksOfCore(const PlannedQueue& queue, int32_t core);

// Distinct parameter slots of the nodes.
int64_t parameterSlots(const PlannedEntry& entry);

}  // namespace sluice
