#include "compiler/analysis/events.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/program/op_table.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;

// Events of a family in a form that does not depend on their numbering.
std::vector<EventArray> resolve(const std::vector<EventArray>& events, const std::vector<EventId>& ids) {
  std::vector<EventArray> out;
  for (EventId id : ids) out.push_back(events[id.value]);
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

// The program without its events.
TaskProgram bare(TaskProgram program) {
  program.events.clear();
  for (Family& family : program.families) family.waits.clear(), family.signals.clear();
  return program;
}

TaskProgram planned(const TaskProgram& program) {
  const Expected<TaskProgram> made = insertEvents(program);
  if (!made) FAIL(made.error().message);
  return *made;
}

std::string errorOf(const TaskProgram& program) {
  const Expected<TaskProgram> made = insertEvents(program);
  return made ? std::string("none") : made.error().message;
}

TEST_CASE("the events of the moe layer are those of the schedule document, and between slots and groups") {
  MoeShape grouped;
  grouped.groupSlots = 2;
  const TaskProgram expected = buildMoeProgram(GENERATE_COPY(MoeShape{}, grouped));
  const TaskProgram plan = planned(bare(expected));
  CHECK(plan.events.size() == expected.events.size());
  for (size_t f = 0; f < plan.families.size(); ++f) {
    const Family &found = plan.families[f], &like = expected.families[f];
    INFO("family " << found.name << " of entry " << found.entry.value);
    CHECK(resolve(plan.events, found.waits) == resolve(expected.events, like.waits));
    CHECK(resolve(plan.events, found.signals) == resolve(expected.events, like.signals));
  }
}

// Families of a dense branch: each reads one buffer and writes one; the first buffer is an input.
class DenseProgram {
 public:
  DenseProgram() {
    program.entries = {{"forward", {}, {}}};
    for (SpaceKind kind : {SpaceKind::kTokens, SpaceKind::kRows, SpaceKind::kSends, SpaceKind::kReturns,
                           SpaceKind::kExperts, SpaceKind::kOnce, SpaceKind::kGroups})
      program.spaces.push_back({"", kind, 16, 1});
    addBuffer("x", Extent::kTokens, Role::kInput);
  }

  BufferId addBuffer(const char* name, Extent extent, Role role = Role::kTemp) {
    program.buffers.push_back(
        {name, DType::kBF16, {Dim{extent, extent == Extent::kFixed ? 8 : 0}, Dim{}}, role, {}});
    return BufferId{static_cast<uint32_t>(program.buffers.size() - 1)};
  }

  BufferId add(const char* name, SpaceKind space, std::vector<BufferId> reads, Extent result,
               int32_t tiles = 1) {
    Family family;
    family.name = name;
    family.entry = EntryId{0};
    family.space = SpaceId{static_cast<uint32_t>(space)};
    family.tiles = tiles;
    family.reads = std::move(reads);
    const BufferId written = addBuffer(name, result, Role::kOutput);
    family.writes = {written};
    program.families.push_back(family);
    return written;
  }

  TaskProgram program;
};

TEST_CASE("families of tokens wait slot by slot, sums over tokens and sends for all slots") {
  DenseProgram dense;
  const BufferId up = dense.add("up", SpaceKind::kTokens, {BufferId{0}}, Extent::kTokens, 3);
  const BufferId act = dense.add("act", SpaceKind::kTokens, {up}, Extent::kTokens);
  dense.add("grad", SpaceKind::kOnce, {up, act}, Extent::kFixed, 4);
  const BufferId rows = dense.add("dispatch", SpaceKind::kSends, {up}, Extent::kRows);
  dense.add("gmm", SpaceKind::kRows, {rows}, Extent::kRows);
  const TaskProgram plan = planned(dense.program);
  REQUIRE(plan.events.size() == 4);
  const EventArray done{
      "up_done", EntryId{0}, EventSpace::kTokens, EventUnit::kTasks, ThresholdRule::kConstant, 3, false};
  const EventArray allAct{
      "all_act", EntryId{0}, EventSpace::kOne, EventUnit::kTasks, ThresholdRule::kSlotsOfTokens, 1, false};
  CHECK(resolve(plan.events, plan.families[1].waits) == std::vector{done});
  // in every slot act comes after up, and a rank without tokens has neither
  CHECK(resolve(plan.events, plan.families[2].waits) == std::vector{allAct});
  CHECK(plan.events[plan.families[3].waits[0].value].name == "all_up");
  CHECK(plan.events[plan.families[3].waits[0].value].factor == 3);
}

TEST_CASE("a sum of what comes back and of a dense branch waits for both") {
  DenseProgram dense;
  const BufferId up = dense.add("up", SpaceKind::kTokens, {BufferId{0}}, Extent::kTokens, 2);
  const BufferId rows = dense.add("dispatch", SpaceKind::kSends, {BufferId{0}}, Extent::kRows);
  const BufferId back = dense.add("return", SpaceKind::kReturns, {rows}, Extent::kPairs);
  const BufferId sum = dense.add("sum", SpaceKind::kTokens, {back}, Extent::kTokens);
  dense.add("add", SpaceKind::kTokens, {sum, up}, Extent::kTokens);
  const TaskProgram plan = planned(dense.program);
  const auto waitsOf = [&](size_t family) {
    std::vector<std::string> names;
    for (EventId id : plan.families[family].waits) names.push_back(plan.events[id.value].name);
    return names;
  };
  CHECK(waitsOf(2) == std::vector<std::string>{"rows_arrived"});  // rows may go back as they came
  CHECK(waitsOf(4) == std::vector<std::string>{"sum_done", "up_done"});
}

TEST_CASE("weights that are computed are waited for by expert, or once for tokens") {
  DenseProgram dense;
  const BufferId experts = dense.add("experts", SpaceKind::kExperts, {}, Extent::kFixed, 2);
  const BufferId once = dense.add("once", SpaceKind::kOnce, {}, Extent::kFixed, 5);
  dense.add("gmm", SpaceKind::kRows, {experts}, Extent::kRows);
  dense.add("dense", SpaceKind::kTokens, {once}, Extent::kTokens);
  const TaskProgram plan = planned(dense.program);
  const EventArray& byExpert = plan.events[plan.families[2].waits[0].value];
  CHECK((byExpert.space == EventSpace::kExperts && byExpert.factor == 2));
  const EventArray& one = plan.events[plan.families[3].waits[0].value];
  CHECK((one.space == EventSpace::kOne && one.factor == 5));
}

TEST_CASE("groups of slots are waited for by slots and by experts, and wait for slots") {
  DenseProgram dense;
  const BufferId rows = dense.add("dispatch", SpaceKind::kSends, {BufferId{0}}, Extent::kRows);
  const BufferId up = dense.add("up", SpaceKind::kGroups, {rows}, Extent::kRows, 3);
  const BufferId act = dense.add("act", SpaceKind::kRows, {up}, Extent::kRows);
  const BufferId down = dense.add("down", SpaceKind::kGroups, {act}, Extent::kRows, 2);
  dense.add("last", SpaceKind::kGroups, {down}, Extent::kRows);
  const BufferId back = dense.add("return", SpaceKind::kReturns, {down}, Extent::kPairs);
  dense.add("grad", SpaceKind::kExperts, {down, act}, Extent::kFixed);
  dense.add("sum", SpaceKind::kTokens, {back}, Extent::kTokens);
  const TaskProgram plan = planned(dense.program);
  const auto waitOf = [&](size_t family) { return plan.events[plan.families[family].waits.at(0).value]; };
  const EntryId entry{0};
  const auto tasks = [&](const char* name, EventSpace space, ThresholdRule rule, int64_t factor) {
    return EventArray{name, entry, space, EventUnit::kTasks, rule, factor, false};
  };
  CHECK(waitOf(1) == EventArray{"group_rows", entry, EventSpace::kGroups, EventUnit::kRows,
                                ThresholdRule::kRowsOfSlot, 0, true});
  CHECK(waitOf(2) == tasks("up_done", EventSpace::kGroups, ThresholdRule::kConstant, 3));
  CHECK(waitOf(3) == tasks("group_act", EventSpace::kGroups, ThresholdRule::kSlotsOfGroup, 1));
  CHECK(waitOf(4) == tasks("down_done", EventSpace::kGroups, ThresholdRule::kConstant, 2));
  CHECK(waitOf(5) == tasks("down_done", EventSpace::kGroups, ThresholdRule::kConstant, 2));
  CHECK(waitOf(6) == tasks("expert_down", EventSpace::kExperts, ThresholdRule::kGroupsOfExpert, 2));
}

TEST_CASE("what slots, groups and experts read is waited for by two events") {
  DenseProgram dense;
  const BufferId rows = dense.add("dispatch", SpaceKind::kSends, {BufferId{0}}, Extent::kRows);
  const BufferId act = dense.add("act", SpaceKind::kRows, {rows}, Extent::kRows);
  dense.add("group", SpaceKind::kGroups, {rows, act}, Extent::kRows);
  dense.add("slot", SpaceKind::kRows, {act}, Extent::kRows);
  dense.add("grad", SpaceKind::kExperts, {rows, act}, Extent::kFixed);
  dense.add("down_grad", SpaceKind::kExperts, {rows}, Extent::kFixed);
  const TaskProgram plan = planned(dense.program);
  CHECK(plan.families[0].signals.size() == 2);
  CHECK(plan.families[1].signals.size() == 2);
  // slots wait for their group
  for (size_t family : {1, 3}) {
    REQUIRE(plan.families[family].waits.size() == 1);
    CHECK(plan.events[plan.families[family].waits[0].value].space == EventSpace::kGroups);
  }
}

TEST_CASE("a read before its write is found") {
  TaskProgram program = bare(buildMoeProgram({}));
  std::swap(program.families[1], program.families[2]);  // swiglu before up_proj
  program.buffers[findBuffer(program.families[2], &Operands::c).value].role = Role::kTemp;
  program.families[1].source = "a.json:4:7";
  CHECK(errorOf(program) == "a.json:4:7: error: 'swiglu' reads 'gate_up', which no family before it writes");
}

TEST_CASE("two writers of a buffer are found with both places") {
  TaskProgram program = bare(buildMoeProgram({}));
  operandBuffer(program.families[3], &Operands::c) = findBuffer(program.families[1], &Operands::c);
  program.families[1].source = "a.json:4:7";
  program.families[3].source = "a.json:9:7";
  CHECK(errorOf(program) ==
        "a.json:9:7: error: 'down_proj' writes 'gate_up', which 'up_proj' already writes\n"
        "a.json:4:7: note: 'gate_up' is written here");
}

TEST_CASE("sends that nobody waits for are found") {
  TaskProgram program = bare(buildMoeProgram({}));
  program.families.resize(1);
  CHECK_THAT(errorOf(program), Contains("nothing reads what 'dispatch' sends"));
}

TEST_CASE("a family that reads its own output is found") {
  TaskProgram program = bare(buildMoeProgram({}));
  operandBuffer(program.families[1], &Operands::a) = findBuffer(program.families[1], &Operands::c);
  CHECK_THAT(errorOf(program), Contains("'up_proj' reads 'gate_up', which it writes"));
}

TEST_CASE("spaces that no event joins are found") {
  TaskProgram program = bare(buildMoeProgram({}));
  operandBuffer(program.families[5], &Operands::returned) =  // the sum reads rows that arrive
      findBuffer(program.families[0], &Operands::rows);
  CHECK_THAT(errorOf(program), Contains("no event leads from its space"));
}

}  // namespace
}  // namespace sluice
