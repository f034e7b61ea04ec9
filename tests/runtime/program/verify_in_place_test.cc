// What verify() says of programs whose rows are read where they are.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "runtime/program/verify.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;

Family& familyNamed(TaskProgram& program, uint32_t entry, const std::string& name) {
  return *std::find_if(program.families.begin(), program.families.end(), [&](const Family& family) {
    return family.entry.value == entry && family.name == name;
  });
}

// The message of verify() after a change, or "accepted".
std::string refusalInPlace(const std::function<void(TaskProgram&)>& change) {
  TaskProgram program = buildMoeProgram({.inPlace = true});
  change(program);
  const auto verified = verify(program);
  return verified ? "accepted" : verified.error().message;
}

TEST_CASE("programs of one rank that copy no rows verify") {
  for (const bool fused : {false, true})
    for (const bool forwardOnly : {false, true})
      for (const int groupSlots : {0, 2}) {
        MoeShape shape{.fused = fused, .forwardOnly = forwardOnly, .groupSlots = groupSlots};
        shape.inPlace = true;
        const auto verified = verify(buildMoeProgram(shape));
        CHECK((verified ? "" : verified.error().message) == "");
      }
}

TEST_CASE("rows of other ranks are not read where they are") {
  CHECK_THAT(
      refusalInPlace([](TaskProgram& p) { p.mesh.ep = 2; }),
      Contains("family 'up_proj' of entry 'forward': operand 'rows' is buffer 'x' BF16 [T, 32], expected "
               "BF16 [R, 32]"));
}

TEST_CASE("rows that are rounded are not gathered") {
  CHECK_THAT(
      refusalInPlace([](TaskProgram& p) { familyNamed(p, 0, "up_proj").tiling.roundA = Rounding::kMxE4m3; }),
      Contains("operand 'rows' is buffer 'x' BF16 [T, 32], expected BF16 [R, 32]"));
}

TEST_CASE("a sum waits for all slots of the rows that it reads") {
  CHECK_THAT(refusalInPlace([](TaskProgram& p) { familyNamed(p, 0, "combine.sum").waits.clear(); }),
             Contains("combine.sum") && Contains("down_out"));
  CHECK_THAT(refusalInPlace([](TaskProgram& p) {
               for (EventArray& event : p.events)
                 if (event.rule == ThresholdRule::kSlotsOfRows) --event.factor;
             }),
             Contains("has threshold constant x slots of rows (factor 1)") && Contains("delivers"));
}

TEST_CASE("a dispatch sends something") {
  CHECK_THAT(refusalInPlace([](TaskProgram& p) {
               Family& dispatch = familyNamed(p, 1, "dispatch");
               dispatch.reads.clear();
               dispatch.writes.clear();
             }),
             Contains("family 'dispatch' of entry 'backward' writes nothing"));
}

}  // namespace
}  // namespace sluice
