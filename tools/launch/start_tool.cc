#include "tools/launch/start_tool.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace sluice::tools {

std::string ownPath() {
  std::error_code failed;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failed);
  return failed ? std::string() : self.string();
}

Expected<std::vector<std::string>> ownCommandLine() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(std::move(argument));
  if (arguments.empty()) return Error{"/proc/self/cmdline: cannot read the command line of this process"};
  return arguments;
}

Error startTool(const std::string& tool, std::vector<std::string> arguments) {
  if (arguments.empty()) arguments.emplace_back();
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  if (const std::string self = ownPath(); !self.empty()) {
    std::string beside = (std::filesystem::path(self).parent_path() / tool).string();
    argv[0] = beside.data();
    ::execv(beside.c_str(), argv.data());
  }
  std::string name = tool;
  argv[0] = name.data();
  ::execvp(tool.c_str(), argv.data());
  return Error{
      fmt::format("cannot start {}, expected next to sluice or on the PATH: {}", tool, std::strerror(errno))};
}

}  // namespace sluice::tools
