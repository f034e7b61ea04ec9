// The ladder: what is checked of a GPU before whole programs. Each rung stands on those below it: where one
// fails, what is found above it means little.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/gpu_check/check_machine.h"
#include "tools/gpu_check/probes.h"

namespace sluice::tools {

// What a check has found where nothing is wrong.
struct Finding {
  Finding(std::string words, std::map<std::string, double> numbers = {})
      : text(std::move(words)), figures(std::move(numbers)) {}

  std::string text;
  std::map<std::string, double> figures;
};

struct NamedCheck {
  int rung;
  std::string name;
  std::function<Expected<Finding>()> run;
};

inline constexpr int kRungOfMachine = 0;  // its driver, its kind, its memory
inline constexpr int kRungOfLaunch = 1;   // a launch as large as the kernel's, and the kernel without tasks
inline constexpr int kRungOfProbes = 2;   // facts of the hardware
inline constexpr int kRungOfCases = 3;    // cases of the kernel's own tests
inline constexpr int kRungOfRates = 4;    // how long its parts take

struct LadderPlan {
  int cases = 40;              // of each kind of case
  uint64_t firstSeed = 1;      // of them
  double timeoutSeconds = 10;  // of a wait of the kernel; probes have their own
};

// In the order in which they make sense. The machine outlives them.
std::vector<NamedCheck> makeLadder(const CheckMachine& machine, const LadderPlan& plan);

// The cases of tests/gpu (case_checks.cc) and rates (rates.cc).
std::vector<NamedCheck> caseChecks(const CheckMachine& machine, const LadderPlan& plan);
std::vector<NamedCheck> rateChecks(const CheckMachine& machine, const LadderPlan& plan);

// Runs checks; each result is reported as soon as it is known. Returns whether all passed.
bool runLadder(const std::vector<NamedCheck>& checks, const ReportResult& report);

}  // namespace sluice::tools
