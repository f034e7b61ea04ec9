// sluice: runs, shows, verifies and compares task programs. The subcommands are in tools/cli.
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <exception>

#include "runtime/base/pending_file.h"
#include "tools/cli/command.h"
#include "tools/command_line.h"
#include "tools/version.h"

namespace {

using namespace sluice::tools;

int fail(const std::string& message, int status) {
  fmt::print(stderr, "sluice: error: {}\n", printable(message));
  return status;
}

int runTool(int argc, char** argv) {
  if (const std::string empty = findEmptyArgument(argc, argv); !empty.empty()) return fail(empty, kExitUsage);
  sluice::removeNamedFilesOnSignals();
  CLI::App app("sluice: runs, shows, verifies and compares task programs made by sluicec", "sluice");
  app.set_version_flag("--version", versionText("sluice"), kVersionHelp);
  app.require_subcommand(1);
  app.footer(
      "`sluice COMMAND --help` has the details.\n\n"
      "exit status: 0 success, 1 bad input or failure, 2 wrong usage");
  const std::array commands = {addRun(app),    addDump(app),      addAs(app),
                               addVerify(app), addDiff(app),      addMakeInputs(app),
                               addCheck(app),  addCalibrate(app), addBench(app)};
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return fail(error.what(), kExitUsage);
  }
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    const sluice::Expected<int> status = command.action();
    return status ? *status : fail(status.error().message, kExitFailure);
  }
  return kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  // nothing throws for bad input, so an exception means that the machine is out of memory
  try {
    return runTool(argc, argv);
  } catch (const std::exception& error) {
    return fail(error.what(), kExitFailure);
  }
}
