#include "compiler/analysis/coverage.h"

#include <catch2/catch.hpp>

#include "tests/compiler/analysis/moe_draft.h"

namespace sluice {
namespace {

TEST_CASE("coverage follows events with the wider scope and ends at remote ones") {
  const Draft draft = moeDraft();
  const CoverageTable table = computeCoverage(draft);
  const auto scope = [&](const char* consumer, const char* producer) {
    return table[familyNamed(draft.program, 1, consumer).value]
                [familyNamed(draft.program, 1, producer).value];
  };
  CHECK(scope("act_grad", "dispatch") == Scope::kSlot);
  CHECK(scope("gate_grad", "act_grad") == Scope::kSlot);
  CHECK(scope("gate_grad", "dispatch") == Scope::kSlot);
  CHECK(scope("down_weight_grad", "dispatch") == Scope::kExpert);
  CHECK(scope("gate_up_weight_grad", "act_grad") == Scope::kExpert);
  CHECK(scope("gate_up_weight_grad", "gate_grad") == Scope::kNone);
  CHECK(scope("combine.sum", "combine.return") == Scope::kAll);
  CHECK(scope("combine.sum", "gate_grad") == Scope::kNone);
  CHECK(scope("gate_grad", "down_weight_grad") == Scope::kNone);
}

}  // namespace
}  // namespace sluice
