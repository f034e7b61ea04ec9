#include "compiler/analysis/memory.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

// The program with newly planned regions.
TaskProgram planned(TaskProgram program) {
  program.regions.clear();
  for (Buffer& buffer : program.buffers) buffer.region = {}, buffer.offset = 0;
  const Expected<TaskProgram> plan = planMemory(std::move(program));
  if (!plan) FAIL(plan.error().message);
  return *plan;
}

RegionId regionOf(const TaskProgram& program, std::string_view name) {
  for (const Buffer& buffer : program.buffers)
    if (buffer.name == name) return buffer.region;
  FAIL("no buffer " << name);
  return {};
}

TEST_CASE("buffers of one entry share a region only where the schedule orders them") {
  MoeShape shape;
  shape.hidden = 64;
  shape.intermediate = 48;
  const TaskProgram plan = planned(buildMoeProgram(shape));
  const auto region = [&](const char* name) { return regionOf(plan, name); };
  CHECK(region("rows_dx") == region("act_grad_y"));
  CHECK(region("rows_dy") != region("rows_dx"));       // a weight gradient reads rows_dy at any time
  CHECK(region("gate_up_grad") != region("rows_dx"));  // gate_grad reads one and writes the other
  CHECK(region("row_weights") != region("row_weight_grad"));
}

TEST_CASE("buffers of different entries share regions unless they are saved") {
  const TaskProgram plan = planned(buildMoeProgram({}));
  CHECK(regionOf(plan, "combine.returned") == regionOf(plan, "backward.combine.returned"));
  std::map<RegionId, int> tenants;
  for (const Buffer& buffer : plan.buffers)
    if (buffer.region) ++tenants[buffer.region];
  for (const char* saved : {"rows_x", "gate_up", "act"}) {
    const RegionId id = regionOf(plan, saved);
    CHECK(plan.regions[id.value].saved);
    CHECK(tenants[id] == 1);
  }
}

TEST_CASE("regions hold their buffers, are aligned, and symmetric where other ranks write") {
  MoeShape shape;
  shape.hidden = 50;
  shape.intermediate = 9;
  const TaskProgram plan = planned(buildMoeProgram(shape));
  for (const Buffer& buffer : plan.buffers) {
    INFO("buffer " << buffer.name);
    const bool caller = buffer.role == Role::kInput || buffer.role == Role::kOutput;
    REQUIRE(buffer.region.none() == caller);
    if (caller) continue;
    const Region& region = plan.at(buffer.region);
    CHECK(region.extent == buffer.shape.front().extent);
    CHECK(region.stride >= bytesPerUnit(buffer));
    CHECK((region.stride < 64 || region.stride % 64 == 0));
    CHECK((region.stride < 64) == (bytesPerUnit(buffer) < 64));
  }
  for (const char* remote : {"rows_x", "rows_dy", "row_weights", "combine.returned"})
    CHECK(plan.regions[regionOf(plan, remote).value].symmetric);
  CHECK_FALSE(plan.regions[regionOf(plan, "row_weight_grad").value].symmetric);
}

TEST_CASE("rows of float32 begin on cache lines as others do, unless they are narrow") {
  for (const auto& [hidden, stride] : {std::pair(5, 20), {21, 128}, {50, 256}}) {
    MoeShape shape;
    shape.hidden = hidden;
    TaskProgram program = buildMoeProgram(shape);
    for (Buffer& buffer : program.buffers)
      if (buffer.name == "combine.returned") buffer.type = DType::kF32;
    const TaskProgram plan = planned(std::move(program));
    CHECK(plan.at(regionOf(plan, "combine.returned")).stride == stride);
  }
}

TEST_CASE("outputs of rows get regions of their own, inputs none") {
  TaskProgram program = buildMoeProgram({});
  for (Buffer& buffer : program.buffers) {
    if (buffer.name == "down_out") buffer.role = Role::kOutput;
    if (buffer.name == "rows_x") buffer.role = Role::kInput;
  }
  const TaskProgram plan = planned(program);
  CHECK(regionOf(plan, "rows_x").none());
  const RegionId own = regionOf(plan, "down_out");
  CHECK_FALSE(own.none());
  CHECK(std::count_if(plan.buffers.begin(), plan.buffers.end(),
                      [&](const Buffer& buffer) { return buffer.region == own; }) == 1);
}

