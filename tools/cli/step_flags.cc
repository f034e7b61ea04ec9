#include "tools/cli/step_flags.h"

#include <fmt/format.h>

#include "runtime/base/rank_path.h"
#include "tools/cli/command.h"
#include "tools/cli/run_tensors.h"

namespace sluice::tools {
namespace {

bool namesFiles(const std::string& routing) { return hasRank(routing) || routing.ends_with(".safetensors"); }

std::string checkRoutingFlag(const std::string& text) {
  if (namesFiles(text)) return {};
  const Expected<RoutingSpec> spec = parseRouting(text);
  return spec ? "" : spec.error().message + ", or in-{rank}.safetensors";
}

}  // namespace

void addStepFlags(CLI::App& app, StepFlags& flags) {
  addProgram(app, flags.program);
  app.add_option("--target", flags.target, "device model (default: the program's)")
      ->type_name("NAME|FILE.json");
  app.add_option("--routing", flags.routing,
                 "uniform (default), zipf:S, onehot, half-empty, masked or hot-rank:X, as of make-inputs; "
                 "or the inputs of "
                 "each rank, whose expert ids are taken")
      ->check(checkRoutingFlag)
      ->type_name("KIND|in-{rank}.safetensors");
  app.add_option("--tokens", flags.tokens,
                 "tokens of every rank; ragged:N is N/4 to N; or one number per rank (default: max_tokens)")
      ->check(parsesBy(parseTokens))
      ->type_name("N|ragged:N|A,B");
  app.add_option("--seed", flags.seed, "of --routing and --tokens (default: 1)")->type_name("N");
}

Expected<StepRouting> routingFor(const TaskProgram& program, const StepFlags& flags) {
  if (!namesFiles(flags.routing)) {
    Expected<StepRouting> made =
        makeStepRouting(program, inputsSpec(program, flags.tokens, flags.routing, flags.seed));
    if (!made) return Error{fmt::format("{}: {}", flags.program, made.error().message)};
    return made;
  }
  if (!flags.tokens.empty())
    return Error{fmt::format("--tokens: found {}, expected none, because the files of --routing have them",
                             flags.tokens)};
  return readStepRouting(program, flags.routing);
}

}  // namespace sluice::tools
