#include <algorithm>
#include <catch2/catch.hpp>

#include "compiler/analysis/cost/choice.h"
#include "runtime/program/space_table.h"
#include "tests/compiler/analysis/cost/problem_parts.h"

namespace sluice {
namespace {

CostProblem shapeOf(int64_t ranks, int64_t experts, int64_t tokens, int32_t slotRows) {
  CostProblem problem = problemOf({{static_cast<int32_t>(ranks)}, experts, 2, tokens}, 1);
  for (Space& space : problem.program.spaces)
    if (cuttingSpace(space.kind) == SpaceKind::kRows) space.slotSize = slotRows;
  return problem;
}

ExpectedStep stepOf(const CostProblem& problem) {
  return expectStep(problem, expectRows({}, problem.step()),
                    problem.program.experts / problem.program.mesh.peers());
}

int32_t rowsOf(const ExpectedStep& step, size_t expert) {
  return step.tables.expertRow[expert + 1] - step.tables.expertRow[expert];
}

TEST_CASE("slots are equal, rounded to 16 rows, and hold all rows of their expert") {
  const CostProblem problem = shapeOf(1, 4, 250, 64);
  const ExpectedStep step = stepOf(problem);
  CHECK(step.tables.rows == 500);
  std::vector<int32_t> rows(4), slots(4);
  for (const Slot& slot : step.tables.slots) {
    CHECK(slot.rows <= 64);
    rows[static_cast<size_t>(slot.expert)] += slot.rows;
    ++slots[static_cast<size_t>(slot.expert)];
  }
  for (size_t expert = 0; expert < 4; ++expert) CHECK(rows[expert] == rowsOf(step, expert));
  CHECK(slots == step.tables.expertSlots);
}

TEST_CASE("own pieces are sent first, the others expert by expert") {
  const ExpectedStep step = stepOf(shapeOf(4, 8, 256, 32));
  bool others = false;
  int32_t expert = 0;
  for (const Piece& piece : step.tables.sends) {
    const bool own = piece.peer == step.rank;
    if (own) CHECK(!others);
    others |= !own;
    if (own) continue;
    CHECK(piece.expert >= expert);
    expert = piece.expert;
  }
  CHECK(others);
  const auto& returns = step.tables.returns;
  CHECK(step.tables.sends.size() == returns.size());
  for (size_t i = 1; i < returns.size(); ++i) CHECK(returns[i].slot >= returns[i - 1].slot);
}

TEST_CASE("a step with own rows last has the slots of one with own rows first, in reverse") {
  const CostProblem problem = shapeOf(2, 2, 256, 32);
  const ExpectedRows rows = expectRows({}, problem.step());
  const ExpectedStep first = expectStep(problem, rows, 1, false), last = expectStep(problem, rows, 1, true);
  REQUIRE(first.tables.slots.size() == last.tables.slots.size());
  for (size_t i = 0; i < first.tables.slots.size(); ++i)
    CHECK(first.tables.slots[i].row == last.tables.slots[first.tables.slots.size() - 1 - i].row);
  CHECK(first.tables.slots.front().row != last.tables.slots.front().row);
}

TEST_CASE("slots are numbered as their last rows are sent") {
  const ExpectedStep step = stepOf(shapeOf(4, 8, 256, 32));
  std::vector<size_t> last(step.tables.slots.size());
  const auto& sends = step.tables.sends;
  for (size_t i = 0; i < sends.size(); ++i)
    if (sends[i].peer != step.rank) last[static_cast<size_t>(sends[i].slot)] = i + 1;
  CHECK(std::is_sorted(last.begin(), last.end()));
}

TEST_CASE("groups take neighbouring slots of one expert together, evenly") {
  CostProblem problem = shapeOf(1, 2, 320, 64);
  problem.program.spaces[static_cast<size_t>(SpaceKind::kGroups)].slotSize = 128;
  const ExpectedStep step = stepOf(problem);
  int32_t rows = 0;
  for (const SlotGroup& group : step.tables.groups) {
    CHECK(group.slots >= 1);
    CHECK(group.slots <= 2);
    rows += group.rows;
  }
  CHECK(rows == 640);
  for (size_t slot = 0; slot < step.tables.slots.size(); ++slot)
    CHECK(step.tables.groups[static_cast<size_t>(step.tables.groupOf[slot])].expert ==
          step.tables.slots[slot].expert);
}

TEST_CASE("few rows are some experts with rows, not none") {
  const ExpectedStep step = stepOf(shapeOf(1, 256, 4, 128));
  CHECK(step.tables.rows == 8);
  CHECK(step.tables.slots.size() == 8);
}

TEST_CASE("all experts of the rank that owns most are the whole step") {
  const CostProblem problem = shapeOf(4, 7, 70, 32);
  const ExpectedRows rows = expectRows({}, problem.step());
  const ExpectedStep all = expectStep(problem, rows, 2), half = expectStep(problem, rows, 1);
  CHECK(all.part == 1);
  CHECK(all.tables.tokens == 70);
  CHECK(all.tables.rows == 160);
  CHECK(half.part == 0.5);
  CHECK(half.tables.tokens == 35);
}

// What arrives is what the thresholds of slots and of returned rows expect.
TEST_CASE("the rows that are sent fill the slots, and as many return as come back") {
  for (const Mesh& mesh : {Mesh{1}, Mesh{3}, Mesh{8}, Mesh{2, 2}, Mesh{2, 2, TokenHolders::kSame},
                           Mesh{1, 4, TokenHolders::kSame}}) {
    INFO("ep " << mesh.ep << ", tp " << mesh.tp << ", sources " << mesh.sources());
    CostProblem problem = shapeOf(1, 8 * mesh.ep, 100, 32);
    problem.program.mesh = mesh;
    for (const int32_t experts : {1, 3, 8}) {
      const ExpectedStep step = expectStep(problem, expectRows({}, problem.step()), experts);
      std::vector<int32_t> sent(step.tables.slots.size());
      for (const Piece& piece : step.tables.sends) sent[static_cast<size_t>(piece.slot)] += piece.rows;
      for (size_t slot = 0; slot < sent.size(); ++slot) CHECK(sent[slot] == step.tables.slots[slot].rows);
      int32_t returned = 0;
      for (const Piece& piece : step.tables.returns) returned += piece.rows;
      CHECK(step.tables.returned == returned);
      CHECK(returned > 0);
    }
  }
}

}  // namespace
}  // namespace sluice
