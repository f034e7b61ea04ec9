// sluice dump: prints a program as text or JSON.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "compiler/report/memory_report.h"
#include "runtime/program/codec.h"
#include "runtime/program/text.h"
#include "runtime/program/verify.h"
#include "tools/cli/command.h"
#include "tools/cli/core_name.h"
#include "tools/cli/dump_json.h"
#include "tools/cli/files.h"

namespace sluice::tools {
namespace {

struct DumpOptions {
  std::string program, show, core, format = "text";
  bool tables = false;
};

constexpr std::pair<const char*, bool TextSelection::*> kSections[] = {
    {"header", &TextSelection::header},     {"spaces", &TextSelection::spaces},
    {"buffers", &TextSelection::buffers},   {"events", &TextSelection::events},
    {"families", &TextSelection::families}, {"tasks", &TextSelection::tasks},
    {"tiling", &TextSelection::tiling}};

constexpr const char* kSectionNames = "header, spaces, buffers, events, families, tasks, tiling";

Expected<TextSelection> parseSections(const std::string& list) {
  TextSelection selection;
  for (const auto& [name, member] : kSections) selection.*member = false;
  for (const std::string& part : splitList(list)) {
    const auto section = std::find_if(std::begin(kSections), std::end(kSections),
                                      [&](const auto& each) { return part == each.first; });
    if (section == std::end(kSections))
      return Error{fmt::format("found '{}', expected a list of {}", part, kSectionNames)};
    selection.*section->second = true;
  }
  return selection;
}

// The memory that the buffers take, as comments. Unknown for a damaged program.
std::string formatMemory(const TaskProgram& program) {
  if (const Expected<VerifiedProgram> verified = verify(program); !verified)
    return fmt::format("// memory: unknown, since the program is damaged: {}\n", verified.error().message);
  return printMemoryTotals(program, reportMemory(program), "// ");
}

Expected<int> dump(const DumpOptions& options) {
  const Expected<TaskProgram> program = readProgram(options.program);
  if (!program) return program.error();
  TextSelection selection;
  // Checked when the command line was read.
  if (!options.show.empty()) selection = *parseSections(options.show);
  selection.tables = options.tables;
  if (!options.core.empty()) {
    const Expected<CoreName> core = findCore(*program, options.core);
    if (!core) return Error{fmt::format("{}: {}", options.program, core.error().message)};
    selection.core = core->number;
    selection.coreKind = core->kind;
  }
  std::string text =
      options.format == "json" ? printJson(*program, selection) : printSections(*program, selection);
  if (options.format != "json" && !options.show.empty() && selection.buffers) text += formatMemory(*program);
  return succeededIf(printText(text));
}

}  // namespace

Command addDump(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("dump", "print a program as text or JSON");
  const auto options = std::make_shared<DumpOptions>();
  addProgram(*app, options->program);
  app->add_option("--show", options->show, fmt::format("sections: {} (default: all)", kSectionNames))
      ->check(parsesBy(parseSections))
      ->type_name("A,B");
  app->add_option("--core", options->core, "tasks of one core only: its number, or a kind and a number")
      ->type_name("cube3");
  app->add_option("--format", options->format, "text (default) or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->type_name("FORMAT");
  app->add_flag("--tables", options->tables, "write out tables of tasks that are dealt by formula");
  app->footer(
      R"(The whole text is complete: `sluice as` makes the same bytes from it. docs/PROGRAM.md describes it.

examples:
  sluice dump layer.slp | less
  sluice dump layer.slp --show families,tiling
  sluice dump layer.slp --show tasks --core 3
  sluice dump layer.slp --show buffers        (with their sizes, as formulas)
  sluice dump layer.slp --show events --format json

exit status: 0 printed, 1 the program cannot be read, 2 wrong usage)");
  return {app, [options] { return dump(*options); }};
}

}  // namespace sluice::tools
