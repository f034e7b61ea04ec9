#include "compiler/analysis/memory.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "tests/compiler/analysis/moe_draft.h"

namespace sluice {
namespace {

RegionId regionOf(const Draft& draft, const MemoryPlan& plan, std::string_view name) {
  for (size_t b = 0; b < draft.program.buffers.size(); ++b)
    if (draft.program.buffers[b].name == name) return plan.of[b];
  FAIL("no buffer " << name);
  return {};
}

TEST_CASE("buffers of one entry share a region only where the schedule orders them") {
  MoeShape shape;
  shape.hidden = 64;
  shape.intermediate = 48;
  const Draft draft = moeDraft(shape);
  const MemoryPlan plan = planMemory(draft);
  const auto region = [&](const char* name) { return regionOf(draft, plan, name); };
  CHECK(region("rows_dx") == region("act_grad_y"));
  CHECK(region("rows_dy") != region("rows_dx"));       // a weight gradient reads rows_dy at any time
  CHECK(region("gate_up_grad") != region("rows_dx"));  // gate_grad reads one and writes the other
  CHECK(region("row_weights") != region("row_weight_grad"));
}

TEST_CASE("buffers of different entries share regions unless they are saved") {
  const Draft draft = moeDraft();
  const MemoryPlan plan = planMemory(draft);
  CHECK(regionOf(draft, plan, "combine.returned") == regionOf(draft, plan, "backward.combine.returned"));
  std::map<RegionId, int> tenants;
  for (RegionId id : plan.of)
    if (id) ++tenants[id];
  for (const char* saved : {"rows_x", "gate_up", "act"}) {
    const RegionId id = regionOf(draft, plan, saved);
    CHECK(plan.regions[id.value].saved);
    CHECK(tenants[id] == 1);
  }
}

TEST_CASE("regions hold their buffers, are aligned, and symmetric where other ranks write") {
  MoeShape shape;
  shape.hidden = 50;
  shape.intermediate = 9;
  const Draft draft = moeDraft(shape);
  const MemoryPlan plan = planMemory(draft);
  for (size_t b = 0; b < plan.of.size(); ++b) {
    const Buffer& buffer = draft.program.buffers[b];
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
    CHECK(plan.regions[regionOf(draft, plan, remote).value].symmetric);
  CHECK_FALSE(plan.regions[regionOf(draft, plan, "row_weight_grad").value].symmetric);
}

TEST_CASE("outputs of rows get regions of their own, inputs none") {
  Draft draft = moeDraft();
  for (Buffer& buffer : draft.program.buffers) {
    if (buffer.name == "down_out") buffer.role = Role::kOutput;
    if (buffer.name == "rows_x") buffer.role = Role::kInput;
  }
  const MemoryPlan plan = planMemory(draft);
  CHECK(regionOf(draft, plan, "rows_x").none());
  const RegionId own = regionOf(draft, plan, "down_out");
  CHECK_FALSE(own.none());
  CHECK(std::count(plan.of.begin(), plan.of.end(), own) == 1);
}

}  // namespace
}  // namespace sluice
