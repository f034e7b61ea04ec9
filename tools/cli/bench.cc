// sluice bench: starts sluice-bench, which contains the compiler and, if available, a peer. So the other
// subcommands start quickly, and run without either.
#include "tools/cli/command.h"
#include "tools/launch/run_command.h"

namespace sluice::tools {
namespace {

constexpr const char* kTool = "sluice-bench";

}  // namespace

Command addBench(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("bench", "measure layers, compared with the limits of this machine");
  app->prefix_command();
  app->set_help_flag();
  return {app, [app]() -> Expected<int> {
            std::vector<std::string> arguments = {kTool};
            for (const std::string& argument : app->remaining()) arguments.push_back(argument);
            return startTool(kTool, std::move(arguments));
          }};
}

}  // namespace sluice::tools
