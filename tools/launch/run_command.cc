#include "tools/launch/run_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "runtime/base/child_process.h"
#include "runtime/base/file_descriptor.h"

namespace sluice::tools {

namespace {

constexpr size_t kMaxOutput = size_t{64} << 10;

int becomeCommand(const std::vector<std::string>& arguments, const std::string& folder, int output) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const int none = ::open("/dev/null", O_RDONLY);
  if (::chdir(folder.c_str()) != 0 || none < 0) return kNotStarted;
  ::setpgid(0, 0);  // so that what it starts can be ended with it
  ::dup2(none, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::execvp(argv[0], argv.data());
  return kNotStarted;
}

// Until the other end is closed, or the time is over.
bool readAll(int from, std::chrono::steady_clock::time_point end, std::string& output) {
  char buffer[4096];
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd wait{from, POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t count = ::read(from, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    output.append(buffer,
                  std::min(static_cast<size_t>(count), kMaxOutput - std::min(kMaxOutput, output.size())));
  }
}

}  // namespace

std::string CommandResult::firstLine() const {
  const size_t begin = output.find_first_not_of('\n');
  if (begin == std::string::npos) return {};
  return output.substr(begin, output.find('\n', begin) - begin);
}

std::string CommandResult::lastLine() const {
  const size_t end = output.find_last_not_of('\n');
  if (end == std::string::npos) return {};
  const size_t before = output.rfind('\n', end);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  return output.substr(begin, end - begin + 1);
}

Expected<CommandResult> runCommand(const std::vector<std::string>& arguments, double seconds,
                                   const std::string& folder) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return Error{fmt::format("cannot make a pipe: {}", std::strerror(errno))};
  FileDescriptor ours(ends[0]), theirs(ends[1]);
  const Expected<pid_t> child = startChild([&] { return becomeCommand(arguments, folder, ends[1]); });
  if (!child) return child.error();
  theirs = FileDescriptor();
  const auto end =
      std::chrono::steady_clock::now() +
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
  CommandResult result;
  result.timedOut = !readAll(ours.get(), end, result.output);
  if (result.timedOut) ::kill(-*child, SIGKILL);
  const int status = awaitChild(*child);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

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
