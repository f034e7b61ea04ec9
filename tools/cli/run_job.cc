#include "tools/cli/run_job.h"

#include <fmt/format.h>

#include <utility>

#include "tools/cli/files.h"

namespace sluice::tools {
namespace {

ContextOptions contextOptions(const RunOptions& options) {
  ContextOptions result;
  result.threads = options.threads;
  result.executor = options.executor == "serial" ? ExecutorKind::kSerial : ExecutorKind::kParallel;
  result.timeoutSeconds = options.timeout;
  result.packEachStep = options.pack == "step";
  if (options.packedMib > 0) result.packedBytes = static_cast<int64_t>(options.packedMib * (1 << 20));
  return result;
}

Expected<std::optional<InputsSpec>> inputsToMake(const RunOptions& options, const TaskProgram& program) {
  if (!options.seed) return std::optional<InputsSpec>();
  InputsSpec spec;
  spec.seed = *options.seed;
  spec.tokens.most = program.maxTokens;
  // Both were checked when the command line was read.
  spec.routing = *parseRouting(options.routing);
  if (!options.tokens.empty()) spec.tokens = *parseTokens(options.tokens);
  const Expected<std::vector<int64_t>> tokens = tokensOfRanks(program, spec);
  if (!tokens) return Error{fmt::format("{}: {}", options.program, tokens.error().message)};
  return std::optional<InputsSpec>(std::move(spec));
}

// Of each rank; none where the option was not given.
Expected<std::vector<std::string>> pathsOf(const std::string& option, int ranks) {
  if (option.empty()) return std::vector<std::string>();
  return rankPaths(option, ranks);
}

}  // namespace

Expected<Job> makeJob(const RunOptions& options) {
  Expected<Program> program = Program::load(options.program);
  if (!program) return program.error();
  if (options.ranks > 0 && options.ranks != program->ranks())
    return Error{fmt::format("--ranks: found {}, expected {}, the ranks that {} was compiled for",
                             options.ranks, program->ranks(), options.program)};
  Expected<std::vector<EntryId>> entries = findEntries(program->tables(), options.entries);
  if (!entries) return Error{fmt::format("{}: {}", options.program, entries.error().message)};
  Expected<std::optional<InputsSpec>> made = inputsToMake(options, program->tables());
  if (!made) return made.error();
  Expected<std::vector<std::string>> in = pathsOf(options.in, program->ranks());
  if (!in) return in.error();
  Expected<std::vector<std::string>> out = pathsOf(options.out, program->ranks());
  if (!out) return out.error();
  EntryTensors tensors = tensorsOf(program->tables(), *entries);
  return Job{std::move(*program),
             std::move(*entries),
             std::move(tensors),
             std::move(*made),
             std::move(*in),
             std::move(*out),
             options.trace,
             contextOptions(options),
             options.pack == "once" ? Weights::kConstant : Weights::kOrdinary,
             options.repeat,
             options.overlap,
             options.overlapJson};
}

std::string entryNames(const Job& job) {
  std::string names;
  for (EntryId entry : job.entries) {
    if (!names.empty()) names += ", ";
    names += job.program.tables().at(entry).name;
  }
  return names;
}

}  // namespace sluice::tools
