// sluice as: a program file from its text.
#include <memory>

#include "runtime/program/codec.h"
#include "runtime/program/text.h"
#include "tools/cli/command.h"
#include "tools/cli/files.h"

namespace sluice::tools {
namespace {

struct AsOptions {
  std::string text, out;
};

Expected<int> assemble(const AsOptions& options) {
  const Expected<std::string> text = readText(options.text);
  if (!text) return text.error();
  const Expected<TaskProgram> program = parseProgram(*text, options.text == "-" ? "<stdin>" : options.text);
  if (!program) return program.error();
  return succeededIf(writeProgram(*program, options.out));
}

}  // namespace

Command addAs(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("as", "make a program file from its text");
  const auto options = std::make_shared<AsOptions>();
  app->add_option("text", options->text, "text as printed by `sluice dump`; - is standard input")
      ->required()
      ->type_name("TEXT");
  app->add_option("-o,--output", options->out, "program file to write")->required()->type_name("layer.slp");
  app->footer(
      R"(The text of `sluice dump` gives the dumped bytes again. The program is not verified here, so that
wrong ones can be made for tests: `sluice verify` and `sluice run` do that.

examples:
  sluice dump layer.slp > layer.txt && sluice as layer.txt -o same.slp && cmp layer.slp same.slp
  sluice dump layer.slp | sluice as - -o same.slp

exit status: 0 written, 1 bad text (file:line:column) or an output that cannot be written, 2 wrong usage)");
  return {app, [options] { return assemble(*options); }};
}

}  // namespace sluice::tools
