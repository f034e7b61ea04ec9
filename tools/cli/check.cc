// sluice check: compares outputs of a program with a double-precision reference.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/api/context.h"
#include "runtime/program/op_table.h"
#include "tools/cli/command.h"
#include "tools/cli/files.h"
#include "tools/cli/run_tensors.h"
#include "tools/evaluate/output_errors.h"
#include "tools/progress.h"

namespace sluice::tools {
namespace {

constexpr double kTolerance = 1.2e-2;

struct CheckOptions {
  std::string program, in, out;
  std::optional<double> tolerance;
  int threads = 0;
};

Error inFile(const std::string& path, const Error& error) {
  return Error{fmt::format("{}: {}", path, error.message)};
}

// Otherwise an output that only some ranks have would go unnoticed.
Status checkSameOutputs(const std::vector<std::string>& paths, const std::vector<TensorMap>& outputs) {
  for (size_t r = 0; r < paths.size(); ++r)
    for (const auto& [name, tensor] : outputs[0].size() > outputs[r].size() ? outputs[0] : outputs[r])
      for (size_t each : {size_t{0}, r})
        if (!outputs[each].count(name))
          return Error{fmt::format("{}: tensor '{}' is missing, but {} has it", paths[each], name,
                                   paths[each == 0 ? r : 0])};
  return {};
}

// `whole`: errors that include what codes of rows and rounded factors cost; empty if the program has none.
std::string report(const std::vector<OutputError>& errors, const std::vector<OutputError>& whole) {
  size_t width = 24;
  for (const OutputError& error : errors) width = std::max(width, error.name.size() + 1);
  std::string text = fmt::format("{:<{}}relative L2 error{}\n", "output", width,
                                 whole.empty() ? "" : "   and of quantisation");
  for (size_t i = 0; i < errors.size(); ++i) {
    text += fmt::format("{:<{}}{:.3e}", errors[i].name, width, errors[i].relative);
    if (!whole.empty()) text += fmt::format("{:>18}{:.3e}", "", whole[i].relative);
    text += "\n";
  }
  return text;
}

struct Files {
  std::vector<std::string> in, out;
  std::vector<TensorMap> inputs, outputs;  // by rank; outputs are read when they are compared
  std::vector<SafetensorsFile> opened;     // outputs
};

EvaluateHook showAs(const char* what, Progress& progress) {
  return [what, &progress](int64_t step, int64_t steps, std::string_view family) {
    progress.at(step, steps, fmt::format("{}: {}", what, family));
  };
}

Expected<std::vector<OutputError>> measureErrors(const Program& program, const Files& files, int threads,
                                                 Progress& progress, bool exactFactors = false) {
  const TaskProgram& tables = program.tables();
  for (size_t r = 0; r < files.in.size(); ++r) {
    const int rank = static_cast<int>(r);
    const EntryTensors given = listEntryTensors(tables, entriesFor(tables, files.outputs[r]));
    const Expected<int64_t> tokens = checkInputs(tables, rank, given.inputs, files.inputs[r],
                                                 tokensOfOutputs(tables, given.inputs, files.outputs));
    if (!tokens) return inFile(files.in[r], tokens.error());
    if (Status outputs = checkOutputs(tables, rank, *tokens, files.outputs[r]); !outputs)
      return inFile(files.out[r], outputs.error());
  }
  Expected<std::vector<OutputError>> errors =
      outputErrors(program.verified(), files.inputs, files.outputs, threads, exactFactors,
                   showAs(exactFactors ? "the reference without quantisation" : "the reference", progress),
                   [&files](size_t rank, const std::string& name) { return files.opened[rank].read(name); });
  if (errors && errors->empty())
    return inFile(files.out.front(), Error{"found no output of the program, expected some"});
  return errors;
}

double errorNamed(const std::vector<OutputError>& errors, std::string_view name) {
  const auto it =
      std::find_if(errors.begin(), errors.end(), [&](const auto& each) { return each.name == name; });
  return it == errors.end() ? 0 : it->relative;
}

// If numbers nearly cancel, rounding alone exceeds the default tolerance, so the effect of rounding is
// measured where it decides. A tolerance that the user gives is used unchanged.
Status judge(const CheckOptions& options, const Program& program, const Files& files,
             const std::vector<OutputError>& errors, int threads, Progress& progress) {
  const double tolerance = options.tolerance.value_or(kTolerance);
  std::optional<std::vector<OutputError>> rounding;
  for (const OutputError& error : errors) {
    if (error.relative <= tolerance) continue;  // false for NaN
    const std::string found =
        fmt::format("output '{}': found a relative L2 error of {:.3e}", error.name, error.relative);
    if (options.tolerance) return Error{fmt::format("{}, expected at most {:.3e}", found, tolerance)};
    if (!rounding) {
      auto averages = roundingErrors(program.verified(), files.inputs, files.outputs, threads,
                                     showAs("the effect of rounding", progress));
      progress.hide();
      if (!averages) return averages.error();
      rounding = std::move(*averages);
    }
    const double average = errorNamed(*rounding, error.name);
    if (!isAccepted(error.relative, tolerance, average))
      return Error{fmt::format("{}, expected at most {:.3e}, or {} times what rounding gives, {:.3e}", found,
                               tolerance, kRoundingLimit, average)};
    const std::string note =
        fmt::format("{}: rounding gives {:.3e} where numbers nearly cancel, as here\n", error.name, average);
    if (Status printed = printText(note); !printed) return printed;
  }
  return {};
}

Expected<int> check(const CheckOptions& options) {
  const Expected<Program> program = Program::load(options.program);
  if (!program) return program.error();
  Files files;
  for (auto [pattern, paths] : {std::pair(&options.in, &files.in), std::pair(&options.out, &files.out)}) {
    Expected<std::vector<std::string>> names = rankPaths(*pattern, program->ranks());
    if (!names) return names.error();
    *paths = std::move(*names);
  }
  for (const std::string& path : files.in) {
    Expected<TensorMap> read = readSafetensors(path);
    if (!read) return read.error();
    files.inputs.push_back(std::move(*read));
  }
  for (const std::string& path : files.out) {
    Expected<SafetensorsFile> file = SafetensorsFile::open(path);
    if (!file) return file.error();
    files.outputs.push_back(file->described());
    files.opened.push_back(std::move(*file));
  }
  if (Status status = checkSameOutputs(files.out, files.outputs); !status) return status.error();

  Progress progress(Redraw::kByItself);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int threads = options.threads > 0 ? options.threads : cores;
  const Expected<std::vector<OutputError>> errors = measureErrors(*program, files, threads, progress);
  if (!errors) return errors.error();
  Expected<std::vector<OutputError>> whole = std::vector<OutputError>();
  if (roundsFactors(program->tables())) whole = measureErrors(*program, files, threads, progress, true);
  if (!whole) return whole.error();
  progress.hide();
  if (Status status = printText(report(*errors, *whole)); !status) return status.error();
  if (Status status = judge(options, *program, files, *errors, threads, progress); !status)
    return status.error();
  return kExitSuccess;
}

}  // namespace

Command addCheck(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("check", "compare outputs with a double-precision reference");
  const auto options = std::make_shared<CheckOptions>();
  addProgram(*app, options->program);
  app->add_option("--in", options->in, "inputs of each rank")->required()->type_name("in-{rank}.safetensors");
  app->add_option("--out", options->out, "outputs of each rank")
      ->required()
      ->type_name("out-{rank}.safetensors");
  app->add_option("--tolerance", options->tolerance,
                  "largest accepted error (default: 1.2e-2, or the error that rounding "
                  "may cause where that is more)")
      ->check(CLI::Range(0.0, 1e9))
      ->check(notNan)
      ->type_name("X");
  app->add_option("--threads", options->threads, "threads of the reference (default: all cores)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  app->footer(
      R"(Prints |found - reference| / |reference| (L2, over all ranks) of each output in the files. The
reference evaluates the program family by family in double precision: without slots, tasks, events
or kernels.

example:
  sluice check layer.slp --in 'in-{rank}.safetensors' --out 'out-{rank}.safetensors'

exit status: 0 all within the tolerance, 1 an error above it or bad input, 2 wrong usage)");
  return {app, [options] { return check(*options); }};
}

}  // namespace sluice::tools
