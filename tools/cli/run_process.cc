#include "tools/cli/run_process.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "runtime/base/clock.h"
#include "tools/cli/command.h"
#include "tools/cli/files.h"
#include "tools/cli/run_outputs.h"
#include "tools/cli/run_overlap.h"
#include "tools/cli/run_report.h"
#include "tools/command_line.h"
#include "tools/launch/rank_gather.h"
#include "tools/trace/summary.h"

namespace sluice::tools {
namespace {

// Files take longer than events: ranks wait so many times the limit of an event for each other's.
constexpr double kFileWaits = 10;

// Settings that must be the same at all ranks, as words of an error.
std::array<std::string, 4> settingsOf(const Job& job) {
  return {"entries " + entryNames(job), fmt::format("{} repetitions", job.repeat),
          job.trace.empty() ? "without a trace" : "with a trace",
          job.overlap ? "with --overlap" : "without --overlap"};
}

// One process of a run: what it has, and what it knows of the others.
class RankProcess {
 public:
  RankProcess(const Expected<Job>& job, Transport& transport, RankGather gather)
      : job_(job), transport_(transport), gather_(std::move(gather)) {}

  Expected<int> run();

 private:
  bool isFirst() const { return transport_.rank() == 0; }
  Status prepare();
  Expected<std::optional<RankFailure>> compareSettings();
  Status gatherResults();
  Status gatherTraces();
  Status stage();
  Expected<int> fail(const RankFailure& failure);

  const Expected<Job>& job_;
  Transport& transport_;
  RankGather gather_;
  Rank rank_;
  std::vector<PendingFile> files_;
  std::vector<RankFigures> figures_;  // these two at rank 0 only
  std::vector<Trace> traces_;
};

Status RankProcess::prepare() {
  if (!job_) return job_.error();
  const int rank = transport_.rank();
  if (transport_.size() != job_->program.ranks())
    return Error{fmt::format("found {} ranks, expected {}, for which the program was compiled",
                             transport_.size(), job_->program.ranks())};
  if (Status status = probeOutputs(*job_, rank, rank + 1, isFirst()); !status) return status;
  Expected<Rank> loaded = loadRank(*job_, rank);
  if (!loaded) return loaded.error();
  rank_ = std::move(*loaded);
  return {};
}

Expected<std::optional<RankFailure>> RankProcess::compareSettings() {
  const std::array<std::string, 4> own = settingsOf(*job_);
  std::vector<std::vector<std::string>> all;  // by setting, then by rank
  for (const std::string& setting : own) {
    Expected<std::vector<std::string>> settings =
        gather_.gather(setting, {"the settings", "before the first step"});
    if (!settings) return settings.error();
    all.push_back(std::move(*settings));
  }
  for (const std::vector<std::string>& settings : all)
    for (size_t rank = 1; rank < settings.size(); ++rank)
      if (settings[rank] != settings[0])
        return std::optional<RankFailure>(
            {static_cast<int>(rank),
             fmt::format("rank {} runs {}, but rank 0 runs {}", rank, settings[rank], settings[0])});
  return std::optional<RankFailure>();
}

Status RankProcess::gatherResults() {
  const Awaited awaited = {"the figures", "after the last step"};
  const auto all = gather_.gather(encodeFigures(rank_.figures), awaited, 0);
  if (!all) return all.error();
  for (const std::string& bytes : *all) {
    if (!isFirst()) break;
    Expected<RankFigures> figures = decodeFigures(bytes);
    if (!figures) return figures.error();
    figures_.push_back(std::move(*figures));
  }
  return job_->trace.empty() ? Status{} : gatherTraces();
}

// Clocks of different machines have nothing to do with each other: times then count from the moment at which
// all ranks have just met, the same for all but for the way of a message.
Status RankProcess::gatherTraces() {
  if (const int64_t now = monotonicNanoseconds(); transport_.localRanks() < transport_.size()) {
    for (TraceSpan& span : rank_.trace.spans) {
      span.begin -= now;
      span.end -= now;
    }
  }
  const Awaited awaited = {"the trace", "after the last step"};
  const auto all = gather_.gather(encodeTrace(rank_.trace), awaited, 0);
  if (!all) return all.error();
  for (const std::string& bytes : *all) {
    if (!isFirst()) break;
    Expected<Trace> trace = decodeTrace(bytes);
    if (!trace) return trace.error();
    traces_.push_back(std::move(*trace));
  }
  return {};
}

Status RankProcess::stage() {
  if (!job_->out.empty()) {
    Expected<PendingFile> outputs = stageOutputs(*job_, transport_.rank(), rank_.outputs);
    if (!outputs) return outputs.error();
    files_.push_back(std::move(*outputs));
  }
  if (!isFirst()) return {};
  if (!job_->trace.empty()) {
    Expected<PendingFile> trace = stageTrace(*job_, traces_);
    if (!trace) return trace.error();
    files_.push_back(std::move(*trace));
  }
  if (job_->overlapJson.empty()) return {};
  Expected<PendingFile> overlap = stageOverlap(*job_, rank_.overlap);
  if (!overlap) return overlap.error();
  files_.push_back(std::move(*overlap));
  return {};
}

// mpirun ends all ranks as soon as one has failed: then the rank whose error it is says it, and only when it
// has been said the others end. Ranks that others started may have standard errors of their own.
Expected<int> RankProcess::fail(const RankFailure& failure) {
  if (transport_.kind() != "mpi") return Error{failure.message};
  if (failure.rank == transport_.rank())
    fmt::print(stderr, "sluice: error: {}\n", printable(failure.message));
  const auto said = gather_.gather("", {"the end", "after an error"});
  return said ? Expected<int>(kExitFailure) : said.error();
}

Expected<int> RankProcess::run() {
  auto failure = gather_.agree(prepare(), {"the inputs", "before the first step"});
  if (!failure) return failure.error();
  if (*failure) return fail(**failure);
  failure = compareSettings();
  if (!failure) return failure.error();
  if (*failure) return fail(**failure);

  if (Status status = runRank(*job_, transport_, rank_); !status) {
    transport_.abort(status.error().message);
    return status.error();
  }
  if (Status status = gatherResults(); !status) return status.error();

  failure = gather_.agree(stage(), {"the outputs", "after the last step"});
  if (!failure) return failure.error();
  if (*failure) return fail(**failure);
  failure = gather_.agree(commitAll(files_), {"the end", "after the outputs were there"});
  if (!failure) return failure.error();
  if (*failure) return fail(**failure);
  if (!isFirst()) return kExitSuccess;

  std::string text = reportRun(*job_, figures_, true);
  if (!job_->trace.empty()) text += "\n" + traceSummary(job_->program.tables(), traces_);
  if (job_->overlap) text += overlapText(rank_.overlap);
  if (Status status = printText(text); !status) return status.error();
  return kExitSuccess;
}

}  // namespace

Expected<int> runProcess(const Expected<Job>& job, double timeoutSeconds, Transport& transport) {
  Expected<RankGather> gather = RankGather::create(transport, kFileWaits * timeoutSeconds);
  if (!gather) return gather.error();
  // the others must hear of it, instead of waiting for a rank that is gone
  try {
    return RankProcess(job, transport, std::move(*gather)).run();
  } catch (const std::exception& error) {
    const std::string message = fmt::format("rank {}: {}", transport.rank(), error.what());
    transport.abort(message);
    return Error{message};
  }
}

}  // namespace sluice::tools
