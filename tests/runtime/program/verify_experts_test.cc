// What verify() says of programs whose ranks own different numbers of experts.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "runtime/program/verify.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

MoeShape uneven(int ranks, int experts) {
  MoeShape shape;
  shape.ranks = ranks;
  shape.experts = experts;
  return shape;
}

std::string messageOf(const TaskProgram& program) {
  const auto verified = verify(program);
  return verified ? "accepted" : verified.error().message;
}

template <class T>
uint32_t indexOf(const std::vector<T>& table, const std::string& name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const T& one) { return one.name == name; });
  REQUIRE(found != table.end());
  return static_cast<uint32_t>(found - table.begin());
}

// The weight gradient of the down projection, which signals an event that counts all experts of the rank.
EventId countGradients(TaskProgram& p, ThresholdRule rule, int64_t factor) {
  const FamilyId grad{indexOf(p.families, "down_weight_grad")};
  p.events.push_back(
      {"all_grads", p.at(grad).entry, EventSpace::kOne, EventUnit::kTasks, rule, factor, false});
  const EventId all{static_cast<uint32_t>(p.events.size() - 1)};
  p.families[grad.value].signals = {all};
  return all;
}

// A last family that waits for `all`: a second sum by token.
void addSumBehind(TaskProgram& p, EventId all) {
  const FamilyId model{indexOf(p.families, "combine.sum")};
  for (uint32_t f = model.value + 1; f < p.families.size(); ++f)
    if (p.families[f].name == "combine.sum")  // of backward
      p.families[f].waits.push_back(all);
}

TEST_CASE("programs of ranks with different numbers of experts verify, also where some own none") {
  for (const bool fused : {false, true})
    for (const int groupSlots : {0, 2})
      for (const auto& [ranks, experts] : {std::pair{2, 5}, {3, 5}, {4, 5}, {3, 2}, {7, 1}}) {
        MoeShape shape = uneven(ranks, experts);
        shape.topK = 1;
        shape.fused = fused;
        shape.groupSlots = groupSlots;
        INFO(experts << " experts, " << ranks << " ranks");
        CHECK(messageOf(buildMoeProgram(shape)) == "accepted");
      }
}

TEST_CASE("the expert axis is E where ranks own different numbers of experts, and only there") {
  const auto withAxis = [](int experts, Dim axis) {
    TaskProgram p = buildMoeProgram(uneven(2, experts));
    p.buffers[indexOf(p.buffers, "down_weight")].shape[0] = axis;
    return messageOf(p);
  };
  CHECK(withAxis(5, {Extent::kFixed, 3}) ==
        "family 'down_proj' of entry 'forward': operand 'weight' is buffer 'down_weight' BF16 [3, 24, 32], "
        "expected "
        "BF16 [E, 24, 32]");
  CHECK(withAxis(4, {Extent::kExperts, 0}) ==
        "buffer 'down_weight': dimension 0 is the experts of a rank, but all have 2, expected that number");
  CHECK(withAxis(5, {Extent::kExperts, 3}) ==
        "buffer 'down_weight': dimension 0 has a run-time extent and size 3, expected 0");
  TaskProgram p = buildMoeProgram(uneven(2, 5));
  p.buffers[indexOf(p.buffers, "down_weight")].shape[1] = {Extent::kExperts, 0};
  CHECK(messageOf(p) ==
        "buffer 'down_weight': dimension 1 has a run-time extent, which only the first may have");
  p = buildMoeProgram(uneven(2, 4));
  p.regions.push_back({"grads", Extent::kExperts, 64, false, false});
  CHECK(messageOf(p) ==
        "region 'grads' is measured in experts of a rank, but all have 2, expected a number of bytes");
}

TEST_CASE("all experts of a rank are counted by their number, which is a constant where all have as many") {
  const auto counted = [](int experts, ThresholdRule rule, int64_t factor) {
    TaskProgram p = buildMoeProgram(uneven(2, experts));
    addSumBehind(p, countGradients(p, rule, factor));
    return messageOf(p);
  };
  const std::string where = "event 'all_grads' of entry 'backward' has threshold ",
                    but =
                        ", but family 'down_weight_grad' of entry "
                        "'backward' delivers ";
  CHECK(counted(5, ThresholdRule::kExpertsOfRank, 4) == "accepted");
  CHECK(counted(4, ThresholdRule::kConstant, 8) == "accepted");
  CHECK(counted(5, ThresholdRule::kConstant, 12) ==
        where + "constant (factor 12)" + but + "constant x experts of the rank (factor 4)");
  CHECK(counted(5, ThresholdRule::kExpertsOfRank, 5) == where + "constant x experts of the rank (factor 5)" +
                                                            but +
                                                            "constant x experts of the rank (factor 4)");
  CHECK(counted(4, ThresholdRule::kExpertsOfRank, 4) ==
        where + "constant x experts of the rank (factor 4)" + but + "constant (factor 8)");
}

// Backward's gradients wait for the pairs that come back, and nothing else does: a rank without experts has
// tokens, but no such task.
TEST_CASE("what only experts wait for is not waited for at a rank that owns none") {
  const auto onlyGradients = [](int ranks, int experts) {
    TaskProgram p = buildMoeProgram(uneven(ranks, experts));
    const uint32_t forward = 0;
    // forward's sum no longer waits: it reads nothing that is returned, which is refused for itself; so the
    // gradients of backward wait for what its own sum waits for, and the sum for them
    const FamilyId grad{indexOf(p.families, "down_weight_grad")};
    const auto returned = std::find_if(p.events.begin(), p.events.end(), [&](const EventArray& event) {
      return event.entry.value != forward && event.name == "returned";
    });
    const EventId back{static_cast<uint32_t>(returned - p.events.begin())};
    const EventId all =
        countGradients(p, p.expertsDiffer() ? ThresholdRule::kExpertsOfRank : ThresholdRule::kConstant,
                       int64_t{p.at(grad).tiles} * (p.expertsDiffer() ? 1 : p.maxExperts()));
    p.families[grad.value].waits.push_back(back);
    for (uint32_t f = grad.value + 1; f < p.families.size(); ++f)
      if (p.families[f].name == "combine.sum") p.families[f].waits = {all};
    return messageOf(p);
  };
  CHECK(onlyGradients(2, 4) == "accepted");
  CHECK(onlyGradients(2, 5) == "accepted");
  CHECK_THAT(onlyGradients(5, 3),
             Catch::Contains("'returned' of entry 'backward' is signalled by other ranks, "
                             "but no family waits for every one of its counters"));
}

}  // namespace
}  // namespace sluice
