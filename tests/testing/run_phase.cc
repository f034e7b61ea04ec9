// run-phase PHASE [--communication-cores N] [--rule end|begin|end-grads|begin-grads]...   for tests: reads
// the text of a program from standard input, runs one phase of the compiler on it and prints the program that
// it makes. A rule is for one entry. Exit status: 0 done, 1 an error of the text or the phase, 2 wrong usage.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>

#include "compiler/analysis/task_phases.h"
#include "runtime/program/text.h"

namespace sluice {
namespace {

int fail(const std::string& message, int status) {
  std::cerr << message << "\n";
  return status;
}

// By LaneRule.
constexpr std::array<std::string_view, 4> kRules = {"end", "begin", "end-grads", "begin-grads"};

bool take(std::string_view name, const std::string& value, TaskOptions& options) {
  if (name == "--communication-cores") {
    options.communicationCores = std::atoi(value.c_str());
    return true;
  }
  const auto rule = std::find(kRules.begin(), kRules.end(), value);
  if (name != "--rule" || rule == kRules.end()) return false;
  options.laneRules.push_back(static_cast<LaneRule>(rule - kRules.begin()));
  return true;
}

int run(const TaskPhase& phase, const TaskOptions& options) {
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  Expected<TaskProgram> program = parseProgram(text, "-");
  if (!program) return fail(program.error().message, 1);
  const Expected<TaskProgram> made = phase.run(std::move(*program), options);
  if (!made) return fail(made.error().message, 1);
  TextSelection all;
  all.tables = true;
  std::cout << printSections(*made, all);
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  using namespace sluice;
  const std::string_view name = argc > 1 ? argv[1] : "";
  TaskOptions options;
  for (int i = 2; i < argc; i += 2)
    if (i + 1 == argc || !take(argv[i], argv[i + 1], options))
      return fail(std::string("wrong usage at ") + argv[i], 2);
  for (const TaskPhase& phase : taskPhases())
    if (phase.name == name) return run(phase, options);
  return fail("unknown phase '" + std::string(name) + "'", 2);
}
