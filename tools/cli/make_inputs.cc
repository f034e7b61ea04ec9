// sluice make-inputs: makes random inputs of a program for all ranks.
#include <fmt/format.h>

#include <memory>

#include "runtime/api/context.h"
#include "tools/cli/command.h"
#include "tools/cli/files.h"
#include "tools/cli/run_tensors.h"

namespace sluice::tools {
namespace {

struct MakeInputsOptions {
  std::string program, out, tokens, routing = "uniform";
  uint64_t seed = 1;
};

Expected<int> makeAll(const MakeInputsOptions& options) {
  const Expected<Program> loaded = Program::load(options.program);
  if (!loaded) return loaded.error();
  const TaskProgram& program = loaded->tables();
  const auto inProgram = [&](const Error& error) {
    return Error{fmt::format("{}: {}", options.program, error.message)};
  };
  const InputsSpec spec = inputsSpec(program, options.tokens, options.routing, options.seed);
  const Expected<std::vector<int64_t>> tokens = tokensOfRanks(program, spec);
  if (!tokens) return inProgram(tokens.error());
  const Expected<std::vector<std::string>> paths = rankPaths(options.out, program.mesh.peers());
  if (!paths) return paths.error();

  // staged one by one, because the tensors of all ranks together may not fit into memory
  std::vector<PendingFile> files;
  std::string summary;
  for (int rank = 0; rank < program.mesh.peers(); ++rank) {
    const auto r = static_cast<size_t>(rank);
    const Expected<TensorMap> tensors =
        makeProgramInputs(program, spec, rank, (*tokens)[r], rowsWithoutIds(program, rank, *tokens));
    if (!tensors) return inProgram(tensors.error());
    Expected<PendingFile> file = stageSafetensors((*paths)[r], tensorRefs(*tensors));
    if (!file) return file.error();
    files.push_back(std::move(*file));
    summary += fmt::format("{}: {} tokens\n", (*paths)[r], (*tokens)[r]);
  }
  if (Status status = commitAll(files); !status) return status.error();
  return succeededIf(printText(summary));
}

}  // namespace

Command addMakeInputs(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("make-inputs", "make random inputs of a program for all ranks");
  const auto options = std::make_shared<MakeInputsOptions>();
  addProgram(*app, options->program);
  app->add_option("--out", options->out, "inputs of each rank")
      ->required()
      ->type_name("in-{rank}.safetensors");
  app->add_option("--tokens", options->tokens,
                  "tokens of every rank; ragged:N is N/4 to N; or one number per rank (default: max_tokens)")
      ->check(parsesBy(parseTokens))
      ->type_name("N|ragged:N|A,B");
  app->add_option("--routing", options->routing,
                  "uniform (default), zipf:S, onehot, half-empty, masked: a quarter of the ids is -1, or "
                  "hot-rank:X: the "
                  "first rank has X times the mean rows")
      ->check(parsesBy(parseRouting))
      ->type_name("KIND");
  app->add_option("--seed", options->seed, "the same seed gives the same bytes (default: 1)")->type_name("N");
  app->footer(
      R"(Weights have variance 1 / fan-in, tokens variance 1; weights of products of tokens are the same at
every rank. Ranks that share experts get parts of the same weights. A gradient that a run adds to gets
random start values.

examples:
  sluice make-inputs layer.slp --out 'in-{rank}.safetensors'
  sluice make-inputs layer.slp --out 'in-{rank}.safetensors' --tokens ragged:384 --routing zipf:1.2 --seed 7
  sluice make-inputs layer.slp --out 'in-{rank}.safetensors' --tokens 0,17,128,1

exit status: 0 written, 1 bad input or an output that cannot be written, 2 wrong usage)");
  return {app, [options] { return makeAll(*options); }};
}

}  // namespace sluice::tools
