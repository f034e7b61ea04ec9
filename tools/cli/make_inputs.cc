// sluice make-inputs: random inputs of a MoE-FFN layer for all ranks.
#include <fmt/format.h>

#include <memory>

#include "runtime/program/codec.h"
#include "tools/cli/command.h"
#include "tools/cli/files.h"
#include "tools/moe/inputs.h"

namespace sluice::tools {
namespace {

struct Options {
  std::string program, out, tokens, routing = "uniform";
  uint64_t seed = 1;
};

// Removes what the program does not read. Errors: an input that the layer does not have.
Status keepInputs(const TaskProgram& program, TensorMap& made) {
  TensorMap kept;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.role != Role::kInput) continue;
    auto tensor = made.extract(buffer.name);
    if (tensor.empty())
      return Error{
          fmt::format("cannot make tensor '{}': it is no plain input of a MoE-FFN layer", buffer.name)};
    kept.insert(std::move(tensor));
  }
  made = std::move(kept);
  return {};
}

Expected<int> makeAll(const Options& options) {
  const Expected<TaskProgram> program = readProgram(options.program);
  if (!program) return program.error();
  const auto inProgram = [&](const Error& error) {
    return Error{fmt::format("{}: {}", options.program, error.message)};
  };
  const Expected<MoeDims> dims = moeDimsOf(*program);
  if (!dims) return inProgram(dims.error());
  InputsSpec spec;
  // Both were checked when the command line was read.
  spec.routing = *parseRouting(options.routing);
  spec.tokens.most = dims->maxTokens;
  if (!options.tokens.empty()) spec.tokens = *parseTokens(options.tokens);
  spec.seed = options.seed;
  const Expected<std::vector<int64_t>> tokens = tokensOfRanks(*dims, spec);
  if (!tokens) return inProgram(tokens.error());
  const Expected<std::vector<std::string>> paths = rankPaths(options.out, dims->ranks);
  if (!paths) return paths.error();

  // Staged one by one: the tensors of all ranks together may not fit in memory.
  std::vector<PendingFile> files;
  std::string summary;
  for (int rank = 0; rank < dims->ranks; ++rank) {
    const auto r = static_cast<size_t>(rank);
    TensorMap tensors = makeInputs(*dims, spec, rank, (*tokens)[r]);
    if (Status status = keepInputs(*program, tensors); !status) return inProgram(status.error());
    Expected<PendingFile> file = stageSafetensors((*paths)[r], tensorRefs(tensors));
    if (!file) return file.error();
    files.push_back(std::move(*file));
    summary += fmt::format("{}: {} tokens\n", (*paths)[r], (*tokens)[r]);
  }
  for (PendingFile& file : files)
    if (Status status = file.commit(); !status) return status.error();
  if (Status status = printText(summary); !status) return status.error();
  return kExitSuccess;
}

// A CLI11 validator from a parser.
template <class Parser>
auto parsesBy(Parser parser) {
  return [parser](const std::string& text) {
    const auto result = parser(text);
    return result ? std::string() : result.error().message;
  };
}

}  // namespace

Command addMakeInputs(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("make-inputs", "make random inputs of a MoE-FFN layer for all ranks");
  const auto options = std::make_shared<Options>();
  app->add_option("program", options->program, "program file")->required()->type_name("layer.slp");
  app->add_option("--out", options->out, "inputs of each rank")
      ->required()
      ->type_name("in-{rank}.safetensors");
  app->add_option("--tokens", options->tokens,
                  "tokens of every rank; ragged:N is N/4 to N; or one number a rank (default: max_tokens)")
      ->check(parsesBy(parseTokens))
      ->type_name("N|ragged:N|A,B");
  app->add_option("--routing", options->routing,
                  "uniform (default), zipf:S, onehot, half-empty, or masked: a quarter of the ids is -1")
      ->check(parsesBy(parseRouting))
      ->type_name("KIND");
  app->add_option("--seed", options->seed, "the same seed gives the same bytes (default: 1)")->type_name("N");
  app->footer(
      "examples:\n"
      "  sluice make-inputs layer.slp --out 'in-{rank}.safetensors'\n"
      "  sluice make-inputs layer.slp --out 'in-{rank}.safetensors' --tokens ragged:384 --routing zipf:1.2 "
      "--seed 7\n"
      "  sluice make-inputs layer.slp --out 'in-{rank}.safetensors' --tokens 0,17,128,1\n\n"
      "exit status: 0 written, 1 bad input or an output that cannot be written, 2 wrong usage");
  return {app, [options] { return makeAll(*options); }};
}

}  // namespace sluice::tools
