#include "tools/cli/command.h"

#include <fmt/format.h>

#include <exception>

#include "runtime/base/pending_file.h"
#include "tools/command_line.h"

namespace sluice::tools {
namespace {

int fail(const std::string& message, int status) {
  printError(fmt::format("sluice: error: {}\n", printable(message)));
  return status;
}

}  // namespace

int runMain(const char* description, const char* name, int argc, char** argv,
            const std::function<std::function<Expected<int>()>(CLI::App&)>& declare) {
  // nothing throws for bad input, so another exception means that the machine is out of memory
  try {
    openClosedStreams();
    removeNamedFilesOnSignals();
    if (const std::string empty = findEmptyArgument(argc, argv); !empty.empty())
      return fail(empty, kExitUsage);
    if (const std::string old = findOldOption(argc, argv); !old.empty()) return fail(old, kExitUsage);
    CLI::App app(description, name);
    const auto action = declare(app);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
      return fail(error.what(), kExitUsage);
    }
    const Expected<int> status = action();
    return status ? *status : fail(status.error().message, kExitFailure);
  } catch (const std::exception& error) {
    return fail(error.what(), kExitFailure);
  }
}

}  // namespace sluice::tools
