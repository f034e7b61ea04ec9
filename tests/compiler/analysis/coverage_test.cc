#include <catch2/catch.hpp>

#include "compiler/analysis/events.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

FamilyId familyNamed(const TaskProgram& program, uint32_t entry, std::string_view name) {
  for (uint32_t f = 0; f < program.families.size(); ++f)
    if (program.families[f].entry.value == entry && program.families[f].name == name) return FamilyId{f};
  return {};
}

TEST_CASE("coverage follows events with the wider scope and ends at remote ones") {
  const TaskProgram program = buildMoeProgram({});
  const CoverageTable table = computeCoverage(program);
  const auto scope = [&](const char* consumer, const char* producer) {
    return table[familyNamed(program, 1, consumer).value][familyNamed(program, 1, producer).value];
  };
  CHECK(scope("act_grad", "dispatch") == Scope::kSlot);
  CHECK(scope("gate_grad", "act_grad") == Scope::kSlot);
  CHECK(scope("gate_grad", "dispatch") == Scope::kSlot);
  CHECK(scope("down_weight_grad", "dispatch") == Scope::kExpert);
  CHECK(scope("gate_up_weight_grad", "act_grad") == Scope::kExpert);
  CHECK(scope("gate_up_weight_grad", "gate_grad") == Scope::kNone);
  CHECK(scope("combine.sum", "combine.return") == Scope::kAll);
  CHECK(scope("combine.sum", "gate_grad") == Scope::kNone);
  CHECK(scope("gate_grad", "down_weight_grad") == Scope::kNone);
}

// Three families in a row, and how far the last covers the first.
Scope throughBoth(SpaceKind first, EventSpace near, SpaceKind middle, EventSpace far, SpaceKind last,
                  int32_t ranks = 1, int32_t experts = 1) {
  TaskProgram program;
  program.mesh.ep = ranks;
  program.experts = experts;
  for (SpaceKind kind : {first, middle, last}) {
    Family family;
    family.space = SpaceId{static_cast<uint32_t>(program.spaces.size())};
    program.spaces.push_back({"", kind, 1, 1});
    program.families.push_back(family);
  }
  EventArray firstDone, middleDone;
  firstDone.space = near;
  middleDone.space = far;
  program.events = {firstDone, middleDone};
  program.families[0].signals = program.families[1].waits = {EventId{0}};
  program.families[1].signals = program.families[2].waits = {EventId{1}};
  return computeCoverage(program)[2][0];
}

TEST_CASE("a group covers the slots it is made of, and a slot the group it is in") {
  const auto rows = EventSpace::kRows, groups = EventSpace::kGroups, experts = EventSpace::kExperts;
  const auto slot = SpaceKind::kRows, group = SpaceKind::kGroups;
  CHECK(throughBoth(slot, rows, slot, groups, group) == Scope::kGroup);
  CHECK(throughBoth(group, groups, slot, rows, slot) == Scope::kGroup);
  CHECK(throughBoth(slot, groups, group, groups, slot) == Scope::kGroup);
  CHECK(throughBoth(slot, experts, group, groups, slot) == Scope::kExpert);
  CHECK(throughBoth(SpaceKind::kSends, groups, group, experts, SpaceKind::kExperts) == Scope::kExpert);
  // an expert without rows has no group either, and its gradient waits for nothing
  CHECK(throughBoth(SpaceKind::kExperts, experts, group, experts, SpaceKind::kExperts) == Scope::kNone);
}

TEST_CASE("what lies between two families covers nothing where it may have no task") {
  const auto one = EventSpace::kOne, experts = EventSpace::kExperts, tokens = EventSpace::kTokens;
  CHECK(throughBoth(SpaceKind::kTokens, tokens, SpaceKind::kTokens, one, SpaceKind::kOnce) == Scope::kAll);
  CHECK(throughBoth(SpaceKind::kTokens, tokens, SpaceKind::kTokens, tokens, SpaceKind::kTokens) ==
        Scope::kSlot);
  // a rank without tokens starts its sum over tokens at once
  CHECK(throughBoth(SpaceKind::kOnce, one, SpaceKind::kTokens, one, SpaceKind::kOnce) == Scope::kNone);
  CHECK(throughBoth(SpaceKind::kOnce, one, SpaceKind::kTokens, one, SpaceKind::kSends) == Scope::kAll);
  // an expert without rows, its gradient
  CHECK(throughBoth(SpaceKind::kExperts, experts, SpaceKind::kRows, experts, SpaceKind::kExperts) ==
        Scope::kNone);
  CHECK(throughBoth(SpaceKind::kTokens, one, SpaceKind::kOnce, one, SpaceKind::kTokens) == Scope::kAll);
}

TEST_CASE("experts between two families cover nothing at a rank that owns none") {
  const auto one = EventSpace::kOne, experts = EventSpace::kExperts;
  const auto expert = SpaceKind::kExperts, once = SpaceKind::kOnce, rows = SpaceKind::kRows;
  const auto covers = [&](SpaceKind first, EventSpace near, SpaceKind last, int32_t count) {
    return throughBoth(first, near, expert, one, last, 3, count);
  };
  for (int32_t all : {3, 4, 6}) {
    CHECK(covers(SpaceKind::kReturns, one, once, all) == Scope::kAll);
    CHECK(covers(rows, experts, once, all) == Scope::kAll);
  }
  // what is returned arrives at a rank without experts, too
  CHECK(covers(SpaceKind::kReturns, one, once, 2) == Scope::kNone);
  CHECK(covers(SpaceKind::kTokens, one, SpaceKind::kSends, 2) == Scope::kNone);
  // it has no rows, and no task that needs them
  CHECK(covers(rows, experts, once, 2) == Scope::kAll);
  CHECK(throughBoth(SpaceKind::kTokens, one, expert, experts, rows, 3, 2) == Scope::kAll);
}

}  // namespace
}  // namespace sluice
