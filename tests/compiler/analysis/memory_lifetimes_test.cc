#include <catch2/catch.hpp>

#include "compiler/analysis/memory.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

BufferId bufferNamed(const TaskProgram& program, std::string_view name) {
  for (uint32_t b = 0; b < program.buffers.size(); ++b)
    if (program.buffers[b].name == name) return BufferId{b};
  FAIL("no buffer " << name);
  return {};
}

MoeShape wide() {
  MoeShape shape;
  shape.hidden = 64;
  shape.intermediate = 48;
  return shape;
}

TEST_CASE("buffers may share if the later writer comes after every user of the earlier") {
  const TaskProgram program = buildMoeProgram(wide());
  const Lifetimes lifetimes(program);
  const auto share = [&](const char* a, const char* b) {
    const bool found = lifetimes.mayShare(bufferNamed(program, a), bufferNamed(program, b));
    CHECK(found == lifetimes.mayShare(bufferNamed(program, b), bufferNamed(program, a)));
    return found;
  };
  CHECK(share("rows_dx", "act_grad_y"));
  CHECK_FALSE(share("rows_dx", "gate_up_grad"));  // gate_grad reads one and writes the other
  CHECK_FALSE(share("rows_dy", "rows_dx"));       // a weight gradient reads rows_dy at any time
  CHECK_FALSE(share("row_weights", "row_weight_grad"));
  CHECK(share("combine.returned", "backward.combine.returned"));  // of different entries
  CHECK_FALSE(share("rows_x", "rows_dy"));                        // rows_x is saved
  CHECK_FALSE(share("rows_dx", "backward.combine.returned"));     // R and P have nothing in common
  CHECK_FALSE(share("rows_dx", "rows_dx"));
}

TEST_CASE("a buffer is live where it is touched, and a saved one from its writer to its last reader") {
  const TaskProgram program = buildMoeProgram({});
  const Lifetimes lifetimes(program);
  const auto live = [&](const char* name, uint32_t entry) {
    return lifetimes.isLive(bufferNamed(program, name), EntryId{entry});
  };
  CHECK((live("down_out", 0) && !live("down_out", 1)));
  CHECK((!live("rows_dy", 0) && live("rows_dy", 1)));
  CHECK((live("rows_x", 0) && live("rows_x", 1)));
}

TEST_CASE("the peak is what must be live at once, by extent") {
  const TaskProgram program = buildMoeProgram(wide());
  const Lifetimes lifetimes(program);
  const int64_t h = 2 * 64, i = 2 * 48;
  const Formula saved{0, 0, h + 2 * i + i, 0};
  // down_out, and what comes back.
  CHECK(peakOfEntry(program, lifetimes, EntryId{0}) == Formula{0, 0, saved.rows + h, h});
  // rows_dy, gate_up_grad, the wider of act_grad_y and rows_dx, and the two row scalars.
  const int64_t backward = saved.rows + h + 2 * i + h + 4 + 4;
  CHECK(peakOfEntry(program, lifetimes, EntryId{1}) == Formula{0, 0, backward, h + 4});
  CHECK(peakOfProgram(program, lifetimes) == Formula{0, 0, backward, h + 4});
}

TEST_CASE("a plan takes no less than the peak, whatever the shape") {
  const int hidden = GENERATE(32, 64, 200, 2048), intermediate = GENERATE(24, 64, 768);
  MoeShape shape;
  shape.hidden = hidden;
  shape.intermediate = intermediate;
  TaskProgram program = buildMoeProgram(shape);
  program.regions.clear();
  for (Buffer& buffer : program.buffers) buffer.region = {};
  const TaskProgram plan = *planMemory(program);
  Formula planned;
  for (const Region& region : plan.regions) planned.at(region.extent) += region.stride;
  const Formula peak = peakOfProgram(program, Lifetimes(program));
  for (Extent extent : {Extent::kFixed, Extent::kTokens, Extent::kRows, Extent::kPairs})
    CHECK(planned.at(extent) >= peak.at(extent));
}

TEST_CASE("a formula has the value of a balanced step") {
  const Formula bytes{5, 3, 2, 1, 7};
  Formula sum = bytes;
  sum += bytes;
  CHECK(sum == Formula{10, 6, 4, 2, 14});
  TaskProgram program;
  program.mesh.ep = 4;
  program.experts = 7;
  program.maxTokens = 10;
  program.topK = 4;
  CHECK(inBalancedStep(program, bytes) == 5 + 3 * 10 + 2 * 40 + 40 + 7 * 2);
  program.mesh.tp = 3;  // all ranks of a group get each row, and return it
  CHECK(inBalancedStep(program, bytes) == 5 + 3 * 10 + 2 * 120 + 120 + 7 * 2);
  program.mesh.tokens = TokenHolders::kSame;
  CHECK(inBalancedStep(program, bytes) == 5 + 3 * 10 + 2 * 40 + 120 + 7 * 2);
}

}  // namespace
}  // namespace sluice
