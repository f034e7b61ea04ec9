// The figures are those that the multicore system publishes.
#include "compiler/analysis/reference_plan.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "compiler/graph/read_graph.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;
using Sets = std::vector<std::pair<std::string, int64_t>>;

struct Case {
  const char* name;
  int64_t tp, ep, seq, experts;  // top_k is 8
  ReferenceSizes sizes;
  int64_t sent, products, elementwise;  // tasks of dispatch or combine, of a product, of the activation
  int64_t forward, backward;            // in all
};

const Case kSmall = {"2 ranks", 2,   2,  1024, 16, {2, 2, 1024, 16, 8, 8, 8192, 4096, 1024, 512},
                     64,        192, 64, 576,  961};
const Case kMiddle = {"4 ranks", 4,   4,   8192, 32,  {4, 4, 8192, 32, 8, 8, 65536, 16384, 8192, 2048},
                      512,       192, 512, 1920, 2305};
const Case kLarge = {
    "64 ranks", 1,  64,   4096,  256,  {1, 64, 4096, 256, 8, 4, 2097152, 32768, 262144, 4096},
    8192,       96, 8192, 24768, 24961};

Graph read(const std::string& name, const Sets& sets) {
  Expected<Graph> graph = readGraph("graphs/moe_ffn/" + name, sets);
  if (!graph) FAIL(graph.error().message);
  return *graph;
}

StaticPlan planOf(const std::string& name, const Case& given, int64_t rank = 0) {
  const Graph graph = read(name, {{"ep", given.ep}, {"experts", given.experts}});
  const Expected<StaticPlan> plan = planReference(graph, {given.tp, given.seq, rank});
  if (!plan) FAIL(plan.error().message);
  return *plan;
}

std::string tasksOf(const PlannedEntry& entry) {
  std::string text;
  for (const PlannedNode& node : entry.nodes) text += node.alias + "=" + std::to_string(node.tasks()) + " ";
  return text;
}

std::string forwardTasks(const Case& given) {
  const std::string sent = std::to_string(given.sent), product = std::to_string(given.products);
  return "dispatch=" + sent + " up_proj=" + product + " swiglu=" + std::to_string(given.elementwise) +
         " down_proj=" + product + " combine=" + sent + " ";
}

std::string backwardTasks(const Case& given) {
  const std::string sent = std::to_string(given.sent), product = std::to_string(given.products);
  return "dispatch=" + sent + " act_grad=" + product + " w1_grad=" + product +
         " swiglu_grad=" + std::to_string(given.elementwise) + " gate_grad=" + product + " combine=" + sent +
         " w2_grad=" + product + " ";
}

// "node[expert,part] ..." of the first `count` tasks.
std::string names(const PlannedEntry& entry, const std::vector<PlannedTask>& tasks, size_t begin,
                  size_t count) {
  std::string text;
  for (size_t i = begin; i < std::min(begin + count, tasks.size()); ++i) {
    const PlannedTask task = tasks[i];
    if (task.node == PlannedTask::kTerminate) return text + "terminate";
    const PlannedNode& node = entry.nodes[task.node];
    text += node.alias + "[" + std::to_string(task.index / node.parts) + "," +
            std::to_string(task.index % node.parts) + "] ";
  }
  return text;
}

TEST_CASE("sizes, the tasks of each node and their total are those of the reference") {
  const Case& given = GENERATE(as<const Case&>(), kSmall, kMiddle, kLarge);
  INFO(given.name);
  const StaticPlan forward = planOf("forward.json", given), backward = planOf("backward.json", given);
  CHECK(forward.sizes == given.sizes);
  REQUIRE(forward.entries.size() == 1);
  CHECK(tasksOf(forward.entries[0]) == forwardTasks(given));
  CHECK(forward.entries[0].tasks() == given.forward);
  CHECK_FALSE(forward.entries[0].terminates);
  REQUIRE(backward.entries.size() == 1);
  CHECK(tasksOf(backward.entries[0]) == backwardTasks(given));
  CHECK(backward.entries[0].tasks() == given.backward);
  CHECK(backward.entries[0].terminates);
}

TEST_CASE("the training graph gives both plans") {
  const StaticPlan plan = planOf("train.json", kMiddle);
  REQUIRE(plan.entries.size() == 2);
  CHECK(tasksOf(plan.entries[0]) == forwardTasks(kMiddle));
  CHECK(tasksOf(plan.entries[1]) == backwardTasks(kMiddle));
  CHECK(plan.entries[0].tasks() + plan.entries[1].tasks() == 1920 + 2305);
}

TEST_CASE("seq is the most tokens of the graph where it is not given") {
  const Graph graph = read("forward.json", {{"ep", 2}, {"experts", 16}, {"max_tokens", 1024}});
  const Expected<StaticPlan> plan = planReference(graph, {.tp = 2});
  if (!plan) FAIL(plan.error().message);
  CHECK(plan->sizes == kSmall.sizes);
}

