#include <catch2/catch.hpp>

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
buffer x_rows : BF16 [R, 64] temp in received alias dispatched
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
  tiling n=64
family forward/up : gmm over rows tiles 2 on cube alias gmm1 source "f.json:3:5"
  reads x_rows, expert_ids
  writes up
  tiling n=96 k=64 tile_n=48 flags=1

lane forward/send over sends on unified priority 0 rotation 1
  task send waits none signals arrived
  seat 0: send[0,0]
  seat 1: send[1,0]

lane forward/up over rows on cube priority 1 rotation 0
  task up waits arrived signals up.done
  seat 0: up[0,0] up[1,0]
  seat 1: up[0,1]{waits arrived signals up.done, #2} up[1,1]
)");
}

TEST_CASE("sections and cores can be selected") {
  const TextSelection nothing{false, false, false, false, false, false, false, -1};
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

TEST_CASE("names that are not unique are referred to by index") {
  TaskProgram program = smallProgram();
  program.buffers[0].name = "x_rows";
  program.events[1].name = "arrived";
  const std::string text = printProgram(program);
  CHECK_THAT(text, Contains("routed by #0") && Contains("reads #1, #0") && Contains("waits #0 signals #1"));
  checkRoundTrip(program);
}

}  // namespace
}  // namespace sluice
