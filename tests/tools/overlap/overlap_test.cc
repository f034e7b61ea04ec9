#include "tools/overlap/overlap.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"
#include "tools/overlap/overlap_report.h"

namespace sluice::tools {
namespace {

// Three repetitions; the medians are 10, 2 and 9 ms of wall time, and 18 ms of processor time.
EntryOverlap measured() {
  EntryOverlap overlap{"forward", {}};
  for (int n : {2, 0, 1}) {
    EntrySample sample;
    sample.wall = {0.009 + 0.001 * n, 0.001 + 0.001 * n, 0.008 + 0.001 * n};
    sample.cpu = {0.017 + 0.001 * n, 0.001, 0.015};
    sample.switches = {100 + n, 10, 50};
    sample.rows = 64;
    sample.traffic = {7, 4'000'000, 14};
    sample.stats = {20 + n, 4'000'000, 30, 5, 41 + n};
    overlap.samples.push_back(sample);
  }
  return overlap;
}

TEST_CASE("overlap is the longer part over the step, of medians") {
  const OverlapFigures f = computeFigures(measured());
  CHECK(f.all == Approx(0.010));
  CHECK(f.communication == Approx(0.002));
  CHECK(f.compute == Approx(0.009));
  CHECK(f.efficiency == Approx(0.9));
  CHECK(f.cpu == Approx(0.018));
  CHECK(f.switches == 101);
  CHECK(f.puts == 21);
  CHECK(f.signals == 30);
  CHECK(f.flushes == 5);
  CHECK(f.messages == 42);
}

TEST_CASE("by processor time, the units share it") {
  const OverlapFigures f = computeFigures(measured(), 2);
  CHECK(f.all == Approx(0.009));
  CHECK(f.compute == Approx(0.0075));
  CHECK(f.efficiency == Approx(0.0075 / 0.009));
}

TEST_CASE("where nothing was measured, figures are zero") {
  const OverlapFigures f = computeFigures({"forward", {}});
  CHECK(f.all == 0);
  CHECK(f.efficiency == 0);
  CHECK(overlapCells({"forward", {}}).size() == overlapColumns().size());
}

TEST_CASE("a line has the figures under their heads") {
  const auto columns = overlapColumns();
  const std::string line = textLine(columns, overlapCells(measured()));
  CHECK(line.size() == textLine(columns, listHeads(columns)).size());
  for (const char* figure : {"10.000", "2.000", "9.000", "0.90", "64", "4.00", "21", "30", "42"})
    CHECK(line.find(figure) != std::string::npos);
}

TEST_CASE("the JSON has every sample, and gives them back") {
  const EntryOverlap overlap = measured();
  const auto json = overlapJson(overlap);
  CHECK(json["overlap"] == Approx(0.9));
  const auto back = overlapFromJson(nlohmann::ordered_json::parse(json.dump()));
  REQUIRE(back.ok());
  CHECK(back->entry == "forward");
  CHECK(overlapCells(*back) == overlapCells(overlap));
  CHECK(overlapJson(*back) == json);
}

TEST_CASE("another JSON is an error") {
  for (const char* text : {"{}", "[1]", "3", R"({"entry": 3, "wall_seconds": {"all": [1]}})"})
    CHECK_FALSE(overlapFromJson(nlohmann::ordered_json::parse(text)).ok());
}

TEST_CASE("all ranks get the same figures of a layer, and the layer still gives the same bits") {
  const auto program = Program::fromTaskProgram(buildMoeProgram({.ranks = 3, .experts = 6, .maxTokens = 40}));
  REQUIRE(program.ok());
  const InputsSpec spec{.tokens = {.counts = {40, 0, 7}}, .routing = {RoutingKind::kZipf, 1.2}, .seed = 3};
  LayerData expected = makeLayerData(program->tables(), spec);
  REQUIRE(runLayer(*program, {.threads = 1}, expected).ok());
  LayerData data = makeLayerData(program->tables(), spec);
  std::vector<std::vector<EntrySample>> of(3);
  LocalRanks local(3);
  std::vector<std::thread> threads;
  std::vector<Status> results(3);
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      results[rank] = [&]() -> Status {
        Transport& transport = local.transport(rank);
        auto context = Context::create(*program, transport, {.threads = 1});
        if (!context) return context.error();
        if (Status bound = bindAll(data, rank, **context); !bound) return bound;
        auto probe = OverlapProbe::create(transport, 30);
        if (!probe) return probe.error();
        for (int n = 0; n < 2; ++n) {
          auto samples = probe->repeat(**context, {"forward", "backward"});
          if (!samples) return samples.error();
          of[rank] = std::move(*samples);
        }
        for (const char* entry : {"forward", "backward"})
          if (Status ran = (*context)->run(entry); !ran) return ran;
        return {};
      }();
      if (!results[rank]) local.transport(rank).abort(results[rank].error().message);
    });
  for (std::thread& thread : threads) thread.join();
  for (const Status& result : results) {
    INFO((result ? "" : result.error().message));
    REQUIRE(result.ok());
  }
  CHECK(hashOutputs(data) == hashOutputs(expected));
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(of[rank].size() == 2);
    for (int entry = 0; entry < 2; ++entry) {
      CHECK(of[rank][entry].wall == of[0][entry].wall);
      CHECK(of[rank][entry].rows == 47 * 2);
      CHECK(of[rank][entry].traffic.bytes == of[0][entry].traffic.bytes);
    }
  }
  CHECK(of[0][0].wall[0] > 0);
  CHECK(of[0][0].cpu[2] > 0);
  CHECK(of[0][0].traffic.bytes > 0);
}

}  // namespace
}  // namespace sluice::tools
