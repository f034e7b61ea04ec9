// What verify() says of programs that take neighbouring slots of rows together.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "runtime/program/verify.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

MoeShape grouped(bool fused) {
  MoeShape shape;
  shape.groupSlots = 2;
  shape.fused = fused;
  return shape;
}

template <class T>
uint32_t indexOf(const std::vector<T>& table, uint32_t entry, const std::string& name) {
  for (uint32_t i = 0; i < table.size(); ++i)
    if (table[i].entry.value == entry && table[i].name == name) return i;
  FAIL("nothing is called " << name);
  return 0;
}

Space& spaceOf(TaskProgram& program, SpaceKind kind) {
  return *std::find_if(program.spaces.begin(), program.spaces.end(),
                       [&](const Space& space) { return space.kind == kind; });
}

// The message of verify() after a change, or "accepted".
std::string refusalWithGroups(const std::function<void(TaskProgram&)>& change, bool fused = false) {
  TaskProgram program = buildMoeProgram(grouped(fused));
  change(program);
  const auto verified = verify(program);
  return verified ? "accepted" : verified.error().message;
}

TEST_CASE("programs with groups of slots verify") {
  for (int ranks : {1, 2, 4})
    for (int groupSlots : {2, 3, 5})
      for (bool fused : {false, true})
        for (int slotRows : {16, 48}) {
          MoeShape shape = grouped(fused);
          shape.ranks = ranks;
          shape.experts = 3 * ranks;
          shape.groupSlots = groupSlots;
          shape.slotRows = slotRows;
          const auto verified = verify(buildMoeProgram(shape));
          INFO(ranks << " ranks, groups of " << groupSlots << " slots of " << slotRows);
          CHECK((verified ? "" : verified.error().message) == "");
        }
}

TEST_CASE("an event between slots and groups is wide, one between groups is not") {
  const auto orderOf = [](const VerifiedProgram& verified, const std::string& name) {
    return verified.order()[indexOf(verified->families, 0, name)];
  };
  const auto unfused = verify(buildMoeProgram(grouped(false)));
  REQUIRE(unfused.ok());
  CHECK(orderOf(*unfused, "up_proj") == FamilyOrder{1, 0});
  CHECK(orderOf(*unfused, "swiglu") == FamilyOrder{2, 0});
  CHECK(orderOf(*unfused, "down_proj") == FamilyOrder{3, 0});
  CHECK(orderOf(*unfused, "combine.return") == FamilyOrder{4, 0});
  const auto fused = verify(buildMoeProgram(grouped(true)));
  REQUIRE(fused.ok());
  CHECK(orderOf(*fused, "up_proj") == FamilyOrder{1, 0});
  CHECK(orderOf(*fused, "down_proj") == FamilyOrder{1, 1});
}

TEST_CASE("groups are of a multiple of the rows of a slot") {
  CHECK(refusalWithGroups([](TaskProgram& p) { spaceOf(p, SpaceKind::kGroups).slotSize = 40; }) ==
        "space 'groups' has slot size 40, expected a multiple of 16 of space 'rows', at least twice");
  CHECK(refusalWithGroups([](TaskProgram& p) { spaceOf(p, SpaceKind::kGroups).slotSize = 16; }) ==
        "space 'groups' has slot size 16, expected a multiple of 16 of space 'rows', at least twice");
  CHECK(refusalWithGroups([](TaskProgram& p) {
          Space& rows = spaceOf(p, SpaceKind::kRows);
          rows.kind = SpaceKind::kOnce;
          rows.slotSize = 1;
        }) == "space 'groups' groups slots of rows, but there is no such space");
}

TEST_CASE("thresholds of groups are what is delivered to them") {
  const auto event = [](TaskProgram& p, uint32_t entry, const char* name) -> EventArray& {
    return p.events[indexOf(p.events, entry, name)];
  };
  CHECK(refusalWithGroups([&](TaskProgram& p) { event(p, 0, "group_swiglu").factor = 2; }) ==
        "event 'group_swiglu' of entry 'forward' has threshold constant x slots of the group (factor 2), but "
        "family 'swiglu' of entry 'forward' delivers constant x slots of the group (factor 1)");
  CHECK(refusalWithGroups(
            [&](TaskProgram& p) { event(p, 0, "group_swiglu").rule = ThresholdRule::kConstant; }) ==
        "event 'group_swiglu' of entry 'forward' has threshold constant (factor 1), but family 'swiglu' of "
        "entry 'forward' delivers constant x slots of the group (factor 1)");
  CHECK(refusalWithGroups(
            [&](TaskProgram& p) { event(p, 1, "expert_swiglu_grad").rule = ThresholdRule::kSlotsOfExpert; },
            true) ==
        "event 'expert_swiglu_grad' of entry 'backward' has threshold constant x slots of the expert (factor "
        "1), but family 'act_grad' of entry 'backward' delivers constant x groups of the expert (factor 1)");
  CHECK(refusalWithGroups(
            [&](TaskProgram& p) { event(p, 0, "group_rows").rule = ThresholdRule::kRowsOfExpert; }) ==
        "event 'group_rows' of entry 'forward' has threshold rows of the expert, but family 'dispatch' of "
        "entry 'forward' delivers rows of the slot");
}

TEST_CASE("a group has no slot of its own to wait for or to signal") {
  const auto event = [](TaskProgram& p, const char* name) -> EventArray& {
    return p.events[indexOf(p.events, 0, name)];
  };
  CHECK(refusalWithGroups([&](TaskProgram& p) { event(p, "group_rows").space = EventSpace::kRows; }) ==
        "family 'up_proj' of entry 'forward' is in space groups and cannot wait for event 'group_rows' of "
        "entry 'forward' of space rows");
  CHECK(refusalWithGroups([&](TaskProgram& p) { event(p, "up_proj_done").space = EventSpace::kRows; }) ==
        "family 'up_proj' of entry 'forward' is in space groups and cannot signal event 'up_proj_done' of "
        "entry 'forward' of space rows");
}

TEST_CASE("an event of groups needs groups") {
  TaskProgram program = buildMoeProgram({});
  for (EventArray& event : program.events)
    if (event.name == "rows_arrived") event.space = EventSpace::kGroups;
  const auto verified = verify(program);
  REQUIRE_FALSE(verified.ok());
  CHECK(verified.error().message ==
        "event 'rows_arrived' of entry 'forward' is of groups of slots, but the program has no such space");
}

TEST_CASE("reads between slots and groups come after the writes") {
  const auto unwaited = [](TaskProgram& p, const char* name) {
    p.families[indexOf(p.families, 0, name)].waits = {};
  };
  CHECK(refusalWithGroups([&](TaskProgram& p) { unwaited(p, "swiglu"); }) ==
        "family 'swiglu' of entry 'forward' reads buffer 'gate_up', but does not wait until family 'up_proj' "
        "has written it for its slot (it waits for nothing)");
  CHECK(refusalWithGroups([&](TaskProgram& p) { unwaited(p, "down_proj"); }) ==
        "family 'down_proj' of entry 'forward' reads buffer 'act', but does not wait until family 'swiglu' "
        "has written it for its group of slots (it waits for nothing)");
}

}  // namespace
}  // namespace sluice
