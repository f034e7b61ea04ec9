// The checks of a GPU, on the hardware model instead: they pass, and each fails where something is wrong.
#include "tools/gpu_check/checks.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <list>
#include <map>

#include "runtime/gpu/edited_backend.h"
#include "tests/gpu/model_probes.h"
#include "tests/runtime/gpu/model_group.h"

namespace sluice::tools {
namespace {

const std::string kProgram = "tests/tools/gpu_check/layer2.slp";

CheckPlan planOf() {
  return {.programs = {kProgram},
          .blocks = {3, 1},
          .runs = 2,
          .timedRuns = 1,
          .tokens = "9",
          .timeoutSeconds = 0.05,
          .lostSeconds = 0.02};  // of the model's clock
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

TEST_CASE("probes come first, and fail where the machine does") {
  ModelGroup group(1, {.hasOwnMemory = true});
  const BackendsOf backends = [&](int, int) -> Expected<BackendMaker> { return group.backends(); };
  CheckPlan plan{.probes = modelMachine(1)};
  std::vector<CheckResult> results;
  const ReportResult report = [&](const CheckResult& result) { results.push_back(result); };
  CHECK(runChecks(plan, backends, report));
  REQUIRE(results.size() > 10);
  for (const CheckResult& result : results) {
    INFO(result.name << ": " << result.text);
    CHECK((result.passed && result.name.starts_with("probe: ") && result.text != ""));
  }

  plan.programs = {"nowhere.slp"};
  results.clear();
  // the third of a box's 8 rows is lost
  plan.probes->launch = [launch = plan.probes->launch](const gpu::ProbeLaunch& probe, auto memory) {
    const Status status = launch(probe, memory);
    if (probe.probe == gpu::Probe::kCopyBox) std::memset(probe.arguments.out + 256, 0, 128);
    return status;
  };
  CHECK(!runChecks(plan, backends, report));
  CHECK(results.back().name == "nowhere.slp");
  std::vector<std::string> failed;
  for (const CheckResult& result : results)
    if (!result.passed) failed.push_back(result.name);
  CHECK(failed ==
        std::vector<std::string>{"probe: edges of boxes", "probe: boxes at any column", "nowhere.slp"});

  results.clear();
  plan.programs.clear();
  CHECK(!runChecks(plan, [](int, int) { return Error{"no GPU"}; }, report));
  REQUIRE(results.size() == 1);
  CHECK(results.front().name == "probes");
  CHECK(results.front().text == "no GPU");
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