TEST_CASE("the seven nodes of the backward have the slots, cores, tiles and edges of the reference") {
  const PlannedEntry entry = planOf("backward.json", kMiddle).entries[0];
  std::string table;
  size_t edges = 0;
  for (const PlannedNode& node : entry.nodes) {
    table += node.alias + (node.core == CoreKind::kCube ? " cube" : " vector");
    for (const auto& [name, slot] : node.inputs) table += " " + name + "=" + std::to_string(slot);
    for (const auto& [name, slot] : node.outputs) table += " -> " + name + "=" + std::to_string(slot);
    table += " rows " + std::to_string(node.rows);
    if (node.tiling) table += " tiling " + std::to_string(*node.tiling);
    for (const uint32_t other : node.waitsFor) table += " after " + entry.nodes[other].alias;
    edges += node.waitsFor.size();
    CHECK(node.split);
    table += "\n";
  }
  CHECK(table ==
        "dispatch vector target_offset=1 src=2 src_offset=3 size=4 -> target=0 rows 128\n"
        "act_grad cube target=0 weight=7 glist=19 -> y=8 rows 4096 tiling 20 after dispatch\n"
        "w1_grad cube x1=5 target=0 glist=19 -> y=6 rows 4096 tiling 23 after dispatch\n"
        "swiglu_grad vector act_grad_y=8 dy=9 -> out=10 rows 128 tiling 24 after act_grad\n"
        "gate_grad cube swiglu_out=10 weight=11 glist=19 -> y=12 rows 4096 tiling 21 after swiglu_grad\n"
        "combine vector target_offset=14 src=12 src_offset=15 size=16 -> target=13 rows 128 after gate_grad\n"
        "w2_grad cube x1=17 swiglu_out=10 glist=19 -> y=18 rows 4096 tiling 22 after gate_grad\n");
  CHECK(edges == 6);
  CHECK(parameterSlots(entry) == 20);
}

TEST_CASE("the five nodes of the forward are a chain with the tiling slots of the reference") {
  const PlannedEntry entry = planOf("forward.json", kMiddle).entries[0];
  std::string table;
  for (const PlannedNode& node : entry.nodes) {
    table += node.alias + (node.core == CoreKind::kCube ? " cube" : " vector");
    table += " rows " + std::to_string(node.rows);
    if (node.tiling) table += " tiling " + std::to_string(*node.tiling);
    for (const uint32_t other : node.waitsFor) table += " after " + entry.nodes[other].alias;
    table += "\n";
  }
  CHECK(table ==
        "dispatch vector rows 128\n"
        "up_proj cube rows 4096 tiling 17 after dispatch\n"
        "swiglu vector rows 128 tiling 18 after up_proj\n"
        "down_proj cube rows 4096 tiling 19 after swiglu\n"
        "combine vector rows 128 after down_proj\n");
}

TEST_CASE("each core alternates between w1_grad and act_grad, then runs gate_grad, then w2_grad") {
  const PlannedEntry entry = planOf("backward.json", kMiddle).entries[0];
  REQUIRE(entry.cube.cores == 24);
  const std::vector<PlannedTask> tasks = tasksOfCore(entry.cube, 5);
  REQUIRE(tasks.size() == 32);
  CHECK(names(entry, tasks, 0, 4) == "w1_grad[0,5] act_grad[0,5] w1_grad[1,5] act_grad[1,5] ");
  CHECK(names(entry, tasks, 14, 3) == "w1_grad[7,5] act_grad[7,5] gate_grad[0,5] ");
  CHECK(names(entry, tasks, 23, 2) == "gate_grad[7,5] w2_grad[0,5] ");
}

TEST_CASE("tiles are sent round the ranks from the own rank on") {
  const PlannedEntry first = planOf("backward.json", kMiddle, 0).entries[0];
  const PlannedEntry last = planOf("backward.json", kMiddle, 3).entries[0];
  CHECK(names(first, first.vector.tasks, 0, 5) ==
        "dispatch[0,0] dispatch[8,0] dispatch[16,0] dispatch[24,0] dispatch[0,1] ");
  CHECK(names(last, last.vector.tasks, 0, 5) ==
        "dispatch[24,0] dispatch[0,0] dispatch[8,0] dispatch[16,0] dispatch[24,1] ");
  CHECK(names(last, last.vector.tasks, 512, 3) == "swiglu_grad[0,0] swiglu_grad[0,1] swiglu_grad[0,2] ");
  CHECK(names(last, last.vector.tasks, 1024, 3) == "combine[24,0] combine[0,0] combine[8,0] ");
  CHECK(names(last, last.vector.tasks, 1536, 1) == "terminate");
}

