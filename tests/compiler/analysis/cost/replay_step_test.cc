#include "compiler/analysis/cost/replay_step.h"

#include <catch2/catch.hpp>
#include <numeric>

namespace sluice {
namespace {

CostProblem shapeOf(int64_t ranks, int64_t experts, int64_t tokens, int32_t slotRows) {
  CostProblem problem;
  problem.step = {ranks, experts, 2, tokens};
  problem.slotRows = slotRows;
  return problem;
}

ReplayStep stepOf(const CostProblem& problem) {
  return replayStepOf(problem, expectRows({}, problem.step),
                      static_cast<int32_t>(problem.step.experts / problem.step.ranks));
}

TEST_CASE("slots are equal, rounded to 16 rows, and hold all rows of their expert") {
  const CostProblem problem = shapeOf(1, 4, 250, 64);
  const ReplayStep step = stepOf(problem);
  CHECK(std::accumulate(step.expertRows.begin(), step.expertRows.end(), 0) == 500);
  std::vector<int32_t> rows(4), slots(4);
  for (const ReplaySlot& slot : step.slots) {
    CHECK(slot.rows <= 64);
    rows[static_cast<size_t>(slot.expert)] += slot.rows;
    ++slots[static_cast<size_t>(slot.expert)];
  }
  CHECK(rows == step.expertRows);
  CHECK(slots == step.expertSlots);
}

TEST_CASE("own pieces are sent first, the others expert by expert") {
  const ReplayStep step = stepOf(shapeOf(4, 8, 256, 32));
  bool others = false;
  int32_t expert = 0;
  for (const ReplayPiece& piece : step.sends) {
    if (piece.own) CHECK(!others);
    others |= !piece.own;
    if (piece.own) continue;
    CHECK(piece.expert >= expert);
    expert = piece.expert;
  }
  CHECK(others);
  CHECK(step.sends.size() == step.returns.size());
  for (size_t i = 1; i < step.returns.size(); ++i) CHECK(step.returns[i].slot >= step.returns[i - 1].slot);
}

TEST_CASE("slots are numbered as their last rows are sent") {
  const ReplayStep step = stepOf(shapeOf(4, 8, 256, 32));
  std::vector<size_t> last(step.slots.size());
  for (size_t i = 0; i < step.sends.size(); ++i)
    if (!step.sends[i].own) last[static_cast<size_t>(step.sends[i].slot)] = i + 1;
  CHECK(std::is_sorted(last.begin(), last.end()));
}

TEST_CASE("groups take neighbouring slots of one expert together, evenly") {
  CostProblem problem = shapeOf(1, 2, 320, 64);
  problem.groupRows = 128;
  const ReplayStep step = stepOf(problem);
  int32_t rows = 0;
  for (const ReplayGroup& group : step.groups) {
    CHECK(group.slots >= 1);
    CHECK(group.slots <= 2);
    rows += group.rows;
  }
  CHECK(rows == 640);
  for (const ReplaySlot& slot : step.slots)
    CHECK(step.groups[static_cast<size_t>(slot.group)].expert == slot.expert);
}

TEST_CASE("few rows are some experts with rows, not none") {
  const ReplayStep step = stepOf(shapeOf(1, 256, 4, 128));
  CHECK(std::accumulate(step.expertRows.begin(), step.expertRows.end(), 0) == 8);
  CHECK(step.slots.size() == 8);
}

TEST_CASE("all experts of the rank that owns most are the whole step") {
  const CostProblem problem = shapeOf(4, 7, 70, 32);
  const ExpectedRows rows = expectRows({}, problem.step);
  const ReplayStep all = replayStepOf(problem, rows, 2), half = replayStepOf(problem, rows, 1);
  CHECK(all.part == 1);
  CHECK(all.tokens == 70);
  CHECK(std::accumulate(all.expertRows.begin(), all.expertRows.end(), 0) == 160);
  CHECK(half.part == 0.5);
  CHECK(half.tokens == 35);
}

}  // namespace
}  // namespace sluice