// A chain of families in space rows, each of which reads what the previous one wrote; `bytes` are those per
// row.
TaskProgram chainOf(const std::vector<int64_t>& bytes) {
  TaskProgram program;
  program.entries.push_back({"run", {}, {}});
  program.spaces.push_back({"rows", SpaceKind::kRows, 16, 4});
  const auto add = [&](const std::string& name, int64_t columns, Role role) {
    program.buffers.push_back(
        {name, DType::kBF16, {{Extent::kRows, 0}, {Extent::kFixed, columns}}, role, {}});
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

int64_t stridesOf(const TaskProgram& plan) {
  int64_t bytes = 0;
  for (const Region& region : plan.regions) bytes += region.stride;
  return bytes;
}

TEST_CASE("another order of placing is found where widest first needs a region more") {
  const TaskProgram plan = planned(chainOf({6400, 6336, 6336, 6400}));
  CHECK(stridesOf(plan) == 6400 + 6400 + 64);
  CHECK(regionOf(plan, "b0") == regionOf(plan, "b2"));
  CHECK(regionOf(plan, "b1") == regionOf(plan, "b3"));
}

// Returns the bytes of all regions; checks that buffers lie within their strides, and that those that live at
// the same time do not overlap.
int64_t checkedStrides(const TaskProgram& plan) {
  const std::vector<Buffer>& buffers = plan.buffers;
  const Lifetimes lifetimes(plan);
  for (uint32_t a = 0; a < buffers.size(); ++a) {
    if (buffers[a].region.none()) continue;
    const int64_t begin = buffers[a].offset, end = begin + bytesPerUnit(buffers[a]);
    CHECK(begin % 64 == 0);
    CHECK((begin >= 0 && end <= plan.at(buffers[a].region).stride));
    for (uint32_t b = 0; b < a; ++b) {
      if (buffers[b].region != buffers[a].region || lifetimes.mayShare(BufferId{a}, BufferId{b})) continue;
      INFO(buffers[a].name << " and " << buffers[b].name);
      CHECK((buffers[b].offset >= end || buffers[b].offset + bytesPerUnit(buffers[b]) <= begin));
    }
  }
  return stridesOf(plan);
}

TEST_CASE("buffers lie side by side where regions of one at a time are too much") {
  const TaskProgram plan = planned(chainOf({4096, 3072, 1536, 4096}));
  CHECK(checkedStrides(plan) == 4096 + 3072 + 64);  // the peak and "out"; one at a time it is 2 * 4096
  CHECK(plan.regions.size() == 2);
}

TEST_CASE("buffers do not lie side by side for a saving of less than a 64th") {
  const TaskProgram plan = planned(chainOf({4096, 3072, 64, 4096}));
  CHECK(checkedStrides(plan) == 4096 + 3072 + 64 + 64);
  for (const Buffer& buffer : plan.buffers) CHECK(buffer.offset == 0);
}

TEST_CASE("chains of random rows are planned near their peak, each time alike") {
  std::mt19937 random(7);
  constexpr int kRounds = 100;
  double sum = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<int64_t> bytes(3 + random() % 30);
    for (int64_t& row : bytes) row = static_cast<int64_t>(64 * (1 + random() % 40));
    const TaskProgram plan = planned(chainOf(bytes)), again = planned(chainOf(bytes));
    CHECK(again == plan);
    const double over = static_cast<double>(checkedStrides(plan)) /
                        static_cast<double>(peakOfProgram(plan, Lifetimes(plan)).rows);
    CHECK(over >= 1);
    CHECK(over <= 1.15);
    sum += over;
  }
  CHECK(sum / kRounds <= 1.01);
}

TEST_CASE("rows of scalars share only with rows of their length") {
  TaskProgram program = chainOf({6, 2, 4});
  const auto share = [&] {
    const TaskProgram plan = planned(program);
    return plan.buffers[1].region == plan.buffers[3].region;
  };
  CHECK(share());
  program.buffers[3].type = DType::kF32;
  program.buffers[3].shape[1].size = 1;  // a row of one f32 after a row of three bf16
  CHECK_FALSE(share());
}

}  // namespace
}  // namespace sluice
