// sluice explain: what one task of a step waits for, does and causes.
#include <fmt/format.h>

#include <memory>

#include "runtime/api/program.h"
#include "tools/cli/command.h"
#include "tools/cli/files.h"
#include "tools/cli/step_flags.h"
#include "tools/explain/explain_task.h"
#include "tools/simulate/steps.h"

namespace sluice::tools {
namespace {

struct ExplainOptions {
  StepFlags step;
  std::string task;
  int rank = 0;
};

Expected<int> explain(const ExplainOptions& options) {
  const Expected<Program> loaded = Program::load(options.step.program);
  if (!loaded) return loaded.error();
  const TaskProgram& program = loaded->tables();
  const auto inProgram = [&](const Error& error) {
    return Error{fmt::format("{}: {}", options.step.program, error.message)};
  };
  if (options.rank >= program.mesh.peers())
    return inProgram(
        Error{fmt::format("--rank: found {}, expected 0 to {}", options.rank, program.mesh.peers() - 1)});
  const Expected<TaskQuery> query = parseTaskQuery(options.task);
  if (!query) return query.error();
  const Expected<FamilyId> family = findFamily(program, *query);
  if (!family) return inProgram(family.error());
  const std::string& target = options.step.chosenTarget(program);
  const Expected<Target> device = loadTarget(target, targetFolders(""));
  if (!device && !options.step.target.empty()) return device.error();
  const Rates* const rates = device && device->rates ? &*device->rates : nullptr;
  const Expected<StepRouting> routing = routingFor(program, options.step);
  if (!routing) return routing.error();
  const Plan plan = Plan::make(loaded->verified());
  const EntryId entry = program.at(*family).entry;
  const Expected<BoundRouting> bound = bindStep(plan, entry, *routing);
  if (!bound) return inProgram(bound.error());
  const Expected<std::string> text =
      explainTask({plan, entry, bound->of(plan, entry)}, options.rank, *family, *query, rates, target);
  if (!text) return inProgram(text.error());
  return succeededIf(printText(*text));
}

}  // namespace

Command addExplain(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("explain", "show what one task waits for, does and causes");
  const auto options = std::make_shared<ExplainOptions>();
  addStepFlags(*app, options->step);
  app->add_option("--task", options->task,
                  "a task, as reports and dumps name it; by default tile 0 of slot 0")
      ->required()
      ->check(parsesBy(parseTaskQuery))
      ->type_name("[ENTRY/]FAMILY[SLOT,TILE]");
  app->add_option("--rank", options->rank, "of which rank (default: 0)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("R");
  app->footer(
      R"(Nothing runs: the tables of the step are made as bind makes them. Numbers of slots and rows depend on the
routing; without --routing and --tokens it is uniform with max_tokens tokens per rank.

examples:
  sluice explain layer.slp --task up_proj_swiglu[12,0]
  sluice explain layer.slp --task backward/dispatch[3] --rank 1 --routing 'in-{rank}.safetensors'

exit status: 0 shown, 1 bad input, 2 wrong usage)");
  return {app, [options] { return explain(*options); }};
}

}  // namespace sluice::tools
