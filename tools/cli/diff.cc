// sluice diff: shows what differs between two programs.
#include "runtime/program/diff.h"

#include <memory>

#include "runtime/program/codec.h"
#include "tools/cli/command.h"
#include "tools/cli/files.h"

namespace sluice::tools {
namespace {

struct DiffOptions {
  std::string first, second;
};

Expected<int> diff(const DiffOptions& options) {
  const Expected<TaskProgram> first = readProgram(options.first);
  if (!first) return first.error();
  const Expected<TaskProgram> second = readProgram(options.second);
  if (!second) return second.error();
  std::string text;
  for (const std::string& line : diffPrograms(*first, *second)) text += line + "\n";
  if (Status status = printText(text); !status) return status.error();
  return text.empty() ? kExitSuccess : kExitFailure;
}

}  // namespace

Command addDiff(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("diff", "show what differs between two programs");
  const auto options = std::make_shared<DiffOptions>();
  app->add_option("first", options->first, "program file")->required()->type_name("a.slp");
  app->add_option("second", options->second, "program file")->required()->type_name("b.slp");
  app->footer(R"(Prints one line per difference: where, the value in the first, the value in the second.

example:
  sluice diff before.slp after.slp

exit status: 0 the same, 1 different, or a program that cannot be read (a message on standard error),
2 wrong usage)");
  return {app, [options] { return diff(*options); }};
}

}  // namespace sluice::tools
