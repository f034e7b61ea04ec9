// sluice: runs, simulates, shows, verifies and compares task programs. The subcommands are in tools/cli.
#include <array>

#include "tools/cli/command.h"
#include "tools/command_line.h"

namespace {

using namespace sluice::tools;

std::function<sluice::Expected<int>()> declare(CLI::App& app) {
  app.set_version_flag("--version", versionText("sluice"), kVersionHelp);
  app.require_subcommand(1);
  app.footer(R"(`sluice COMMAND --help` has the details.

exit status: 0 success, 1 bad input or failure, 2 wrong usage)");
  const std::array commands = {addRun(app),     addDump(app),       addAs(app),    addVerify(app),
                               addDiff(app),    addMakeInputs(app), addCheck(app), addSimulate(app),
                               addExplain(app), addCalibrate(app),  addBench(app), addDoctor(app),
                               addPlan(app),    addReport(app)};
  return [commands]() -> sluice::Expected<int> {
    for (const Command& command : commands)
      if (command.app->parsed()) return command.action();
    return kExitUsage;
  };
}

}  // namespace

int main(int argc, char** argv) {
  return runMain("sluice: runs, shows, verifies and compares task programs made by sluicec", "sluice", argc,
                 argv, declare);
}
