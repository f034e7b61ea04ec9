#include "compiler/report/memory_report.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;

MoeShape shapeOf(int hidden, int intermediate) {
  MoeShape shape;
  shape.hidden = hidden;
  shape.intermediate = intermediate;
  return shape;
}

TEST_CASE("memory is reported by region, by entry and in total, and by owner") {
  const TaskProgram program = buildMoeProgram(shapeOf(64, 96));
  const MemoryReport report = reportMemory(program);
  REQUIRE(report.regions.size() == program.regions.size());
  REQUIRE(report.entries.size() == 2);
  Formula regions;
  for (const RegionReport& region : report.regions) regions += region.bytes;
  CHECK(report.all.planned == regions);
  for (const EntryMemory& entry : report.entries)
    for (Extent extent : {Extent::kFixed, Extent::kTokens, Extent::kRows, Extent::kPairs}) {
      CHECK(entry.planned.at(extent) >= entry.peak.at(extent));
      CHECK(entry.planned.at(extent) <= report.all.planned.at(extent));
    }
  // x, dy, y, dx of 64 columns in bf16; expert ids, weights and their gradient; weights and their gradients.
  const int64_t weights = 4 * 64 * 96 * 3;
  CHECK(report.inputs == Formula{2 * weights, 2 * 64 * 2 + 2 * 2 * 4, 0, 0});
  CHECK(report.outputs == Formula{4 * weights, 2 * 64 * 2 + 2 * 4, 0, 0});
}

TEST_CASE("tensors of experts are reported per expert if ranks own different numbers") {
  MoeShape shape = shapeOf(64, 96);
  shape.ranks = 2;
  shape.experts = 5;
  const TaskProgram program = buildMoeProgram(shape);
  const MemoryReport report = reportMemory(program);
  CHECK(report.inputs.experts == 2 * 64 * 96 * 3);
  CHECK(report.inputs.fixed == 0);
  CHECK_THAT(printMemoryTotals(program, report, ""), Contains("P pairs and E experts on a rank") &&
                                                         Contains("R = P = 128, E = 3\n") &&
                                                         Contains("36864 E"));
  CHECK(memoryJson(program, report)["outputs"]["E"] == report.outputs.experts);
}

TEST_CASE("totals are printed as formulas with a balanced step beside them") {
  const TaskProgram program = buildMoeProgram(shapeOf(64, 96));
  const std::string text = printMemoryTotals(program, reportMemory(program), "# ");
  CHECK_THAT(text, Contains("# entry forward: ") && Contains("# entry backward: ") &&
                       Contains("# in all: ") && Contains(" R + ") && Contains(" P (") &&
                       Contains("T = 64, R = P = 128"));
  const auto json = memoryJson(program, reportMemory(program));
  CHECK(json["entries"].size() == 2);
  CHECK(json["all"]["planned"]["R"] == reportMemory(program).all.planned.rows);
  CHECK(json["regions"][0]["buffers"].size() >= 1);
}

TEST_CASE("the place of a buffer in its region is reported") {
  TaskProgram program = buildMoeProgram(shapeOf(64, 96));
  const auto named = [](auto& table, const char* name) {
    return std::find_if(table.begin(), table.end(), [&](const auto& t) { return t.name == name; });
  };
  const auto region = named(program.regions, "rows_dy");
  region->stride = 256;
  named(program.buffers, "rows_dx")->region = named(program.buffers, "rows_dy")->region;
  named(program.buffers, "rows_dx")->offset = 128;
  const auto json = memoryJson(program, reportMemory(program));
  const auto& reported = json["regions"][static_cast<size_t>(region - program.regions.begin())];
  CHECK(reported["buffers"].dump() == R"(["rows_dy","rows_dx"])");
  CHECK(reported["offsets"].dump() == "[0,128]");
}

}  // namespace
}  // namespace sluice
