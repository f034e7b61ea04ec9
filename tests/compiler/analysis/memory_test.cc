#include "compiler/analysis/memory.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "tests/compiler/analysis/family_named.h"

namespace sluice {
namespace {

RegionId regionOf(const TaskProgram& program, const MemoryPlan& plan, std::string_view name) {
  for (size_t b = 0; b < program.buffers.size(); ++b)
    if (program.buffers[b].name == name) return plan.of[b];
  FAIL("no buffer " << name);
  return {};
}

TEST_CASE("buffers of one entry share a region only where the schedule orders them") {
  MoeShape shape;
  shape.hidden = 64;
  shape.intermediate = 48;
  const TaskProgram program = buildMoeProgram(shape);
  const MemoryPlan plan = planMemory(program);
  const auto region = [&](const char* name) { return regionOf(program, plan, name); };
  CHECK(region("rows_dx") == region("act_grad_y"));
  CHECK(region("rows_dy") != region("rows_dx"));       // a weight gradient reads rows_dy at any time
  CHECK(region("gate_up_grad") != region("rows_dx"));  // gate_grad reads one and writes the other
  CHECK(region("row_weights") != region("row_weight_grad"));
}

TEST_CASE("buffers of different entries share regions unless they are saved") {
  const TaskProgram program = buildMoeProgram({});
  const MemoryPlan plan = planMemory(program);
  CHECK(regionOf(program, plan, "combine.returned") == regionOf(program, plan, "backward.combine.returned"));
  std::map<RegionId, int> tenants;
  for (RegionId id : plan.of)
    if (id) ++tenants[id];
  for (const char* saved : {"rows_x", "gate_up", "act"}) {
    const RegionId id = regionOf(program, plan, saved);
    CHECK(plan.regions[id.value].saved);
    CHECK(tenants[id] == 1);
  }
}

TEST_CASE("regions hold their buffers, are aligned, and symmetric where other ranks write") {
  MoeShape shape;
  shape.hidden = 50;
  shape.intermediate = 9;
  const TaskProgram program = buildMoeProgram(shape);
  const MemoryPlan plan = planMemory(program);
  for (size_t b = 0; b < plan.of.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    INFO("buffer " << buffer.name);
    const bool caller = buffer.role == Role::kInput || buffer.role == Role::kOutput;
    REQUIRE(plan.of[b].none() == caller);
    if (caller) continue;
    const Region& region = plan.regions[plan.of[b].value];
    CHECK(region.extent == buffer.shape.front().extent);
    CHECK(region.stride >= bytesPerUnit(buffer));
    CHECK((region.stride < 64 || region.stride % 64 == 0));
    CHECK((region.stride < 64) == (bytesPerUnit(buffer) < 64));
  }
  for (const char* remote : {"rows_x", "rows_dy", "row_weights", "combine.returned"})
    CHECK(plan.regions[regionOf(program, plan, remote).value].symmetric);
  CHECK_FALSE(plan.regions[regionOf(program, plan, "row_weight_grad").value].symmetric);
}

TEST_CASE("outputs of rows get regions of their own, inputs none") {
  TaskProgram program = buildMoeProgram({});
  for (Buffer& buffer : program.buffers) {
    if (buffer.name == "down_out") buffer.role = Role::kOutput;
    if (buffer.name == "rows_x") buffer.role = Role::kInput;
  }
  const MemoryPlan plan = planMemory(program);
  CHECK(regionOf(program, plan, "rows_x").none());
  const RegionId own = regionOf(program, plan, "down_out");
  CHECK_FALSE(own.none());
  CHECK(std::count(plan.of.begin(), plan.of.end(), own) == 1);
}

// A chain of families in space rows, each of which reads what the one before it wrote: rows of these bytes.
TaskProgram chainProgram(const std::vector<int64_t>& bytes) {
  TaskProgram program;
  program.entries.push_back({"run", {}, {}});
  program.spaces.push_back({"rows", SpaceKind::kRows, 16, 4});
  const auto add = [&](const std::string& name, int64_t columns, Role role) {
    program.buffers.push_back(
        {name, "", DType::kBF16, {{Extent::kRows, 0}, {Extent::kFixed, columns}}, role, {}});
  };
  add("in", 32, Role::kInput);
  for (size_t i = 0; i < bytes.size(); ++i) add("b" + std::to_string(i), bytes[i] / 2, Role::kTemp);
  add("out", 32, Role::kOutput);
  for (uint32_t f = 0; f + 1 < program.buffers.size(); ++f) {
    Family family;
    family.name = "f" + std::to_string(f);
    family.entry = EntryId{0};
    family.space = SpaceId{0};
    family.reads = {BufferId{f}};
    family.writes = {BufferId{f + 1}};
    if (f > 0) family.waits = {EventId{f - 1}};
    family.signals = {EventId{f}};
    program.families.push_back(family);
    program.events.push_back({family.name + "_done", EntryId{0}, EventSpace::kRows, EventUnit::kTasks,
                              ThresholdRule::kConstant, 1, false});
  }
  return program;
}

int64_t stridesOf(const MemoryPlan& plan) {
  int64_t bytes = 0;
  for (const Region& region : plan.regions) bytes += region.stride;
  return bytes;
}

TEST_CASE("another order of placing is found where widest first needs a region more") {
  const TaskProgram program = chainProgram({6400, 6336, 6336, 6400});
  const MemoryPlan plan = planMemory(program);
  CHECK(stridesOf(plan) == 6400 + 6400 + 64);
  CHECK(regionOf(program, plan, "b0") == regionOf(program, plan, "b2"));
  CHECK(regionOf(program, plan, "b1") == regionOf(program, plan, "b3"));
}

// Bytes of all regions; checks that buffers lie in their strides, and that those that live at the same time
// lie apart there.
int64_t checkedStrides(const TaskProgram& program, const MemoryPlan& plan) {
  const std::vector<Buffer>& buffers = program.buffers;
  const Lifetimes lifetimes(program);
  for (uint32_t a = 0; a < buffers.size(); ++a) {
    if (plan.of[a].none()) continue;
    const int64_t begin = plan.offsets[a], end = begin + bytesPerUnit(buffers[a]);
    CHECK(begin % 64 == 0);
    CHECK((begin >= 0 && end <= plan.regions[plan.of[a].value].stride));
    for (uint32_t b = 0; b < a; ++b) {
      if (plan.of[b] != plan.of[a] || lifetimes.mayShare(BufferId{a}, BufferId{b})) continue;
      INFO(buffers[a].name << " and " << buffers[b].name);
      CHECK((plan.offsets[b] >= end || plan.offsets[b] + bytesPerUnit(buffers[b]) <= begin));
    }
  }
  return stridesOf(plan);
}

TEST_CASE("buffers lie side by side where regions of one at a time are too much") {
  const TaskProgram program = chainProgram({4096, 3072, 1536, 4096});
  const MemoryPlan plan = planMemory(program);
  CHECK(checkedStrides(program, plan) ==
        4096 + 3072 + 64);  // the peak and "out"; one at a time it is 2 * 4096
  CHECK(plan.regions.size() == 2);
}

TEST_CASE("buffers do not lie side by side for a saving of less than a 64th") {
  const TaskProgram program = chainProgram({4096, 3072, 64, 4096});
  const MemoryPlan plan = planMemory(program);
  CHECK(checkedStrides(program, plan) == 4096 + 3072 + 64 + 64);
  for (int64_t offset : plan.offsets) CHECK(offset == 0);
}

TEST_CASE("chains of random rows are planned near their peak, each time alike") {
  std::mt19937 random(7);
  constexpr int kRounds = 100;
  double sum = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<int64_t> bytes(3 + random() % 30);
    for (int64_t& row : bytes) row = static_cast<int64_t>(64 * (1 + random() % 40));
    const TaskProgram program = chainProgram(bytes);
    const MemoryPlan plan = planMemory(program), again = planMemory(program);
    CHECK((again.of == plan.of && again.offsets == plan.offsets && again.regions == plan.regions));
    const double over = static_cast<double>(checkedStrides(program, plan)) /
                        static_cast<double>(peakOfProgram(program, Lifetimes(program)).rows);
    CHECK(over >= 1);
    CHECK(over <= 1.15);
    sum += over;
  }
  CHECK(sum / kRounds <= 1.01);
}

TEST_CASE("rows of scalars share only with rows of their length") {
  TaskProgram program = chainProgram({6, 2, 4});
  CHECK(planMemory(program).of[1] == planMemory(program).of[3]);
  program.buffers[3].type = DType::kF32;
  program.buffers[3].shape[1].size = 1;  // a row of one f32 after a row of three bf16
  CHECK(planMemory(program).of[1] != planMemory(program).of[3]);
}

}  // namespace
}  // namespace sluice
