#include "runtime/program/diff.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/runtime/program/random_program.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

using Lines = std::vector<std::string>;

TEST_CASE("equal programs have no differences, and only they") {
  CHECK(diffPrograms(smallProgram(), smallProgram()).empty());
  for (uint32_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    CHECK(diffPrograms(randomProgram(seed), randomProgram(seed)).empty());
    CHECK_FALSE(diffPrograms(randomProgram(seed), randomProgram(seed + 1)).empty());
  }
}

TEST_CASE("a number that differs from itself is no difference") {
  TaskProgram strange = smallProgram(), other = smallProgram();
  strange.families[1].tiling.alpha = NAN;
  CHECK(diffPrograms(strange, strange).empty());
  CHECK(diffPrograms(strange, other).size() == 1);
}

TEST_CASE("a changed field is named with both values") {
  TaskProgram changed = smallProgram();
  changed.cores = 3;
  changed.symbols[1].value = 65;
  changed.regions[0].stride = 256;
  changed.buffers[2].region = {};
  changed.events[1].factor = 3;
  changed.families[1].tiling.tileN = 32;
  changed.families[1].source.clear();
  changed.families[1].signals.pop_back();
  changed.lanes[1].seats[1][0].tile = 7;
  CHECK(
      diffPrograms(smallProgram(), changed) ==
      Lines{"program cores: 2 -> 3", "symbol hidden: 64 -> 65",
            "region received: R * 128 bytes symmetric -> R * 256 bytes symmetric",
            "buffer up region: kept -> none",
            "event forward/up.done: [rows] counts tasks to constant(2) -> [rows] counts tasks to constant(3)",
            "family forward/up signals: up.done, #2 -> up.done",
            "family forward/up tiling: n=96 k=64 tile_n=48 flags=1 -> n=96 k=64 tile_n=32 flags=1",
            "family forward/up source: \"f.json:3:5\" -> \"\"",
            "lane forward/up seat 1 task 0: up[0,1] -> up[0,7]"});
}

TEST_CASE("one more record is one difference, although all ids after it change") {
  TaskProgram more = smallProgram();
  more.events.insert(more.events.begin(), more.events[1]);
  more.events[0].name = "extra";
  for (Family& family : more.families)
    for (auto* links : {&family.waits, &family.signals})
      for (EventId& id : *links) ++id.value;
  TaskProgram named = smallProgram();
  // The reference across entries has no name.
  named.families[1].signals.pop_back();
  more.families[1].signals.pop_back();
  CHECK(diffPrograms(named, more) == Lines{"event forward/extra: only in the second"});
  CHECK(diffPrograms(more, named) == Lines{"event forward/extra: only in the first"});
}

TEST_CASE("a record that is missing, and another order, are differences") {
  TaskProgram changed = smallProgram();
  changed.lanes[1].seats[0].pop_back();
  CHECK(diffPrograms(smallProgram(), changed) ==
        Lines{"lane forward/up seat 0 task 1: up[1,0] -> (nothing)"});
  changed = smallProgram();
  std::swap(changed.lanes[0], changed.lanes[1]);
  CHECK(diffPrograms(smallProgram(), changed) ==
        Lines{"order of the records: lane forward/send -> lane forward/up"});
}

TEST_CASE("many differences are counted, not shown") {
  const Lines lines = diffPrograms(buildMoeProgram({.maxTokens = 256, .window = 8}),
                                   buildMoeProgram({.maxTokens = 256, .cores = 5, .window = 8}));
  REQUIRE(lines.size() == kMaxDifferences + 1);
  CHECK_THAT(lines.back(), Catch::Matches("and [0-9]+ more differences"));
}

}  // namespace
}  // namespace sluice
