// The subcommands of `sluice`, one file each. Each adds itself to the application; main() runs the requested
// one.
//
// An action returns the exit status, or an error, which main() prints as one line, `sluice: error: ...`, with
// exit status 1. Errors in the command line itself are usage errors: exit status 2.
#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>

#include "runtime/base/expected.h"

namespace sluice::tools {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

struct Command {
  CLI::App* app = nullptr;  // owned by its parent
  std::function<Expected<int>()> action;
};

inline Expected<int> succeededIf(const Status& done) {
  return done ? Expected<int>(kExitSuccess) : done.error();
}

// The parameter of commands that take one program.
inline void addProgram(CLI::App& app, std::string& path) {
  app.add_option("program", path, "program file")->required()->type_name("layer.slp");
}

// Makes a CLI11 validator from a parser.
template <class Parser>
auto parsesBy(Parser parser) {
  return [parser](const std::string& text) {
    const auto result = parser(text);
    return result ? std::string() : result.error().message;
  };
}

// A CLI11 validator to use with a range, because CLI11 accepts NaN in every range.
inline std::string notNan(const std::string& text) {
  return std::isnan(std::strtod(text.c_str(), nullptr)) ? "found " + text + ", expected a number" : "";
}

Command addRun(CLI::App& parent);
Command addDump(CLI::App& parent);
Command addAs(CLI::App& parent);
Command addVerify(CLI::App& parent);
Command addDiff(CLI::App& parent);
Command addMakeInputs(CLI::App& parent);
Command addCheck(CLI::App& parent);
Command addCalibrate(CLI::App& parent);
Command addSimulate(CLI::App& parent);
Command addExplain(CLI::App& parent);
Command addBench(CLI::App& parent);
Command addDoctor(CLI::App& parent);
Command addPlan(CLI::App& parent);
Command addReport(CLI::App& parent);

// The main function of sluice and sluice-bench, called once, while the process has one thread. Declares the
// options, parses the command line and runs the action that `declare` returned. Prints an error
// as one line, `sluice: error: ...`. Returns the exit status: the action's, 1 after its error, 2 after a
// wrong command line, which callbacks of the application may refuse by a CLI::ValidationError.
int runMain(const char* description, const char* name, int argc, char** argv,
            const std::function<std::function<Expected<int>()>(CLI::App&)>& declare);

}  // namespace sluice::tools
