// Who waits for whom, for failures that are made up.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/runtime/sim/sim_run.h"
#include "tests/testing/moe_program.h"
#include "tools/report/report.h"
#include "tools/report/run.h"

namespace sluice::tools {
namespace {

using Catch::Matchers::Contains;

constexpr int kRanks = 3;

class Scene {
 public:
  Scene()
      : plan_(
            planOf(buildMoeProgram({.ranks = kRanks, .experts = 6, .topK = 2, .maxTokens = 64, .cores = 2}))),
        source_{"hang-{rank}.json", *Program::fromTaskProgram(plan_.program()), 0,
                std::vector<Trace>(kRanks)} {
    for (Trace& trace : source_.ranks) addRun(trace, 7);
  }

  // A rank fails in a step, before its tasks.
  void fail(size_t rank, int64_t step, const std::string& message) {
    source_.ranks[rank].failed = {EntryId{0}, step, message, {}};
  }
  // A task of a family that its core has next: of all ranks it is owed what `ranks` and `cores` owe.
  void wait(size_t rank, const std::string& family, int core, const std::string& event,
            std::vector<int32_t> ranks = {}, const std::vector<std::pair<std::string, int>>& cores = {}) {
    NextTask next{at(family, core), familyOf(family), 3, 0, {}, 0, 0, 0, std::move(ranks), {}};
    if (!event.empty()) {
      next.event = eventOf(event);
      next.index = 5;
      next.have = 96;
      next.need = 128;
    }
    for (const auto& [name, number] : cores) next.cores.push_back(at(name, number));
    source_.ranks[rank].failed.next.push_back(next);
  }
  static void addRun(Trace& trace, int64_t step) {
    TraceSpan run;
    run.kind = SpanKind::kRun;
    run.entry = EntryId{0};
    run.slot = step;
    run.index = -1;  // without its routing
    trace.spans.push_back(run);
  }

  // "from -> to: label", and " !" if it is missing.
  std::vector<std::string> edges() const {
    std::vector<std::string> lines;
    const auto hang = findHang(source_);
    for (const HangEdge& edge : hang->edges)
      lines.push_back(edge.from + " -> " + edge.to + ": " + edge.label + (edge.missing ? " !" : ""));
    std::ranges::sort(lines);
    return lines;
  }

  ReportSource& source() { return source_; }

 private:
  FamilyId familyOf(const std::string& name) const {
    const auto& all = plan_.program().families;
    const auto found = std::ranges::find(all, name, &Family::name);
    REQUIRE(found != all.end());
    return FamilyId{static_cast<uint32_t>(found - all.begin())};
  }
  EventId eventOf(const std::string& name) const {
    const auto& all = plan_.program().events;
    const auto found = std::ranges::find(all, name, &EventArray::name);
    REQUIRE(found != all.end());
    return EventId{static_cast<uint32_t>(found - all.begin())};
  }
  CoreOfLane at(const std::string& family, int core) const { return {plan_.at(familyOf(family)).lane, core}; }

