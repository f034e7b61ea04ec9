// sluice bench: starts sluice-bench, which has the compiler and, where there is one, a peer in it. So the
// other subcommands start quickly and run where neither is installed.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "tools/cli/command.h"

namespace sluice::tools {
namespace {

constexpr const char* kTool = "sluice-bench";

// Does not return where it succeeds.
Expected<int> start(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::error_code failed;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (!failed) {
    std::string beside = (self.parent_path() / kTool).string();
    argv[0] = beside.data();
    execv(beside.c_str(), argv.data());
  }
  argv[0] = arguments[0].data();
  execvp(kTool, argv.data());
  return Error{
      fmt::format("cannot start {}, expected beside sluice or on the PATH: {}", kTool, std::strerror(errno))};
}

}  // namespace

Command addBench(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("bench", "measure layers beside what this machine could do at most");
  app->prefix_command();
  app->set_help_flag();
  return {app, [app] {
            std::vector<std::string> arguments = {kTool};
            for (const std::string& argument : app->remaining()) arguments.push_back(argument);
            return start(std::move(arguments));
          }};
}

}  // namespace sluice::tools
