// sluice plan: how a layer would do on several numbers of ranks, by simulation.
#include "tools/plan/plan.h"

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <memory>

#include "runtime/api/program.h"
#include "runtime/base/scratch_folder.h"
#include "tools/bench/cases.h"
#include "tools/cli/command.h"
#include "tools/cli/files.h"
#include "tools/cli/run_tensors.h"
#include "tools/ffn_graph.h"
#include "tools/launch/run_command.h"
#include "tools/progress.h"
#include "tools/simulate/steps.h"

namespace sluice::tools {
namespace {

constexpr double kCompileSeconds = 120;

struct PlanOptions {
  std::string model, target = "h200", ranks, tp = "1,2,4", slotRows = "auto";
  std::string routing = "uniform", pass = "both", json;
  std::vector<std::string> compile;
  int64_t tokens = 4096;
  uint64_t seed = 1;
};

Status compileLayout(const PlanOptions& options, const LayerCase& layer, const Layout& layout,
                     const std::string& folder) {
  const std::string tools = std::filesystem::path(ownPath()).parent_path().string();
  std::vector<std::string> command = {
      tools + "/sluicec", folder + "/graph.json", "--target", options.target, "-o", folder + "/layer.slp"};
  for (const auto& [name, value] : {std::pair<const char*, int64_t>{"ep", layout.ep},
                                    {"tp", layout.tp},
                                    {"experts", layer.experts},
                                    {"top_k", layer.topK},
                                    {"hidden", layer.hidden},
                                    {"intermediate", layer.inter},
                                    {"max_tokens", layer.tokens}}) {
    command.push_back("--set");
    command.push_back(fmt::format("{}={}", name, value));
  }
  if (layout.slotRows > 0) command.insert(command.end(), {"--slot-rows", fmt::format("{}", layout.slotRows)});
  if (options.pass == "both") command.insert(command.end(), {"--trainable", "all"});
  command.insert(command.end(), options.compile.begin(), options.compile.end());
  const Expected<CommandResult> result = runCommand(command, kCompileSeconds);
  if (!result) return result.error();
  if (result->timedOut) return Error{fmt::format("sluicec did not end within {:g} s", kCompileSeconds)};
  if (result->status == 127)
    return Error{fmt::format("cannot run {}/sluicec: it must be beside sluice", tools)};
  if (result->status != 0) return Error{result->lastLine()};
  return {};
}

Expected<PlannedLayout> tryLayout(const PlanOptions& options, const LayerCase& layer, const Layout& layout,
                                  const std::string& folder,
                                  const std::function<void(const std::string&)>& show) {
  show("compiling");
  if (Status compiled = compileLayout(options, layer, layout, folder); !compiled) return compiled.error();
  const Expected<Program> loaded = Program::load(folder + "/layer.slp");
  if (!loaded) return loaded.error();
  const TaskProgram& program = loaded->tables();
  const Expected<SimDevice> device = makeSimDevice(program, options.target, 0);
  if (!device) return device.error();
  show("making the routing");
  const Expected<StepRouting> routing =
      makeStepRouting(program, inputsSpec(program, "", options.routing, options.seed));
  if (!routing) return routing.error();
  std::vector<EntryId> entries;
  for (uint32_t entry = 0; entry < program.entries.size(); ++entry) entries.push_back(EntryId{entry});
  const Expected<std::vector<SimResult>> results =
      simulateSteps(Plan::make(loaded->verified()), entries, *routing, *device, false,
                    [&](size_t index) { show("simulating " + program.at(entries[index]).name); });
  if (!results) return results.error();
  return planned(layout, program, layer, *results);
}

Expected<int> plan(const PlanOptions& options) {
  const Expected<LayerCase> layer = modelLayer(options.model, options.tokens, 1, "uniform");
  if (!layer) return layer.error();
  LayerCase named = *layer;
  named.name = options.model;
  const RankRange range = *parseRanks(options.ranks);
  const std::vector<Layout> layouts =
      listLayouts(named, range, *parseTp(options.tp), *parseSlotRows(options.slotRows));
  if (layouts.empty())
    return Error{fmt::format("no layout: {} experts and {} columns cannot be shared by {} ranks with tp {}",
                             named.experts, named.inter, options.ranks, options.tp)};
  if (!options.json.empty())
    if (Status writable = probeWritable({options.json}); !writable) return writable.error();
  const Expected<ScratchFolder> folder = ScratchFolder::create("sluice-plan");
  if (!folder) return folder.error();
  if (Status written = writeText(folder->path() + "/graph.json", ffnGraph()); !written)
    return written.error();
  std::vector<PlannedLayout> rows;
  Progress progress(Redraw::kAtSteps);
  for (const Layout& layout : layouts) {
    std::string name = fmt::format("ep {}, tp {}", layout.ep, layout.tp);
    if (layout.slotRows > 0) name += fmt::format(", slots of {} rows", layout.slotRows);
    const auto show = [&](const std::string& phase) {
      progress.at(std::ssize(rows) + 1, std::ssize(layouts), fmt::format("{}: {}", name, phase));
    };
    Expected<PlannedLayout> row = tryLayout(options, named, layout, folder->path(), show);
    if (!row) return Error{fmt::format("{}: {}", name, row.error().message)};
    rows.push_back(std::move(*row));
  }
  progress.hide();
  if (!options.json.empty())
    if (Status done = writeText(options.json, planJson(named, options.target, options.routing, rows)); !done)
      return done.error();
  return succeededIf(printText(planText(named, options.target, options.routing, rows)));
}

}  // namespace

Command addPlan(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("plan", "compare numbers of ranks and layouts by simulation");
  const auto options = std::make_shared<PlanOptions>();
  app->add_option("--model", options->model, "the layer: its routed experts")
      ->required()
      ->check(CLI::IsMember(modelNames()));
  app->add_option("--ranks", options->ranks, "numbers of ranks, doubling from A to B")
      ->required()
      ->check(parsesBy(parseRanks))
      ->type_name("A..B");
  app->add_option("--target", options->target, "device model (default: h200)")->type_name("NAME|FILE.json");
  app->add_option("--tp", options->tp, "ranks that share an expert (default: 1,2,4)")
      ->check(parsesBy(parseTp))
      ->type_name("N,...");
  app->add_option("--slot-rows", options->slotRows,
                  "rows of a slot, each tried with each layout; auto (default): the compiler's choice")
      ->check(parsesBy(parseSlotRows))
      ->type_name("N,...");
  app->add_option("--tokens", options->tokens, "per rank (default: 4096)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  app->add_option("--routing", options->routing,
                  "uniform (default), zipf:S, onehot, half-empty, masked or hot-rank:X, as of make-inputs")
      ->check(parsesBy(parseRouting))
      ->type_name("KIND");
  app->add_option("--seed", options->seed, "of --routing (default: 1)")->type_name("N");
  app->add_option("--pass", options->pass,
                  "forward, or both: forward and backward, all weights trained (default)")
      ->check(CLI::IsMember({"forward", "both"}));
  app->add_option("--compile", options->compile,
                  "another argument of sluicec, such as --encode=int8,rows=int8; may be repeated")
      ->allow_extra_args(false)
      ->type_name("FLAG");
  app->add_option("--json", options->json, "write the table with all digits")->type_name("plan.json");
  app->footer(
      R"(Compiles the layer for each layout with the sluicec beside this program and simulates a step of all ranks; the
figures are the model's, not measurements (docs/SIMULATOR.md). A layer of 1,024 ranks takes about a minute.

examples:
  sluice plan --model deepseek-v3 --ranks 8..64 --target h200
  sluice plan --model qwen3-30b --ranks 8 --tp 1,2,4,8 --routing zipf:1.2 --json plan.json
  sluice plan --model qwen3-30b --ranks 8 --tp 1 --slot-rows auto,64,128,256

exit status: 0 done, 1 bad input or a file that cannot be written, 2 wrong usage)");
  return {app, [options] { return plan(*options); }};
}

}  // namespace sluice::tools
