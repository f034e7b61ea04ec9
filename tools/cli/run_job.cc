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

}  // namespace

Expected<Job> makeJob(const RunOptions& options) {
  Expected<Program> program = Program::load(options.program);
  if (!program) return program.error();
  if (options.ranks > 0 && options.ranks != program->ranks())
    return Error{fmt::format("--ranks: found {}, expected {}, the ranks that {} was compiled for",
                             options.ranks, program->ranks(), options.program)};
  Expected<std::vector<EntryId>> entries = findEntries(program->tables(), options.entries);
  if (!entries) return Error{fmt::format("{}: {}", options.program, entries.error().message)};
  Expected<std::vector<std::string>> in = rankPaths(options.in, program->ranks());
  if (!in) return in.error();
  Expected<std::vector<std::string>> out = rankPaths(options.out, program->ranks());
  if (!out) return out.error();
  EntryTensors tensors = tensorsOf(program->tables(), *entries);
  return Job{std::move(*program),     std::move(*entries),
             std::move(tensors),      std::move(*in),
             std::move(*out),         options.trace,
             contextOptions(options), options.pack == "once" ? Weights::kConstant : Weights::kOrdinary,
             options.repeat,          options.overlap,
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