  Plan plan_;
  ReportSource source_;
};

using Edges = std::vector<std::string>;

TEST_CASE("without a failure there is no graph") {
  Scene scene;
  CHECK_FALSE(findHang(scene.source()));
}

TEST_CASE("a rank without a trace is what is missing, and all that wait for it alike are one node") {
  Scene scene;
  scene.source().ranks[1] = {};
  scene.fail(0, 7, "rank 0, core 0: waited 30 s");
  scene.wait(0, "up_proj", 0, "rows_arrived", {1});
  scene.wait(0, "up_proj", 1, "rows_arrived", {1});
  scene.fail(2, 7, "rank 0, core 0: waited 30 s");
  CHECK(
      scene.edges() ==
      Edges{"rank 0, core 0 and 1 more: up_proj[3,0] -> rank 1: no trace: rows_arrived[5]: 96 of 128 rows !",
            "rank 2: before its tasks -> rank 1: no trace: its counts !"});
  // a message that all ranks have is there once
  CHECK(findHang(scene.source())->messages == Edges{"rank 0, core 0: waited 30 s"});
  const std::string text = reportText({scene.source()});
  CHECK_THAT(text, Contains("no trace of rank 1") && Contains("failed      rank 0 in step 7 (forward)"));
  CHECK_THAT(text, Contains("rank 0, core 0: waited 30 s") && Contains("When the run failed") &&
                       Contains("forward/up_proj[3,0]"));
}

TEST_CASE("a chain leads over the tasks of other ranks to what is missing") {
  Scene scene;
  scene.fail(0, 7, "failed");
  scene.wait(0, "down_proj", 0, "swiglu_done", {}, {{"up_proj", 1}});
  scene.wait(0, "up_proj", 1, "rows_arrived", {1});
  scene.fail(1, 7, "failed");
  scene.wait(1, "dispatch", 0, "");
  scene.fail(2, 7, "failed");
  const Edges found = scene.edges();
  CHECK(
      found ==
      Edges{
          "rank 0, core 0: down_proj[3,0] -> rank 0, core 1: up_proj[3,0]: swiglu_done[5]: 96 of 128 tasks",
          "rank 0, core 1: up_proj[3,0] -> rank 1, core 0: dispatch[3,0]: rows_arrived[5]: 96 of 128 rows !",
          "rank 2: before its tasks -> rank 0: has sent them: its counts !",
          "rank 2: before its tasks -> rank 1: has sent them: its counts !"});
}

TEST_CASE("rows that were sent, and signals at the own rank, can be lost") {
  Scene scene;
  scene.fail(0, 7, "failed");
  scene.wait(0, "up_proj", 0, "rows_arrived", {1, 2});
  scene.wait(0, "down_proj", 1, "swiglu_done");
  scene.fail(1, 7, "failed");
  scene.wait(1, "down_proj", 1, "swiglu_done", {}, {{"down_proj", 1}});
  // rank 2 has gone through the step
  CHECK(
      scene.edges() ==
      Edges{"rank 0, core 0: up_proj[3,0] -> rank 1: has sent everything: rows_arrived[5]: 96 of 128 rows !",
            "rank 0, core 0: up_proj[3,0] -> rank 2: has ended this step: rows_arrived[5]: 96 of 128 rows !",
            "rank 0, core 1: down_proj[3,0] -> rank 0: a signal was lost: swiglu_done[5]: 96 of 128 tasks !",
            "rank 1, core 1: down_proj[3,0] -> rank 1, core 1: down_proj[3,0]: swiglu_done[5]: 96 of 128 "
            "tasks"});
}

TEST_CASE("a rank before its tasks waits for those that are not there yet") {
  Scene scene;
  scene.fail(0, 8, "rank 0: waited");
  scene.fail(1, 7, "rank 1: waited");
  scene.wait(1, "combine.sum", 0, "returned", {2});
  scene.fail(2, 6, "rank 2: waited");
  scene.source().ranks[2].spans.clear();
  Scene::addRun(scene.source().ranks[2], 6);
  CHECK(
      scene.edges() ==
      Edges{"rank 0: before its tasks -> rank 1, core 0: combine.sum[3,0]: its counts; it is in step 7",
            "rank 0: before its tasks -> rank 2: before its tasks: its counts; it is in step 6",
            "rank 1, core 0: combine.sum[3,0] -> rank 2: is not in this step: returned[5]: 96 of 128 rows !",
            "rank 2: before its tasks -> rank 0: is in a later step: its counts !",
            "rank 2: before its tasks -> rank 1: is in a later step: its counts !"});
  CHECK(findHang(scene.source())->messages == Edges{"rank 0: waited", "rank 1: waited", "rank 2: waited"});
}

TEST_CASE("of many waits those that lead to what is missing are kept") {
  Scene scene;
  scene.source().ranks[1] = {};
  scene.fail(0, 7, "failed");
  for (int slot = 0; slot < 200; ++slot) {
    scene.wait(0, "down_proj", 0, "swiglu_done", {}, {{"up_proj", 1}});
    scene.source().ranks[0].failed.next.back().index = slot;
  }
  scene.wait(0, "up_proj", 1, "rows_arrived", {1});
  const auto hang = findHang(scene.source());
  REQUIRE(hang->edges.size() == kMaxEdges);
  CHECK(hang->leftOut == 201 - kMaxEdges);
  CHECK(hang->edges[0].missing);
}

TEST_CASE("messages of a file are text for a terminal, too") {
  Scene scene;
  scene.fail(0, 7, "rank 0: \x1b[31mwaited");
  CHECK_THAT(reportText({scene.source()}), Contains("rank 0: \\x1b[31mwaited"));
}

TEST_CASE("a file that has one rank alone still says for whom it waits") {
  Scene scene;
  scene.source().firstRank = 2;
  scene.source().ranks.resize(1);
  scene.fail(0, 7, "failed");
  scene.wait(0, "up_proj", 0, "rows_arrived", {0});
  CHECK(scene.edges() ==
        Edges{"rank 2, core 0: up_proj[3,0] -> rank 0: no trace: rows_arrived[5]: 96 of 128 rows !"});
}

}  // namespace
}  // namespace sluice::tools
