#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "runtime/program/text.h"
#include "tests/runtime/program/random_program.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

using Catch::Contains;

void checkRoundTrip(const TaskProgram& program) {
  const std::string text = printProgram(program);
  INFO(text);
  const Expected<TaskProgram> parsed = parseProgram(text, "text");
  REQUIRE((parsed.ok() ? "" : parsed.error().message) == "");
  REQUIRE(*parsed == program);
}

TEST_CASE("a parsed program equals the one that was printed") {
  checkRoundTrip({});
  checkRoundTrip(smallProgram());
  checkRoundTrip(buildMoeProgram({.ranks = 2}));
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    INFO("seed " << seed);
    checkRoundTrip(randomProgram(seed));
  }
}

TEST_CASE("a program reads as it is described") {
  CHECK(printProgram(smallProgram()) == R"(program small
target cpu
options "--set ep=2"
graph 0x0123456789abcdef
symbol ep = 2
symbol hidden = 64
limits ranks 2 experts 8 top_k 2 max_tokens 100 cores 2

region received : R * 128 bytes symmetric
region kept : 4096 bytes saved

buffer expert_ids : I32 [T, 2] input
buffer x_rows : BF16 [R, 64] temp in received
buffer up : BF16 [R, 96] saved in kept
buffer dx : BF16 [R, 64] output

entry forward routed by expert_ids
entry backward routed as forward

space rows : rows of 32 window 2
space sends : sends of 32 window 4

event forward/arrived : [rows] counts rows to rows_of_slot remote
event forward/up.done : [rows] counts tasks to constant(2)
event backward/arrived : [experts] counts tasks to slots_of_expert(3)

family forward/send : dispatch over sends tiles 1 on unified
  reads none, none
  writes x_rows, none
  signals arrived
  tiling n=64
family forward/up : gmm over rows tiles 2 on cube source "f.json:3:5"
  reads x_rows, expert_ids
  writes up
  waits arrived
  signals up.done, #2
  tiling n=96 k=64 tile_n=48 flags=1

lane forward/send over sends on unified priority 0 rotation 1
  seat 0: send[0,0]
  seat 1: send[1,0]

lane forward/up over rows on cube priority 1 rotation 0
  dealt up to 2 seats
)");
}

TEST_CASE("a table that is dealt by the formula can be written out, and parses to the same program") {
  TextSelection selection;
  selection.tables = true;
  const std::string text = printSections(smallProgram(), selection);
  CHECK_THAT(text, Contains("seat 0: up[0,0] up[1,0]\n  seat 1: up[0,1] up[1,1]\n") && !Contains("dealt"));
  const Expected<TaskProgram> parsed = parseProgram(text, "text");
  REQUIRE(parsed.ok());
  CHECK(*parsed == smallProgram());
}

TEST_CASE("sections and cores can be selected") {
  const TextSelection nothing{false, false, false, false, false, false, false, -1, {}};
  TextSelection selection = nothing;
  CHECK(printSections(smallProgram(), selection) == "");
  selection.tasks = true;
  selection.core = 1;
  const std::string tasks = printSections(smallProgram(), selection);
  CHECK_THAT(tasks, Contains("seat 1: send[1,0]") && !Contains("seat 0") && !Contains("program"));
  selection = nothing;
  selection.tiling = true;
  CHECK(printSections(smallProgram(), selection) ==
        "tiling forward/send : n=64\ntiling forward/up : n=96 k=64 tile_n=48 flags=1\n");
  selection.families = true;
  selection.tiling = false;
  CHECK_THAT(printSections(smallProgram(), selection), Contains("writes up") && !Contains("tiling"));
}

TEST_CASE("a core of one kind is shown with the lanes that it runs, by its number in the kind") {
  TaskProgram program = smallProgram();
  program.lanes[0].firstCore = 2;
  TextSelection selection{false, false, false, false, false, true, false, 3, {}};
  CHECK_THAT(printSections(program, selection), Contains("seat 1: send[1,0]") && !Contains("seat 0"));
  selection.coreKind = CoreKind::kVector;
  CHECK(printSections(program, selection) == "");
  program.lanes[0].core = CoreKind::kVector;
  CHECK_THAT(printSections(program, selection),
             Contains("on vector from 2") && Contains("seat 1: send[1,0]"));
}

TEST_CASE("the factor of a product is a decimal number with the same bits") {
  TaskProgram program = smallProgram();
  const auto lineOf = [&](float alpha) {
    program.families[0].tiling.alpha = alpha;
    const std::string text = printProgram(program);
    const Expected<TaskProgram> parsed = parseProgram(text, "text");
    REQUIRE((parsed.ok() ? "" : parsed.error().message) == "");
    CHECK(std::bit_cast<uint32_t>(parsed->families[0].tiling.alpha) == std::bit_cast<uint32_t>(alpha));
    const size_t begin = text.find("  tiling n=64");
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  CHECK(lineOf(0.25f) == "  tiling n=64 alpha=0.25");
  CHECK(lineOf(-2) == "  tiling n=64 alpha=-2");
  CHECK(lineOf(0.1f) == "  tiling n=64 alpha=0.1");
  CHECK(lineOf(1e-30f) == "  tiling n=64 alpha=1e-30");
  CHECK(lineOf(3e38f) == "  tiling n=64 alpha=3e+38");
  CHECK(lineOf(std::nextafter(1.0f, 2.0f)) == "  tiling n=64 alpha=1.0000001");
  CHECK(lineOf(std::numeric_limits<float>::denorm_min()) == "  tiling n=64 alpha=1e-45");
  CHECK(lineOf(-0.0f) == "  tiling n=64 alpha=-0");
  CHECK(lineOf(std::numeric_limits<float>::quiet_NaN()) == "  tiling n=64 alpha=0x7fc00000");
}

TEST_CASE("names that are not unique are referred to by index") {
  TaskProgram program = smallProgram();
  program.buffers[0].name = "x_rows";
  program.events[1].name = "arrived";
  const std::string text = printProgram(program);
  CHECK_THAT(text,
             Contains("routed by #0") && Contains("reads #1, #0") && Contains("waits #0\n  signals #1, #2"));
  checkRoundTrip(program);
}

}  // namespace
}  // namespace sluice
