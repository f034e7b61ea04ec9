#include "compiler/analysis/events.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/compiler/analysis/moe_draft.h"

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

TEST_CASE("the events of the moe layer are those of the schedule document") {
  const Draft expected = moeDraft();
  TaskProgram bare = expected.program;
  bare.events.clear();
  const EventPlan plan = std::get<EventPlan>(planEvents(bare));
  CHECK(plan.events.size() == expected.program.events.size());
  for (size_t f = 0; f < bare.families.size(); ++f) {
    INFO("family " << bare.families[f].name << " of entry " << bare.families[f].entry.value);
    CHECK(resolve(plan.events, plan.sync[f].waits) ==
          resolve(expected.program.events, expected.sync[f].waits));
    CHECK(resolve(plan.events, plan.sync[f].signals) ==
          resolve(expected.program.events, expected.sync[f].signals));
  }
}

TEST_CASE("a read before its write is found") {
  TaskProgram bare = moeDraft().program;
  std::swap(bare.families[1], bare.families[2]);  // swiglu before up_proj
  bare.buffers[bare.families[2].writes[0].value].role = Role::kTemp;
  const Finding finding = std::get<Finding>(planEvents(bare));
  CHECK(finding.at == 1);
  CHECK_THAT(finding.message, Contains("'swiglu' reads 'gate_up', which no family before it writes"));
}

TEST_CASE("two writers of a buffer are found with both places") {
  TaskProgram bare = moeDraft().program;
  bare.families[3].writes[0] = bare.families[1].writes[0];
  const Finding finding = std::get<Finding>(planEvents(bare));
  CHECK(finding.at == 3);
  CHECK(finding.noteAt == 1);
  CHECK_THAT(finding.message, Contains("'down_proj' writes 'gate_up', which 'up_proj' already writes"));
}

TEST_CASE("sends that nobody waits for are found") {
  TaskProgram bare = moeDraft().program;
  bare.families.resize(1);
  CHECK_THAT(std::get<Finding>(planEvents(bare)).message, Contains("nothing reads what 'dispatch' sends"));
}

TEST_CASE("a family that reads its own output is found") {
  TaskProgram bare = moeDraft().program;
  bare.families[1].reads[0] = bare.families[1].writes[0];
  CHECK_THAT(std::get<Finding>(planEvents(bare)).message,
             Contains("'up_proj' reads 'gate_up', which it writes"));
}

TEST_CASE("spaces that no event joins are found") {
  TaskProgram bare = moeDraft().program;
  bare.families[5].reads[0] = bare.families[3].writes[0];  // the sum reads rows, not what was returned
  CHECK_THAT(std::get<Finding>(planEvents(bare)).message, Contains("no event leads from its space"));
}

}  // namespace
}  // namespace sluice
