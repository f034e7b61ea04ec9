#include <catch2/catch.hpp>

#include "compiler/analysis/lanes.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

TEST_CASE("priorities of the moe layer are those of the schedule document") {
  const TaskProgram program = buildMoeProgram({});
  const std::vector<int32_t> priority = rankFamilies(program);
  for (const Lane& lane : program.lanes) {
    const FamilyId family = lane.seats.front().front().family;
    INFO("family " << program.at(family).name << " of entry " << lane.entry.value);
    CHECK(priority[family.value] == lane.priority);
  }
}

// The families of an entry, by priority.
std::string orderOf(const TaskProgram& program, uint32_t entry, LaneRule rule) {
  const std::vector<int32_t> priority = rankFamilies(program, std::vector<LaneRule>(entry + 1, rule));
  std::vector<std::string> names;
  for (size_t f = 0; f < priority.size(); ++f) {
    if (program.families[f].entry.value != entry) continue;
    names.resize(std::max(names.size(), static_cast<size_t>(priority[f]) + 1));
    names[static_cast<size_t>(priority[f])] = program.families[f].name;
  }
  std::string all;
  for (const std::string& name : names) all += name + " ";
  return all;
}

TEST_CASE("each rule puts communication first, and the chain and the gradients as it says") {
  const TaskProgram program = buildMoeProgram({});
  CHECK(orderOf(program, 0, LaneRule::kFromEnd) ==
        "dispatch combine.return combine.sum down_proj swiglu up_proj ");
  CHECK(orderOf(program, 0, LaneRule::kFromBegin) ==
        "dispatch combine.return up_proj swiglu down_proj combine.sum ");
  CHECK(orderOf(program, 1, LaneRule::kFromEnd) ==
        "dispatch combine.return combine.sum gate_grad swiglu_grad act_grad down_weight_grad "
        "gate_up_weight_grad ");
  CHECK(orderOf(program, 1, LaneRule::kFromEndWithGrads) ==
        "dispatch combine.return combine.sum gate_grad gate_up_weight_grad swiglu_grad act_grad "
        "down_weight_grad ");
  CHECK(orderOf(program, 1, LaneRule::kFromBeginWithGrads) ==
        "dispatch combine.return act_grad down_weight_grad swiglu_grad gate_grad gate_up_weight_grad "
        "combine.sum ");
}

TEST_CASE("a rule is for its entry only; entries without one go from the end") {
  const TaskProgram program = buildMoeProgram({});
  const std::vector<LaneRule> rules = {LaneRule::kFromBegin};
  const std::vector<int32_t> some = rankFamilies(program, rules), none = rankFamilies(program);
  bool first = true, second = true;
  for (size_t f = 0; f < some.size(); ++f)
    (program.families[f].entry.value == 0 ? first : second) &= some[f] == none[f];
  CHECK(!first);
  CHECK(second);
}

}  // namespace
}  // namespace sluice