TEST_CASE("at every position the ranks send to different ranks") {
  std::vector<PlannedEntry> entries;
  for (int64_t rank = 0; rank < 4; ++rank)
    entries.push_back(planOf("forward.json", kMiddle, rank).entries[0]);
  for (size_t at = 0; at < 512; ++at) {
    std::set<int64_t> destinations;
    for (const PlannedEntry& entry : entries)
      destinations.insert(entry.vector.tasks[at].index / entry.nodes[0].parts / 8);
    REQUIRE(destinations.size() == 4);
  }
}

TEST_CASE("the cores of a kind run every task of its queue once, core w the positions w, w + cores, ...") {
  const PlannedEntry entry = planOf("backward.json", kLarge, 17).entries[0];
  size_t total = 0;
  for (const PlannedQueue* queue : {&entry.cube, &entry.vector}) {
    std::set<std::pair<uint32_t, uint32_t>> seen;
    for (int32_t core = 0; core < queue->cores; ++core) {
      const std::vector<PlannedTask> tasks = tasksOfCore(*queue, core);
      for (size_t i = 0; i < tasks.size(); ++i) {
        REQUIRE(tasks[i] == queue->tasks[core + i * queue->cores]);
        seen.emplace(tasks[i].node, tasks[i].index);
      }
    }
    CHECK(seen.size() == queue->tasks.size());
    total += seen.size();
  }
  CHECK(total == 24961);
}

TEST_CASE("a node is one task unless all its named inputs are split on the named dimension") {
  Graph graph = read("forward.json", {{"ep", 4}, {"experts", 32}});
  GraphNode& down = *std::ranges::find(graph.entries[0].nodes, "down_proj", &GraphNode::name);
  SECTION("an input that nobody writes is not split") { down.reference->split->inputs = {0, 1}; }
  SECTION("an input split on another dimension") { down.reference->split->dim = 1; }
  SECTION("no split at all") { down.reference->split.reset(); }
  const Expected<StaticPlan> plan = planReference(graph, {4, 8192});
  if (!plan) FAIL(plan.error().message);
  // combine is split on what down_proj writes, which is not split any more
  CHECK(tasksOf(plan->entries[0]) == "dispatch=512 up_proj=192 swiglu=512 down_proj=1 combine=1 ");
}

TEST_CASE("what the reference cannot plan is an error that says why") {
  Graph graph = read("backward.json", {{"ep", 4}, {"experts", 32}});
  const auto errorOf = [&](ReferenceOptions options) {
    const Expected<StaticPlan> plan = planReference(graph, options);
    return plan ? std::string("planned") : plan.error().message;
  };
  GraphNode& last = *std::ranges::find(graph.entries[0].nodes, "gate_up_weight_grad", &GraphNode::name);
  CHECK_THAT(errorOf({.tp = 0}), Contains("tp is 0, expected 1 to 4096"));
  CHECK_THAT(errorOf({.tp = 3, .seq = 8192}), Contains("seq is 8192, expected a multiple of tp, which is 3"));
  CHECK_THAT(errorOf({.seq = -1}), Contains("seq is -1"));
  CHECK_THAT(errorOf({.rank = 4}), Contains("rank is 4, expected 0 to 3"));
  CHECK_THAT(errorOf({.seq = 1000}), Contains("backward.json:") && Contains("node 'dispatch'") &&
                                         Contains("tiles of 128 rows, which do not divide the 1000 rows"));
  CHECK_THAT(errorOf({.seq = kMaxTokens}), Contains("expected at most 1048576 in a plan"));
  last.reference->after = "nowhere";
  CHECK_THAT(errorOf({}),
             Contains("node 'gate_up_weight_grad' runs after 'nowhere', which is no node before"));
  last.reference->after.clear();
  last.reference->outputs[0].second = 12;
  CHECK_THAT(errorOf({}), Contains("writes parameter slot 12, which node 'gate_grad' writes already"));
  last.reference->split->inputs = {3};
  CHECK_THAT(errorOf({}), Contains("is split on input 3 of its reference, which has 3"));
  last.reference->core.clear();
  CHECK_THAT(errorOf({}), Contains("has no 'core'"));
  last.reference.reset();
  CHECK_THAT(errorOf({}), Contains("says nothing of the reference plan"));
}

TEST_CASE("there is no reference plan where ranks own different numbers of experts") {
  const Expected<StaticPlan> plan = planReference(read("forward.json", {{"ep", 4}, {"experts", 30}}), {});
  REQUIRE_FALSE(plan.ok());
  CHECK(plan.error().message ==
        "error: the reference plan gives all ranks as many experts, but 30 are no multiple of 4 ranks");
}

}  // namespace
}  // namespace sluice
