// sluice bench: starts sluice-bench, which has the compiler and, where there is one, a peer in it. So the
// other subcommands start quickly and run where neither is installed.
#include "tools/cli/command.h"
#include "tools/launch/start_tool.h"

namespace sluice::tools {
namespace {

constexpr const char* kTool = "sluice-bench";

}  // namespace

Command addBench(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("bench", "measure layers beside the bounds of this machine");
  app->prefix_command();
  app->set_help_flag();
  return {app, [app]() -> Expected<int> {
            std::vector<std::string> arguments = {kTool};
            for (const std::string& argument : app->remaining()) arguments.push_back(argument);
            return startTool(kTool, std::move(arguments));
          }};
}

}  // namespace sluice::tools
