// The flags that say what step a command looks at: routing, tokens, seed. For commands that bind a step
// without running it.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "runtime/base/expected.h"
#include "tools/simulate/steps.h"

namespace sluice::tools {

struct StepFlags {
  std::string program, target, routing = "uniform", tokens;
  uint64_t seed = 1;

  // Returns the target of the program, if no other is given.
  const std::string& chosenTarget(const TaskProgram& of) const { return target.empty() ? of.target : target; }
};

// The program and these flags.
void addStepFlags(CLI::App& app, StepFlags& flags);

// Errors name the file, of the program or of the inputs, or a flag.
Expected<StepRouting> routingFor(const TaskProgram& program, const StepFlags& flags);

}  // namespace sluice::tools
