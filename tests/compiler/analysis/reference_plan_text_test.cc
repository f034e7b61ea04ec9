#include "compiler/analysis/reference_plan_text.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "compiler/graph/read_graph.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;
using Json = nlohmann::json;
using Sets = std::vector<std::pair<std::string, int64_t>>;

StaticPlan backward() {
  const Sets sets = {{"ep", 4}, {"experts", 32}};
  const Expected<Graph> graph = readGraph("graphs/moe_ffn/backward.json", sets);
  if (!graph) FAIL(graph.error().message);
  const Expected<StaticPlan> plan = planReference(*graph, {.tp = 4, .seq = 8192, .rank = 1});
  if (!plan) FAIL(plan.error().message);
  return *plan;
}

TEST_CASE("the text names sizes, nodes and what each core runs") {
  const std::string text = printPlan(backward());
  CHECK_THAT(text,
             Contains("reference plan of moe_ffn_backward, rank 1 of 4\n"
                      "tp 4, ep 4, seq_size 8192, all_expert_num 32, top_k 8\n"
                      "single_rank_expert_num 8, seq_all 65536, per_rank_seq 16384, per_expert_seq 8192, "
                      "per_expert_seq_to_other 2048\n"
                      "entry backward: 2305 tasks with terminate, 20 parameter slots\n"));
  CHECK_THAT(
      text, Contains("  down_weight_grad (w1_grad): 192 tasks, cube, 8 experts x 24 parts, 4096 rows a tile, "
                     "tiling slot 23; slots x1 5, target 0, glist 19 -> y 6; after dispatch\n"));
  CHECK_THAT(text,
             Contains("  vector queue: 1537 tasks on 48 cores\n    vector 0: dispatch[8,0] dispatch[8,12] "));
}

TEST_CASE("the json holds every task of every core") {
  const StaticPlan plan = backward();
  const Json json = Json::parse(printPlanJson(plan));
  CHECK(json["policy"] == "reference");
  CHECK(json["sizes"]["per_expert_seq_to_other"] == 2048);
  const Json& entry = json["entries"][0];
  CHECK(entry["tasks"] == 2305);
  CHECK(entry["terminate"] == true);
  CHECK(entry["parameter_slots"] == 20);
  CHECK(entry["nodes"].size() == 7);
  CHECK(entry["nodes"][6]["alias"] == "w2_grad");
  CHECK(entry["nodes"][6]["after"] == Json::array({"gate_grad"}));
  CHECK(entry["nodes"][6]["inputs"] == Json({{"x1", 17}, {"swiglu_out", 10}, {"glist", 19}}));
  CHECK(entry["nodes"][0]["tiling"].is_null());
  size_t tasks = 0;
  REQUIRE(entry["queues"].size() == 2);
  CHECK(entry["queues"][0]["cores"].size() == 24);
  CHECK(entry["queues"][1]["cores"].size() == 48);
  for (const Json& queue : entry["queues"])
    for (const Json& core : queue["cores"]) tasks += core.size();
  CHECK(tasks == 2305);
  CHECK(entry["queues"][1]["cores"][0].back() == "terminate");
}

}  // namespace
}  // namespace sluice
