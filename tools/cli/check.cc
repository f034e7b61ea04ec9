// sluice check: outputs of a MoE-FFN layer against a double-precision reference.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "runtime/program/codec.h"
#include "tools/cli/command.h"
#include "tools/cli/files.h"
#include "tools/moe/reference.h"

namespace sluice::tools {
namespace {

struct Options {
  std::string program, in, out;
  double tolerance = 1.2e-2;
  int threads = 0;
};

Error inFile(const std::string& path, const Error& error) {
  return Error{fmt::format("{}: {}", path, error.message)};
}

// An output that some ranks have and others have not would otherwise go unseen.
Status checkSameOutputs(const std::vector<std::string>& paths, const std::vector<TensorMap>& outputs) {
  for (size_t r = 0; r < paths.size(); ++r)
    for (const auto& [name, tensor] : outputs[0].size() > outputs[r].size() ? outputs[0] : outputs[r])
      for (size_t each : {size_t{0}, r})
        if (!outputs[each].count(name))
          return Error{fmt::format("{}: tensor '{}' is missing, but {} has it", paths[each], name,
                                   paths[each == 0 ? r : 0])};
  return {};
}

std::string report(const std::vector<OutputError>& errors) {
  std::string text = fmt::format("{:<24}relative L2 error\n", "output");
  for (const OutputError& error : errors) text += fmt::format("{:<24}{:.3e}\n", error.name, error.relative);
  return text;
}

Expected<int> check(const Options& options) {
  const Expected<TaskProgram> program = readProgram(options.program);
  if (!program) return program.error();
  const Expected<MoeDims> dims = moeDimsOf(*program);
  if (!dims) return inFile(options.program, dims.error());
  const Expected<std::vector<std::string>> in = rankPaths(options.in, dims->ranks);
  if (!in) return in.error();
  const Expected<std::vector<std::string>> out = rankPaths(options.out, dims->ranks);
  if (!out) return out.error();
  const Expected<std::vector<TensorMap>> inputs = readRanks(*in);
  if (!inputs) return inputs.error();
  const Expected<std::vector<TensorMap>> outputs = readRanks(*out);
  if (!outputs) return outputs.error();
  if (Status status = checkSameOutputs(*out, *outputs); !status) return status.error();

  std::vector<MoeInputs> inputViews;
  std::vector<MoeOutputs> outputViews;
  for (size_t r = 0; r < in->size(); ++r) {
    const Expected<MoeInputs> input = moeInputs(*dims, (*inputs)[r]);
    if (!input) return inFile((*in)[r], input.error());
    const Expected<MoeOutputs> output = moeOutputs(*dims, (*outputs)[r], input->tokens);
    if (!output) return inFile((*out)[r], output.error());
    inputViews.push_back(*input);
    outputViews.push_back(*output);
  }
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const Expected<std::vector<OutputError>> errors =
      moeErrors(*dims, inputViews, outputViews, options.threads > 0 ? options.threads : cores);
  if (!errors) return errors.error();
  if (errors->empty()) return inFile(out->front(), Error{"found no output of a MoE-FFN layer, expected y"});
  if (Status status = printText(report(*errors)); !status) return status.error();
  for (const OutputError& error : *errors)
    if (!(error.relative <= options.tolerance))  // NaN is too much as well
      return Error{fmt::format("output '{}': found a relative L2 error of {:.3e}, expected at most {:.3e}",
                               error.name, error.relative, options.tolerance)};
  return kExitSuccess;
}

}  // namespace

Command addCheck(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("check", "compare outputs with a double-precision reference");
  const auto options = std::make_shared<Options>();
  app->add_option("program", options->program, "program file")->required()->type_name("layer.slp");
  app->add_option("--in", options->in, "inputs of each rank")->required()->type_name("in-{rank}.safetensors");
  app->add_option("--out", options->out, "outputs of each rank")
      ->required()
      ->type_name("out-{rank}.safetensors");
  app->add_option("--tolerance", options->tolerance, "largest error that is accepted (default: 1.2e-2)")
      ->check(CLI::Range(0.0, 1e9))
      ->type_name("X");
  app->add_option("--threads", options->threads, "threads of the reference (default: all cores)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  app->footer(
      "Prints |found - reference| / |reference| (L2, over all ranks) of each output in the files. The\n"
      "reference is computed in double precision from the formulas of the layer, not by tasks.\n\n"
      "example:\n"
      "  sluice check layer.slp --in 'in-{rank}.safetensors' --out 'out-{rank}.safetensors'\n\n"
      "exit status: 0 all within the tolerance, 1 not so, or bad input, 2 wrong usage");
  return {app, [options] { return check(*options); }};
}

}  // namespace sluice::tools
