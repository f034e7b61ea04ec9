// The checks of a GPU, on the hardware model instead: they pass, and each fails where something is wrong.
#include "tools/gpu_check/checks.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <list>
#include <map>
#include <set>

#include "runtime/gpu/edited_backend.h"
#include "tests/runtime/gpu/model_group.h"
#include "tests/tools/gpu_check/model_machine.h"
#include "tools/gpu_check/ladder.h"

namespace sluice::tools {
namespace {

const std::string kProgram = "tests/tools/gpu_check/layer2.slp";

CheckPlan planOf() {
  return {.programs = {kProgram},
          .blocks = {3, 1},
          .runs = 2,
          .timedRuns = 1,
          .tokens = "9",
          .timeoutSeconds = 60,
          .lostSeconds = 60};
}

// Each result by what it checks; `edit` as for EditedBackend.
std::map<std::string, CheckResult> resultsWith(const CheckPlan& plan, const EditTables& edit) {
  std::list<ModelGroup> groups;
  std::map<std::string, CheckResult> results;
  const BackendsOf backends = [&](int ranks, int blocks) -> Expected<BackendMaker> {
    groups.emplace_back(
        ranks,
        ModelOptions{.blocks = blocks == 0 ? 2 : blocks, .seed = groups.size() + 1, .hasOwnMemory = true});
    BackendMaker made = groups.back().backends();
    return edit ? editedBackends(std::move(made), edit) : made;
  };
  const bool passed = runChecks(plan, backends, [&](const CheckResult& result) {
    results[result.name.substr(std::min(kProgram.size() + 2, result.name.size()))] = result;
  });
  bool all = true;
  for (const auto& [name, result] : results) all &= result.passed;
  CHECK(passed == all);
  return results;
}

TEST_CASE("all checks pass on the model, with figures and the report of the lost signal") {
  const auto results = resultsWith(planOf(), {});
  CHECK(results.size() == 5);
  for (const auto& [name, result] : results) {
    INFO(name << ": " << result.text);
    CHECK(result.passed);
  }
  CHECK(results.at("results of CPU threads").text.find("differs most, by ") != std::string::npos);
  CHECK(results.at("same bits for any number of blocks").text == "3, 1 blocks of a rank");
  CHECK(results.at("same bits in every run").text.starts_with("2 runs, hash "));
  CHECK(results.at("report of a lost signal").text.find("rank 0, core ") != std::string::npos);
  CHECK(results.at("times").text.starts_with("forward "));
}

TEST_CASE("a named check reports what it finds, or why it fails") {
  const CheckMachine right = modelMachineWith(""), wrong = modelMachineWith("boxes");
  const auto resultOf = [](const CheckMachine& machine, const std::string& name) {
    std::vector<NamedCheck> named;
    for (const NamedCheck& each : makeLadder(machine, {.cases = 1, .timeoutSeconds = 0.05}))
      if (each.name == name) named.push_back(each);
    REQUIRE(named.size() == 1);
    CheckResult found;
    const bool passed = runLadder(named, [&](const CheckResult& result) { found = result; });
    CHECK(passed == found.passed);
    CHECK(found.name == name);
    return found;
  };
  CHECK(resultOf(right, "machine").figures.at("multiprocessors") == 2);
  CHECK(resultOf(right, "edges of boxes").passed);
  const CheckResult result = resultOf(wrong, "edges of boxes");
  CHECK(!result.passed);
  CHECK(result.text.find("its row 2, column 0: found 0x0, expected ") != std::string::npos);
  CHECK(resultOf(wrong, "stores of boxes").passed);
}

TEST_CASE("the rungs of the ladder come in their order, and no name twice") {
  const CheckMachine machine = modelMachineWith("");
  const std::vector<NamedCheck> all = makeLadder(machine, {});
  CHECK(std::ranges::is_sorted(all, {}, &NamedCheck::rung));
  CHECK(all.front().rung == kRungOfMachine);
  CHECK(all.back().rung == kRungOfRates);
  std::set<std::string> names;
  for (const NamedCheck& each : all) names.insert(each.name);
  CHECK(names.size() == all.size());
}

TEST_CASE("a kernel that computes something else, or does not end, fails the checks with a reason") {
  const auto wrong = resultsWith(planOf(), [](StepTables& tables) {
    for (gpu::RowCopy& copy : tables.rowCopies) copy.rows /= 2;
  });
  CHECK(!wrong.at("results of CPU threads").passed);
  const auto stuck = resultsWith(planOf(), [](StepTables& tables) { loseSignal(tables); });
  CHECK(!stuck.at("results of CPU threads").passed);
  CHECK(stuck.at("results of CPU threads").text.find("for event ") != std::string::npos);
  CHECK(!stuck.at("times").passed);
}

TEST_CASE("a program that is not there fails") {
  CheckPlan plan = planOf();
  plan.programs = {"nowhere.slp"};
  const auto absent = resultsWith(plan, {});
  REQUIRE(absent.size() == 1);
  CHECK(!absent.begin()->second.passed);
  CHECK(absent.begin()->second.text.find("nowhere.slp") != std::string::npos);
}

}  // namespace
}  // namespace sluice::tools
