// sluice simulate: predicts the times of a step of all ranks on a device model.
#include "runtime/sim/simulate.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "runtime/api/program.h"
#include "tools/cli/command.h"
#include "tools/cli/files.h"
#include "tools/cli/run_tensors.h"
#include "tools/cli/step_flags.h"
#include "tools/progress.h"
#include "tools/simulate/measured.h"
#include "tools/simulate/report.h"
#include "tools/simulate/steps.h"
#include "tools/trace/read_trace.h"
#include "tools/trace/steps.h"

namespace sluice::tools {
namespace {

struct SimulateOptions {
  StepFlags step;
  std::string entries, compare, trace, json;
  int workers = 0;
};

Status writeFiles(const SimulateOptions& options, const Plan& plan, const SimDevice& device,
                  const std::vector<SimResult>& results) {
  if (!options.trace.empty())
    if (Status done = writeText(options.trace, chromeTraceWithArrows(plan, collectTraces(results))); !done)
      return done;
  if (!options.json.empty()) return writeText(options.json, simulationJson(plan.program(), device, results));
  return {};
}

// Takes entries and workers from the recorded run.
Expected<MeasuredRun> readMeasured(const TaskProgram& program, SimulateOptions& options,
                                   std::vector<EntryId>& entries) {
  const Expected<std::vector<TracedProgram>> traced = readTrace(options.compare);
  if (!traced) return traced.error();
  const TaskProgram& recorded = traced->front().program.tables();
  if (traced->size() > 1 || recorded != program)
    return Error{fmt::format("{}: found a trace of {} '{}', expected the program of {}", options.compare,
                             traced->size() > 1 ? "several programs, the first" : "another program",
                             recorded.name, options.step.program)};
  Expected<MeasuredRun> run = measureRun(traced->front());
  if (!run) return Error{fmt::format("{}: {}", options.compare, run.error().message)};
  options.workers = run->workers;
  entries.clear();
  for (const MeasuredEntry& entry : run->entries) entries.push_back(entry.entry);
  return run;
}

Expected<std::string> compare(const SimulateOptions& options, const TaskProgram& program,
                              const SimDevice& device, const std::vector<SimResult>& results,
                              const MeasuredRun& measured) {
  const Expected<std::string> text = compareText(program, results, measured);
  if (!text) return Error{fmt::format("{}: {}", options.compare, text.error().message)};
  return fmt::format("{} against target '{}', {} workers per rank\n\n{}", options.compare, device.name,
                     device.workers, *text);
}

Expected<std::vector<SimResult>> run(const SimulateOptions& options, const Plan& plan,
                                     const std::vector<EntryId>& entries, const SimDevice& device,
                                     StepRouting recorded) {
  const TaskProgram& program = plan.program();
  Progress progress(Redraw::kByItself);
  progress.at(1, 1, "making the routing of all ranks");
  const Expected<StepRouting> routing =
      options.compare.empty() ? routingFor(program, options.step) : Expected(std::move(recorded));
  if (!routing) return routing.error();
  Expected<std::vector<SimResult>> results =
      simulateSteps(plan, entries, *routing, device, !options.trace.empty(), [&](size_t index) {
        progress.at(
            static_cast<int64_t>(index) + 1, std::ssize(entries),
            fmt::format("simulating {} of {} ranks", program.at(entries[index]).name, program.mesh.peers()));
      });
  if (!results) return Error{fmt::format("{}: {}", options.step.program, results.error().message)};
  return results;
}

Expected<int> simulate(SimulateOptions options) {
  const Expected<Program> loaded = Program::load(options.step.program);
  if (!loaded) return loaded.error();
  const TaskProgram& program = loaded->tables();
  const auto inProgram = [&](const Error& error) {
    return Error{fmt::format("{}: {}", options.step.program, error.message)};
  };
  Expected<std::vector<EntryId>> entries = findEntries(program, options.entries);
  if (!entries) return inProgram(entries.error());
  Expected<MeasuredRun> measured =
      options.compare.empty() ? MeasuredRun{} : readMeasured(program, options, *entries);
  if (!measured) return measured.error();
  const Expected<SimDevice> device =
      makeSimDevice(program, options.step.chosenTarget(program), options.workers);
  if (!device) return inProgram(device.error());
  std::vector<std::string> outputs;
  for (const std::string& path : {options.trace, options.json})
    if (!path.empty()) outputs.push_back(path);
  if (Status writable = probeWritable(outputs); !writable) return writable.error();
  const Plan plan = Plan::make(loaded->verified());
  const Expected<std::vector<SimResult>> results =
      run(options, plan, *entries, *device, std::move(measured->routing));
  if (!results) return results.error();
  const Expected<std::string> text = options.compare.empty()
                                         ? simulationText(program, *device, *results)
                                         : compare(options, program, *device, *results, *measured);
  if (!text) return text.error();
  if (Status done = writeFiles(options, plan, *device, *results); !done) return done.error();
  return succeededIf(printText(*text));
}

}  // namespace

Command addSimulate(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("simulate", "predict the times of a step on a device model");
  const auto options = std::make_shared<SimulateOptions>();
  addStepFlags(*app, options->step);
  auto* const entry =
      app->add_option("--entry", options->entries, "entries, one after the other (default: all)")
          ->type_name("NAME,...");
  auto* const workers =
      app->add_option(
             "--workers", options->workers,
             "workers per rank, which share the cores (default: one per core that program and target have)")
          ->check(CLI::Range(1, 1 << 16))
          ->type_name("N");
  app->add_option(
         "--compare", options->compare,
         "a trace of `sluice run`: simulate its entries with its routing and as many workers, and print "
         "predicted and measured times")
      ->excludes(entry)
      ->excludes(workers)
      ->excludes(app->get_option("--routing"))
      ->excludes(app->get_option("--tokens"))
      ->excludes(app->get_option("--seed"))
      ->type_name("trace.json");
  app->add_option("--trace", options->trace, "write every task and wait, for ui.perfetto.dev")
      ->type_name("trace.json");
  app->add_option("--json", options->json, "write all figures, by entry, family and rank")
      ->type_name("times.json");
  app->footer(
      R"(Nothing is computed: the program's own tables run with the times of the device model. The figures are
what the model gives, not measurements; docs/SIMULATOR.md has its formulas and what it leaves out.

examples:
  sluice simulate layer.slp --routing zipf:1.2
  sluice simulate npu.slp --target ascend910b --tokens ragged:4096 --seed 7 --trace trace.json
  sluice simulate layer.slp --routing 'in-{rank}.safetensors' --entry forward --workers 2 --json times.json
  sluice simulate layer.slp --target ./here.json --compare trace.json

exit status: 0 simulated, 1 bad input or a file that cannot be written, 2 wrong usage)");
  return {app, [options] { return simulate(*options); }};
}

}  // namespace sluice::tools
