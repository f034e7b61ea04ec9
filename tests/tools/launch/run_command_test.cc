#include "tools/launch/run_command.h"

#include <catch2/catch.hpp>
#include <chrono>

namespace sluice::tools {
namespace {

CommandResult shell(const std::string& script, double seconds = 20) {
  const Expected<CommandResult> result = runCommand({"sh", "-c", script}, seconds);
  if (!result) FAIL(result.error().message);
  return *result;
}

TEST_CASE("a command gives its status, and the output of both its streams") {
  const CommandResult good = shell("echo first; echo second >&2; echo");
  CHECK(good.succeeded());
  CHECK(good.output == "first\nsecond\n\n");
  CHECK(good.firstLine() == "first");
  CHECK(good.lastLine() == "second");
  CHECK(shell("exit 3").status == 3);
  CHECK(!shell("exit 3").succeeded());
  CHECK(shell("kill -9 $$").status == 128 + 9);
  CHECK(shell("").firstLine().empty());
  CHECK(shell("read line; echo \"[$line]\"").output == "[]\n");  // it has no input
  CHECK(shell("head -c 100000 /dev/zero").output.size() == size_t{64} << 10);
  CHECK(runCommand({"sh", "-c", "pwd"}, 20, "/")->output == "/\n");
}

TEST_CASE("a program or a folder that does not exist is a status, not an error") {
  CHECK(runCommand({"/nothing/there"}, 20)->status == 127);
  CHECK(runCommand({"sh", "-c", "true"}, 20, "/nothing/there")->status == 127);
}

TEST_CASE("a command that does not end is ended, with what it started") {
  const auto begin = std::chrono::steady_clock::now();
  const CommandResult result = shell("echo begun; sleep 100 & sleep 100", 0.5);
  CHECK(result.timedOut);
  CHECK(!result.succeeded());
  CHECK(result.output == "begun\n");
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}

}  // namespace
}  // namespace sluice::tools
